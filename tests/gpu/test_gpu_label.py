"""Features of photos computed on a GPU equal those of a CPU."""

import numpy as np
import pytest
import torch
from PIL import Image

from infoshot.backbones import Encoder, make_backbone
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import Extraction, encode_images
from infoshot.images.folders import find_images

pytestmark = pytest.mark.gpu


def test_features_of_photos_equal_those_of_a_cpu(tmp_path):
    generator = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(40):
        size = (60 + 5 * number, 90, 3)
        pixels = generator.integers(0, 256, size, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "broken.png").write_bytes(b"nothing")
    locations = [image.location for image in find_images(tmp_path / "photos")]
    torch.manual_seed(0)
    encoder = Encoder("resnet18", make_backbone("resnet18").eval(), "0" * 64)
    encoded = {}
    for device in ("cpu", "cuda"):
        cache = FeatureCache(tmp_path / device, {"device": device})
        how = Extraction(device=device)
        encoded[device] = encode_images(locations, lambda: encoder, how, cache=cache)
    assert encoded["cpu"].reasons == encoded["cuda"].reasons
    readable = encoded["cpu"].readable
    assert readable.sum() == 40
    torch.testing.assert_close(
        encoded["cuda"].features[readable], encoded["cpu"].features[readable], atol=1e-3, rtol=1e-3
    )


def test_a_module_on_a_gpu_is_an_encoder(tmp_path):
    from infoshot.backbones import open_encoder

    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
    network.append(torch.nn.Linear(12, 5)).cuda()
    assert open_encoder(network).backbone.feature_dim == 5
