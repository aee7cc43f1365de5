"""Pickles of images: crafted ones are refused in a moment, without harm to the process."""

import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

from infoshot import DataError
from infoshot.images import open_dataset

INSPECT = """
import sys
from infoshot import DataError, inspect_dataset
for root in sys.argv[1:]:
    try:
        inspect_dataset("tiered-imagenet" if "tiered" in root else "mini-imagenet", root)
        print("accepted")
    except DataError as error:
        print(error, flush=True)
"""
PIXELS = np.zeros((3, 4, 4, 3), np.uint8)


def _text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _data_type(code, state=b""):
    return b"cnumpy\ndtype\n" + _text(code) + b"\x89\x88\x87R" + state


def _pointers():
    """An array of eight bytes whose only field is an object: reading it would follow the bytes."""
    field = b"}" + _text("f") + _data_type("O") + b"K\x00\x86s"
    state = b"(K\x03" + _text("|") + b"N" + _text("f") + b"\x85" + field + b"K\x08K\x01K\x00tb"
    name = b"cnumpy._core.numeric\n_frombuffer\n"
    array = name + b"(C\x08AAAAAAAA" + _data_type("V8", state) + b"K\x01\x85" + _text("C") + b"tR"
    classes = b"}" + _text("a") + b"]K\x00as"
    content = b"}" + _text("image_data") + array + b"s" + _text("class_dict") + classes + b"s"
    return b"\x80\x04" + content + b"."


def _laughs():
    """Lists that are small in memory and very long as text."""
    value = ["ha"]
    for _ in range(40):
        value = [value, value]
    return value


def test_crafted_pickles_neither_end_nor_delay_the_process(tmp_path):
    names = {"label_specific": np.array([0]), "label_specific_str": [_laughs()]}
    mini = "mini-imagenet-cache-train.pkl"
    files = {
        f"pointers/{mini}": _pointers(),
        f"deep keys/{mini}": b"\x80\x04})" + b"\x85" * 300_000 + b"Ns.",
        "tiered/test_images_png.pkl": pickle.dumps([PIXELS[0]]),
        "tiered/test_labels.pkl": pickle.dumps(names),
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    roots = [str(tmp_path / name) for name in ("tiered", "deep keys", "pointers")]
    result = subprocess.run(
        [sys.executable, "-c", INSPECT, *roots],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    tiered, deep, pointers = result.stdout.splitlines()
    assert "the name of a class is not a short text" in tiered
    assert "the keys of a dict must be texts" in deep
    assert "cache-train.pkl: not allowed" in pointers


def _mini(classes, images=PIXELS):
    return {"mini-imagenet-cache-test.pkl": {"image_data": images, "class_dict": classes}}


def _tiered(images, labels, **more):
    return {
        "test_images_png.pkl": images,
        "test_labels.pkl": {"label_specific": labels, **more},
    }


WRONG = {
    "row too large": (_mini({"a": [3]}), "a row is not the number of an image"),
    "negative row": (_mini({"a": [-1]}), "a label is not a whole number from 0"),
    "huge row": (_mini({"a": [2**70]}), "a row is not the number of an image"),
    "row twice": (_mini({"a": [0], "b": [0]}), "or is there twice"),
    "infinite row": (_mini({"a": [float("inf")]}), "must have image_data"),
    "row of a list": (_mini({"a": [[0]]}), "a label is not a whole number"),
    "no rows": (_mini({"a": 1}), "must have image_data"),
    "long name": (_mini({"a" * 2000: [0]}), "the name of a class is not a short text"),
    "rows of numbers": (_mini({"a": [0]}, np.zeros(3, np.uint8)), "an image is not an array"),
    "no axes": (_tiered(np.array(3), [0]), "must be a list of images"),
    "no list": (_tiered({"a": 1}, [0]), r"test_images_png\.pkl: must be a list of images"),
    "no arrays": (_tiered([1], [0]), r"test_images_png\.pkl\[0\]: must be an array"),
    "too few labels": (_tiered([PIXELS[0], PIXELS[1]], [0]), "has 2 images but 1 labels"),
    "nested labels": (_tiered([PIXELS[0]], _laughs()), "a label is not a whole number"),
    "label too large": (_tiered([PIXELS[0]], [4], label_specific_str=["a"]), "label_specific"),
}


@pytest.mark.parametrize("case", WRONG)
def test_pickles_that_do_not_fit_together_are_refused(case, tmp_path):
    files, message = WRONG[case]
    for name, content in files.items():
        (tmp_path / name).write_bytes(pickle.dumps(content))
    dataset = "mini-imagenet" if "mini" in next(iter(files)) else "tiered-imagenet"
    with pytest.raises(DataError, match=message) as caught:
        open_dataset(dataset, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", [["a", "b"], np.array(["a", "b"]), np.array([b"a", b"b"])])
def test_names_of_classes_may_be_arrays_of_text(names, tmp_path):
    labels, images = np.array([1, 0, 1]), [np.zeros((n, 1), np.uint8) for n in (5, 7, 6)]
    for name, content in _tiered(images, labels, label_specific_str=names).items():
        (tmp_path / name).write_bytes(pickle.dumps(content))
    assert open_dataset("tiered-imagenet", tmp_path).split("test").class_names == ["a", "b"]


UNUSABLE = {
    "text": (np.array([b"abc"]), "pixels must be uint8"),
    "no rows": (np.zeros((0, 4, 3), np.uint8), "too narrow|no pixels"),
    "very long": (np.zeros((1, 3000, 3), np.uint8), "too narrow"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_images_in_pickles_are_checked_like_files(case, tmp_path):
    image, message = UNUSABLE[case]
    content = _mini({"a": [0]}, [image])["mini-imagenet-cache-test.pkl"]
    (tmp_path / "mini-imagenet-cache-test.pkl").write_bytes(pickle.dumps(content))
    record = open_dataset("mini-imagenet", tmp_path).found.records[0]
    with pytest.raises(DataError, match=message):
        record.location.pixels()
