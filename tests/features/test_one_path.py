"""One path from image to feature: every function gives the same bytes for the same photo."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from infoshot import labelling
from infoshot.backbones import InputSpec, open_encoder
from infoshot.core.pixels import decode
from infoshot.features.api import extract, extract_shards
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import Extraction, digest_images, encoder_provenance
from infoshot.images.decoding import FileLocation
from tests.image_folders import make_folders

LARGE = (3200, 2400)
ORIENTATION = 0x0112  # of the EXIF data


class Net(torch.nn.Module):
    """A small random network whose input is small compared with the photos."""

    input_spec = InputSpec(crop=64, resize=72)

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(16, 3, 5, 5, generator=generator) / 8)

    def forward(self, x):
        return torch.nn.functional.conv2d(x, self.weight, stride=3).relu().mean((2, 3))


def photo():
    """Details of many sizes, so that every way to decode or resize gives other pixels."""
    generator = np.random.default_rng(0)
    image = Image.new("RGB", LARGE)
    for n_pixels in (400, 80, 8):
        noise = generator.integers(0, 256, (n_pixels * 3 // 4, n_pixels, 3), dtype=np.uint8)
        layer = Image.fromarray(noise).resize(LARGE, Image.Resampling.BILINEAR)
        image = Image.blend(image, layer, 0.5)
    return image


def _rotated(image, path, **options):
    """Store an image turned by 90 degrees, with an EXIF orientation that turns it back."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    image.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif, **options)


def _decoded(path, at_least):
    """The pixels that a network gets of a file, as a PNG."""
    stream = io.BytesIO()
    Image.fromarray(decode(path.read_bytes(), "", at_least=at_least)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos") / "all"
    folder.mkdir()
    image = photo()
    image.save(folder / "large.jpg", quality=90)
    _rotated(image, folder / "rotated.jpg", quality=90)
    small = image.reduce(2)  # decoding large PNGs would take most of the time
    small.save(folder / "whole.png", compress_level=1)
    _rotated(small, folder / "rotated.png", compress_level=1)
    small.quantize(64).save(folder / "palette.png", compress_level=1)
    (folder / "decoded.png").write_bytes(_decoded(folder / "rotated.jpg", 2 * 72))
    return folder


@pytest.fixture(scope="module")
def by_extract(photos):
    """Features by file name, as ``extract`` computes them for a folder of classes."""
    return _by_extract(photos, Net())


def _by_extract(photos, backbone):
    table = extract("folder", photos.parent, backbone=backbone, dtype="float32")
    return dict(zip(sorted(path.name for path in photos.iterdir()), table.features, strict=True))


def _cached(photos, encoder, folder):
    """Features by file name that are in a cache."""
    encoder = open_encoder(encoder)
    cache = FeatureCache(folder, encoder_provenance(encoder, Extraction()))
    paths = sorted(photos.iterdir())
    digests = [digest for digest, _ in digest_images([FileLocation(path) for path in paths], 1)]
    known = cache.read(digests)
    return {path.name: known[digest] for path, digest in zip(paths, digests, strict=True)}


def _same_bytes(features, expected):
    assert features.keys() == expected.keys()
    for name, row in expected.items():
        assert row.dtype == features[name].dtype == torch.float32
        assert features[name].numpy().tobytes() == row.numpy().tobytes(), name


def test_label_and_predict_give_the_features_of_extract(photos, by_extract, tmp_path):
    make_folders(tmp_path, 3, size=(90, 80), splits={"examples": ("cat", "dog")})
    network = Net()
    labelling.label(
        tmp_path / "examples", photos, tmp_path / "run", backbone=network,
        method="prototype", cache=tmp_path / "label-cache",
    )  # fmt: skip
    _same_bytes(_cached(photos, network, tmp_path / "label-cache"), by_extract)
    labelling.predict(tmp_path / "run", photos, cache=tmp_path / "predict-cache")
    _same_bytes(_cached(photos, network, tmp_path / "predict-cache"), by_extract)


def test_extract_shards_gives_the_features_of_extract(photos, by_extract, tmp_path):
    extract_shards(photos, tmp_path / "shards", backbone=Net(), shard_size=4, dtype="float32")
    rows = [load_file(path)["features"] for path in sorted((tmp_path / "shards").iterdir())]
    names = sorted(path.name for path in photos.iterdir())
    _same_bytes(dict(zip(names, torch.cat(rows), strict=True)), by_extract)


def test_the_cache_does_not_change_features(photos, by_extract, tmp_path):
    for _ in range(2):
        table = extract(
            "folder", photos.parent, backbone=Net(), dtype="float32", cache=tmp_path / "cache"
        )
        names = sorted(path.name for path in photos.iterdir())
        _same_bytes(dict(zip(names, table.features, strict=True)), by_extract)


def test_a_rotated_photo_has_the_features_of_the_upright_one(by_extract):
    assert torch.equal(by_extract["rotated.png"], by_extract["whole.png"])
    assert torch.equal(by_extract["rotated.jpg"], by_extract["decoded.png"])
    # JPEG stores the rotated photo with other rounding errors.
    torch.testing.assert_close(
        by_extract["rotated.jpg"], by_extract["large.jpg"], atol=2e-3, rtol=0
    )


def test_formats_differ_only_by_their_losses(by_extract):
    """The JPEG is decoded at a quarter of its size, the PNG at its full size."""
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(by_extract["large.jpg"], by_extract["whole.png"], dim=0) > 0.999
    assert cosine(by_extract["palette.png"], by_extract["whole.png"], dim=0) > 0.98
    assert not torch.equal(by_extract["large.jpg"], by_extract["whole.png"])


def test_the_default_encoder_gives_the_same_bytes_too(photos, tmp_path):
    make_folders(tmp_path, 2, size=(90, 80), splits={"examples": ("cat", "dog")})
    expected = _by_extract(photos, "efficientnet-lite0")
    labelling.label(
        tmp_path / "examples", photos, tmp_path / "run", method="prototype",
        cache=tmp_path / "cache",
    )  # fmt: skip
    _same_bytes(_cached(photos, "efficientnet-lite0", tmp_path / "cache"), expected)
    extract_shards(photos, tmp_path / "shards", dtype="float32")
    (shard,) = (tmp_path / "shards").iterdir()
    names = sorted(path.name for path in photos.iterdir())
    _same_bytes(dict(zip(names, load_file(shard)["features"], strict=True)), expected)
    labelling.predict(tmp_path / "run", photos, cache=tmp_path / "predict-cache")
    _same_bytes(_cached(photos, "efficientnet-lite0", tmp_path / "predict-cache"), expected)
