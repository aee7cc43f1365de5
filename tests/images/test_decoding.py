import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from infoshot import DataError
from infoshot.core.pixels import decode
from infoshot.images.decoding import (
    ArrayLocation,
    FileLocation,
    SliceLocation,
    is_image_name,
    read_crop,
    resize_and_crop,
)

RGB = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)


def _encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_pixels_are_decoded_as_stored():
    np.testing.assert_array_equal(decode(_encoded(Image.fromarray(RGB)), "x"), RGB)


def test_every_mode_becomes_rgb():
    grey = RGB[..., 0]
    image = Image.fromarray(RGB)
    expected_grey = np.repeat(grey[..., None], 3, axis=2)
    np.testing.assert_array_equal(decode(_encoded(Image.fromarray(grey)), "x"), expected_grey)
    sixteen = Image.fromarray(grey.astype(np.uint16) * 257)
    np.testing.assert_array_equal(decode(_encoded(sixteen), "x"), expected_grey)
    palette = image.quantize(256)
    np.testing.assert_array_equal(
        decode(_encoded(palette), "x"), np.asarray(palette.convert("RGB"))
    )
    cmyk = decode(_encoded(image.convert("CMYK"), "TIFF"), "x")
    np.testing.assert_allclose(cmyk, np.asarray(image.convert("CMYK").convert("RGB")), atol=1)
    one_bit = decode(_encoded(Image.fromarray(grey > 127)), "x")
    assert set(np.unique(one_bit)) <= {0, 255}


def test_transparency_is_put_on_black():
    alpha = np.full((6, 5, 1), 128, dtype=np.uint8)
    alpha[0] = 0
    pixels = decode(_encoded(Image.fromarray(np.concatenate([RGB, alpha], axis=2))), "x")
    assert (pixels[0] == 0).all()
    np.testing.assert_allclose(pixels[1:], RGB[1:] * (128 / 255), atol=1)


def test_first_frame_of_an_animation_is_taken():
    frames = [Image.fromarray(np.full((4, 4, 3), value, dtype=np.uint8)) for value in (10, 200)]
    content = _encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode(content, "x") == 10).all()


def test_one_pixel_is_an_image():
    assert decode(_encoded(Image.new("RGB", (1, 1), (1, 2, 3))), "x").tolist() == [[[1, 2, 3]]]


BROKEN = {
    "empty": (b"", "the file is empty"),
    "text": (b"hello" * 100, "not an image"),
    "a PDF": (b"%PDF-1.7\n" + b"0" * 300, "not an image"),
    "half a JPEG": (_encoded(Image.fromarray(np.tile(RGB, (20, 20, 1))), "JPEG")[:800], "cannot be decoded"),
    "half a PNG": (_encoded(Image.fromarray(RGB))[:100], "cannot be decoded"),
    "too thin": (_encoded(Image.new("RGB", (1, 5000))), r"cannot be decoded \(1 x 5000 pixels are too narrow for a photo"),
    "too large": (_encoded(Image.new("1", (20_000, 20_000))), "too large for a photo"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_messages_name_broken_images(case, tmp_path):
    content, message = BROKEN[case]
    path = tmp_path / "picture.jpg"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"picture\.jpg: {message}") as caught:
        FileLocation(path).pixels()
    assert "\n" not in str(caught.value)


def test_messages_name_missing_files_and_truncated_archives(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jpg: cannot be read \(No such file"):
        FileLocation(tmp_path / "gone.jpg").pixels()
    with pytest.raises(DataError, match=r"cannot be read \(embedded null byte\)"):
        FileLocation(tmp_path / "a\0.jpg").pixels()
    (tmp_path / "a.tar").write_bytes(b"123")
    with pytest.raises(
        DataError, match=r"a\.tar:c/x\.jpg: the archive is truncated inside this image"
    ):
        SliceLocation(tmp_path / "a.tar", "c/x.jpg", 1, 10).pixels()


def test_rows_of_arrays_are_pixels_or_encoded_images():
    np.testing.assert_array_equal(ArrayLocation("p[0]", RGB).pixels(), RGB)
    encoded = np.frombuffer(_encoded(Image.fromarray(RGB)), dtype=np.uint8)
    np.testing.assert_array_equal(ArrayLocation("p[0]", encoded).pixels(), RGB)
    with pytest.raises(DataError, match=r"p\[0\]: pixels must be uint8.*got float64 \[6, 5, 3\]"):
        ArrayLocation("p[0]", RGB / 2).pixels()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.JPG", True), ("b.jpeg", True), ("c.webp", True), (".d.png", False), ("e.txt", False)],
)
def test_image_names(name, expected):
    assert is_image_name(name) is expected


def test_rotated_photos_are_turned_upright(tmp_path):
    upright = Image.fromarray(RGB)
    exif = Image.Exif()
    exif[0x0112] = 6  # the pixels must be rotated by 270 degrees
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(FileLocation(tmp_path / "a.png").pixels(), RGB)


def test_large_jpegs_are_decoded_smaller_but_never_too_small():
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((1600, 1200), Image.Resampling.BICUBIC)
    encoded = {}
    for kind in ("JPEG", "PNG"):
        stream = io.BytesIO()
        image.save(stream, kind)
        encoded[kind] = stream.getvalue()
    assert decode(encoded["JPEG"], "").shape == (1200, 1600, 3)
    assert decode(encoded["JPEG"], "", at_least=256).shape == (300, 400, 3)
    assert decode(encoded["JPEG"], "", at_least=700).shape == (1200, 1600, 3)
    assert decode(encoded["PNG"], "", at_least=256).shape == (1200, 1600, 3)
    small = np.asarray(image.resize((400, 300), Image.Resampling.BOX), dtype=float)
    assert np.abs(decode(encoded["JPEG"], "", at_least=256) - small).mean() < 4


@pytest.mark.parametrize(("height", "width"), [(84, 84), (60, 120), (120, 60), (96, 96), (1, 1)])
def test_crop_is_the_central_square_of_the_resized_image(height, width):
    noise = np.random.default_rng(0).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
    crop = resize_and_crop(np.asarray(image), resize=96, crop=84)
    assert crop.shape == (84, 84, 3)
    scale = 96 / min(height, width)
    resized = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (resized.width - 84) // 2, (resized.height - 84) // 2
    expected = resized.crop((left, top, left + 84, top + 84))
    np.testing.assert_array_equal(crop, np.asarray(expected))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_every_kind_of_location_gives_the_same_crop(kind, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((800, 600), Image.Resampling.BICUBIC)
    content = _encoded(image, kind)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.tar").write_bytes(b"before" + content + b"after")
    expected = resize_and_crop(decode(content, "", at_least=128), 64, 56)
    for location in (
        FileLocation(tmp_path / "a"),
        SliceLocation(tmp_path / "a.tar", "a", 6, len(content)),
        ArrayLocation("p[0]", np.frombuffer(content, dtype=np.uint8)),
    ):
        digest, crop = read_crop(location, resize=64, crop=56)
        assert digest == hashlib.sha256(content).hexdigest()
        np.testing.assert_array_equal(crop, expected)
    stored, crop = read_crop(ArrayLocation("p[0]", np.asarray(image)), resize=64, crop=56)
    assert stored == hashlib.sha256(np.asarray(image).tobytes()).hexdigest()
    np.testing.assert_array_equal(crop, resize_and_crop(np.asarray(image), 64, 56))
