"""Pictures: limits, orientation, and what is kept in memory."""

import io

import pytest
from PIL import Image

from infoshot import DataError
from infoshot.reviewing import pictures
from infoshot.reviewing.pictures import Pictures


def save(path, size, colour=(10, 200, 30), **more):
    Image.new("RGB", size, colour).save(path, **more)
    return path


def open_picture(content):
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        return image


def test_photos_are_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "a.jpg", (300, 200), exif=exif)
    image = open_picture(Pictures().make(path, "a", 96))
    assert image.size == (64, 96)
    assert not image.getexif()


@pytest.mark.parametrize("name", ["a.png", "a.gif", "a.bmp", "a.webp", "a.tif"])
def test_other_formats_become_jpeg(name, tmp_path):
    image = open_picture(Pictures().make(save(tmp_path / name, (50, 40)), "a", 96))
    assert (image.format, image.size) == ("JPEG", (50, 40))
    for value, expected in zip(image.getpixel((20, 20)), (10, 200, 30), strict=True):
        assert abs(value - expected) < 6


def test_images_beyond_the_limits_are_refused(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png", (300, 200))
    monkeypatch.setattr("infoshot.core.pixels._MOST_MEMORY", 1000)
    with pytest.raises(DataError, match="too large for a photo"):
        Pictures().make(path, "a", 96)


def test_the_latest_pictures_are_kept_within_the_limit(tmp_path, monkeypatch):
    paths = [save(tmp_path / f"{n}.png", (96, 96), (n, n, n)) for n in range(5)]
    n_bytes = [len(Pictures().make(path, "x", 96)) for path in paths]
    kept = Pictures(largest=sum(n_bytes[:3]))
    for number in range(3):
        kept.make(paths[number], str(number), 96)
    kept.find("0", 96)  # used last, so that 1 is removed first
    kept.make(paths[3], "3", 96)
    found = [kept.find(str(number), 96) is not None for number in range(4)]
    assert found == [True, False, True, True]
    assert kept.find("0", 160) is None
    monkeypatch.setattr(pictures, "_make", lambda *_: pytest.fail("it is kept"))
    kept.make(paths[0], "0", 96)


def test_a_picture_larger_than_the_limit_is_not_kept(tmp_path):
    path = save(tmp_path / "a.png", (96, 96))
    small = Pictures(largest=10)
    assert small.make(path, "a", 96)
    assert small.find("a", 96) is None
    assert small.make(path, "a", 96)
