import os

import pytest
from PIL import Image

from infoshot import DataError
from infoshot.features.extract import digest_images
from infoshot.images.folders import ImageFile, find_examples, find_images, read_labels


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path, "PNG")
    return path


@pytest.fixture
def folder(tmp_path):
    for name in ("b.png", "a.PNG", "deep/er/c.jpg", ".hidden.png", ".git/d.png", "album.jpg/e.png"):
        image(tmp_path / "folder" / name)
    (tmp_path / "folder" / "notes.txt").write_text("no image")
    (tmp_path / "folder" / "f.heic").write_bytes(b"whatever")
    return tmp_path / "folder"


def reason(photo):
    """Why an image cannot be read; empty if it can."""
    ((_, reason),) = digest_images([photo.location], 1)
    return reason


def names(photos, root):
    return [str(photo.file.relative_to(root)) for photo in photos]


def test_every_image_of_a_tree_is_found_once_in_order(folder):
    expected = ["a.PNG", "album.jpg/e.png", "b.png", "deep/er/c.jpg", "f.heic"]
    assert names(find_images(folder), folder) == expected
    assert [photo.path for photo in find_images(folder)] == [
        f"{folder}/{name}" for name in expected
    ]


def test_links_are_followed_once(folder, tmp_path):
    image(tmp_path / "elsewhere" / "g.png")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "deep" / "up").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    (folder / "gone.png").symlink_to(folder / "nothing.png")
    found = names(find_images(folder), folder)
    assert len(found) == 7
    assert {"link/g.png", "gone.png"} <= set(found)


def test_folders_and_files_can_be_excluded(folder):
    assert names(find_images(folder, [folder / "deep", folder / "b.png"]), folder) == [
        "a.PNG", "album.jpg/e.png", "f.heic",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["list.txt", "list.csv"])
def test_lists_of_photos(folder, tmp_path, name):
    lines = ["folder/b.png", str(folder / "a.PNG"), "", "folder/gone.png"]
    header = "size,path\n" if name.endswith("csv") else ""
    start = "3," if header else ""
    text = "\n".join(start + line if line else "" for line in lines)
    (tmp_path / name).write_text(header + text)
    photos = find_images(tmp_path / name)
    assert [photo.path for photo in photos] == [line for line in lines if line]
    assert [reason(photo) for photo in photos] == [
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


def test_wrong_examples_are_refused(tmp_path):
    with pytest.raises(DataError, match="this folder or file with examples does not exist"):
        find_examples(tmp_path / "nothing")
    image(tmp_path / "one" / "cat" / "1.png")
    with pytest.raises(DataError, match=r"at least two classes .* got 'cat'"):
        find_examples(tmp_path / "one")
    with pytest.raises(DataError, match=r"at least two classes .* got 'one'\.$"):
        find_examples(tmp_path)
    (tmp_path / "one" / "dog").mkdir()
    with pytest.raises(
        DataError, match=r"got 'one'\. If the folders in .*one are the classes, pass that folder\.$"
    ):
        find_examples(tmp_path)
    with pytest.raises(DataError, match="the class 'dog' has no examples"):
        find_examples(tmp_path / "one")
    (tmp_path / "a.csv").write_text("file,label\nx.png,cat\n")
    with pytest.raises(DataError, match="must have a header line with the column 'path'"):
        find_examples(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("path,label\nx.png,\n")
    with pytest.raises(DataError, match="no line has a label"):
        read_labels(tmp_path / "b.csv")


def test_folders_without_images_are_refused(tmp_path):
    with pytest.raises(DataError, match="it contains no images"):
        find_images(tmp_path)
    with pytest.raises(DataError, match="this folder or file with images does not exist"):
        find_images(tmp_path / "nothing")


def test_folders_of_nothing_but_examples_are_explained(tmp_path):
    image(tmp_path / "cat" / "1.png")
    with pytest.raises(DataError, match="all of its images are examples or results; put the image"):
        find_images(tmp_path, without=[tmp_path])


def test_pipes_and_huge_files_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (photo,) = find_images(tmp_path)
    assert reason(photo) == "not a regular file"
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(2**31)
    assert reason(ImageFile("", tmp_path / "large.png")) == "too large for a photo (2.0 GB)"
