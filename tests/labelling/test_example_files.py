"""Example images that cannot be used, and photos that look like examples."""

import shutil
from pathlib import Path

import pytest

from infoshot import DataError
from infoshot.images.folders import ImageFile, refuse_unusable, warn_class_folders


def test_all_examples_that_cannot_be_used_are_named(label, made, tmp_path):
    examples = shutil.copytree(made / "examples", tmp_path / "examples")
    for name in ("cat/1.png", "dog/empty.png"):
        (examples / name).write_bytes(b"")
    (examples / "cat" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError) as caught:
        label(tmp_path / "r", examples=examples)
    message = str(caught.value)
    assert message.startswith("3 examples cannot be used; replace or remove them: ")
    assert f"{examples / 'cat' / '0.png'} (not an image, or in a format" in message
    assert f"{examples / 'cat' / '1.png'} (the file is empty), " in message
    assert message.endswith(f"{examples / 'dog' / 'empty.png'} (the file is empty).")


def test_long_lists_of_unusable_examples_are_cut():
    images = [ImageFile(f"{number}.png", Path(f"{number}.png")) for number in range(30)]
    with pytest.raises(DataError, match=r"^30 examples .* 19\.png \(empty\) and 10 more\.$"):
        refuse_unusable(images, ["empty"] * 30)
    refuse_unusable(images, [""] * 30)


def test_photos_in_folders_with_names_of_classes_are_no_examples(label, made, tmp_path):
    photos = shutil.copytree(made / "photos", tmp_path / "photos")
    for name, folder in (("cat7", "cat"), ("cat8", "cat"), ("dog7", "dog"), ("dog8", "2024")):
        (photos / folder).mkdir(exist_ok=True)
        (photos / f"{name}.png").rename(photos / folder / f"{name}.png")
    result = label(tmp_path / "r", photos=photos)
    assert len(result.images) == 60
    assert (
        "3 photos are in folders with the names of classes (cat, dog). Folders of photos are not "
        "read as labels; to use these photos as examples, move them into the folder of examples."
    ) in result.warnings


def test_other_folders_of_photos_are_not_mentioned(label, tmp_path):
    assert warn_class_folders(["cat"], [Path("photos/cats/1.png")]) == []
    assert not any("names of classes" in text for text in label(tmp_path / "r").warnings)
    (one,) = warn_class_folders([*"abcdefg"], [Path(f"{name}/1.png") for name in "abcdefg"])
    assert one.startswith("7 photos are in folders with the names of classes (a, b, c, d, e and 2")
