from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from infoshot import DataError
from infoshot.images.decoding import FileLocation, ImageRecord, map_images
from tests.labelling.odd_files import UPRIGHT, make_odd_files


@pytest.fixture(scope="module")
def odd_files(tmp_path_factory):
    return make_odd_files(tmp_path_factory.mktemp("odd"))


def decode(record):
    """The pixels, or the message of a DataError; any other error fails the test."""
    try:
        return record.location.pixels()
    except DataError as error:
        return str(error)


def test_odd_files_are_decoded_or_named_in_a_message(odd_files):
    assert len(odd_files) > 200
    records = [ImageRecord("", path.name, FileLocation(path)) for path in odd_files]
    results = map_images(decode, records, n_workers=2)  # without Pillow's warnings, as in a run
    disagreeing = {}
    for (path, expected), result in zip(odd_files.items(), results, strict=True):
        if isinstance(result, str):
            found = "unreadable"
            assert result.startswith(f"{path}: ")
            assert result.endswith(".")
            assert "\n" not in result.removeprefix(str(path))
        else:
            found = "readable"
            assert result.dtype == np.uint8
            assert result.ndim == 3
            assert result.shape[2] == 3
        if expected not in (found, "either"):
            disagreeing[path] = result
    assert not disagreeing


def test_all_orientations_are_rotated_as_pillow_rotates_them(odd_files):
    rotated = [path for path in odd_files if path.name.startswith("orientation")]
    assert len(rotated) == 10
    for path in rotated:
        with Image.open(path) as image:
            expected = np.asarray(ImageOps.exif_transpose(image))
        np.testing.assert_array_equal(FileLocation(path).pixels(), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("other", ["resolution as text", "maker beyond", "in a circle"])
def test_other_damage_does_not_hide_the_orientation(other, odd_files):
    (path,) = (path for path in odd_files if path.name == f"exif {other}.jpg")
    assert FileLocation(path).pixels().shape == (UPRIGHT.width, UPRIGHT.height, 3)


@pytest.mark.parametrize("name", ["pipe.jpg", "link to zeros.png"])
def test_pipes_and_devices_are_not_opened(name, odd_files, monkeypatch):
    (path,) = (path for path in odd_files if path.name == name)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("opened"))
    with pytest.raises(DataError, match=rf"{name}: not a regular file"):
        FileLocation(path).pixels()
