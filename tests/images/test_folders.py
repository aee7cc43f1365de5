import os

import pytest
from PIL import Image

from infoshot import DataError
from infoshot.images.folders import Found, find_examples, find_photos, printable, read_labels


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path, "PNG")
    return path


@pytest.fixture
def pile(tmp_path):
    for name in ("b.png", "a.PNG", "deep/er/c.jpg", ".hidden.png", ".git/d.png", "album.jpg/e.png"):
        image(tmp_path / "pile" / name)
    (tmp_path / "pile" / "notes.txt").write_text("no image")
    (tmp_path / "pile" / "f.heic").write_bytes(b"whatever")
    return tmp_path / "pile"


def names(photos, root):
    return [str(photo.file.relative_to(root)) for photo in photos]


def test_every_image_of_a_tree_is_found_once_in_order(pile):
    expected = ["a.PNG", "album.jpg/e.png", "b.png", "deep/er/c.jpg", "f.heic"]
    assert names(find_photos(pile), pile) == expected
    assert [photo.path for photo in find_photos(pile)] == [f"{pile}/{name}" for name in expected]


def test_links_are_followed_but_not_in_circles(pile, tmp_path):
    image(tmp_path / "elsewhere" / "g.png")
    (pile / "link").symlink_to(tmp_path / "elsewhere")
    (pile / "deep" / "up").symlink_to(pile)
    (pile / "self").symlink_to(pile / "self")
    (pile / "gone.png").symlink_to(pile / "nothing.png")
    found = names(find_photos(pile), pile)
    assert len(found) == 7
    assert {"link/g.png", "gone.png"} <= set(found)


def test_folders_and_files_can_be_left_out(pile):
    assert names(find_photos(pile, [pile / "deep", pile / "b.png"]), pile) == [
        "a.PNG", "album.jpg/e.png", "f.heic",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["list.txt", "list.csv"])
def test_lists_of_photos(pile, tmp_path, name):
    lines = ["pile/b.png", str(pile / "a.PNG"), "", "pile/gone.png"]
    header = "size,path\n" if name.endswith("csv") else ""
    start = "3," if header else ""
    text = "\n".join(start + line if line else "" for line in lines)
    (tmp_path / name).write_text(header + text)
    photos = find_photos(tmp_path / name)
    assert [photo.path for photo in photos] == [line for line in lines if line]
    assert [photo.trouble() for photo in photos] == [
        "", "", "cannot be read (No such file or directory)",
    ]  # fmt: skip


def test_examples_by_folder_and_by_list_are_the_same(tmp_path):
    for name in ("dog/1.png", "cat/1.png", "cat/more/2.png"):
        image(tmp_path / "examples" / name)
    by_folder = find_examples(tmp_path / "examples")
    assert [label for label, _ in by_folder] == ["cat", "cat", "dog"]
    lines = "".join(f"{found.file},{label}\n" for label, found in by_folder)
    (tmp_path / "list.csv").write_text(f"path,label\n{lines}")
    assert find_examples(tmp_path / "list.csv") == by_folder


def test_what_is_no_set_of_examples(tmp_path):
    with pytest.raises(DataError, match="there is no such folder or file with examples"):
        find_examples(tmp_path / "nothing")
    image(tmp_path / "one" / "cat" / "1.png")
    with pytest.raises(DataError, match=r"at least two classes .* got 'cat'"):
        find_examples(tmp_path / "one")
    (tmp_path / "one" / "dog").mkdir()
    with pytest.raises(DataError, match="the class 'dog' has no examples"):
        find_examples(tmp_path / "one")
    (tmp_path / "a.csv").write_text("file,label\nx.png,cat\n")
    with pytest.raises(DataError, match="must have a header line with the column 'path'"):
        find_examples(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("path,label\nx.png,\n")
    with pytest.raises(DataError, match="no line has a label"):
        read_labels(tmp_path / "b.csv")


def test_nothing_to_label(tmp_path):
    with pytest.raises(DataError, match="there are no images in it"):
        find_photos(tmp_path)
    with pytest.raises(DataError, match="there is no such folder or file with photos"):
        find_photos(tmp_path / "nothing")


def test_what_must_not_be_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (photo,) = find_photos(tmp_path)
    assert photo.trouble() == "not a regular file"
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(2**31)
    assert Found("", tmp_path / "large.png").trouble() == "too large to be a photo (2.0 GB)"


def test_names_of_any_bytes_are_printable():
    assert printable("ordinary name \N{SNOWMAN}.jpg") == "ordinary name \N{SNOWMAN}.jpg"
    assert printable(os.fsdecode(b"\xff\n.jpg")) == "\\xff\n.jpg"
