"""Photos encoded on a GPU get the features that a CPU gives them, and the same labels."""

import numpy as np
import pytest
import torch
from infoshot.features.encode import digest_files, encode_files
from infoshot.features.store import FeatureStore
from PIL import Image

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import Checkpoint
from infoshot.features.extract import Extraction
from infoshot.images.folders import find_photos

pytestmark = pytest.mark.gpu


def test_features_of_photos_are_those_of_a_cpu(tmp_path):
    generator = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(40):
        size = (60 + 5 * number, 90, 3)
        pixels = generator.integers(0, 256, size, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "broken.png").write_bytes(b"nothing")
    files = find_photos(tmp_path / "photos")
    torch.manual_seed(0)
    backbone = make_backbone("resnet18").eval()
    made = {}
    for device in ("cpu", "cuda"):
        checkpoint = Checkpoint("resnet18", backbone, "0" * 64)
        store = FeatureStore(tmp_path / device, {"device": device})
        how = Extraction(device=device)
        made[device] = encode_files(
            files, digest_files(files, 2), lambda c=checkpoint: c, how, store
        )
    assert made["cpu"].reasons == made["cuda"].reasons
    readable = made["cpu"].readable
    assert readable.sum() == 40
    torch.testing.assert_close(
        made["cuda"].features[readable], made["cpu"].features[readable], atol=1e-3, rtol=1e-3
    )
