"""The weights in ``results/`` are those that the features in the package were computed with."""

from pathlib import Path

import pytest
import torch

from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.features import read_features
from infoshot.features.extract import Extraction, split_provenance
from infoshot.images import open_dataset
from infoshot.images.splits import published_split
from tests.encoders import extract_features

RUN = Path(__file__).parents[2] / "results" / "training" / "resnet18"


@pytest.fixture(scope="module")
def encoder():
    if not RUN.is_dir():
        pytest.skip("results/ is not part of this distribution")
    return load_checkpoint(RUN / "checkpoint")


def _classes(split):
    return sorted(name for name, s in published_split("mini-imagenet").items() if s == split)


def test_weights_were_trained_on_the_train_classes(encoder):
    assert encoder.backbone_name == "resnet18"
    assert list(encoder.class_names) == _classes("train")
    assert encoder.config["epochs"] == 90


def test_features_record_these_weights(encoder, embedded):
    val = read_features(RUN / "mini_val_resnet18.safetensors")
    for table, split, n_images in ((embedded, "test", 12_000), (val, "val", 9_600)):
        assert table.provenance["weights_sha256"] == encoder.digest
        assert table.provenance["split"] == split
        assert table.features.shape == (n_images, 512)
        assert list(table.class_names) == _classes(split)
    assert torch.equal(val.base_mean, embedded.base_mean)


def test_weights_and_images_give_the_features(encoder, embedded, mini_imagenet):
    split = open_dataset("mini-imagenet", mini_imagenet).split("test")
    about = split_provenance("mini-imagenet", split, encoder, Extraction())
    del about["infoshot"]  # the version that computed them
    # They were computed before the decoding of large JPEGs was part of the record.
    about["transform"] = "resize 96, crop 84, bilinear"
    assert about.items() <= embedded.provenance.items()
    numbers = range(0, 12_000, 300)
    some = split.without(set(range(12_000)) - set(numbers))
    features = extract_features(some, encoder, Extraction())
    rows = embedded.features[list(numbers)]
    step = rows.amax(1, keepdim=True) / 255
    # Half a step of 8 bits, and the rounding of float16.
    assert ((features - rows).abs() <= 0.5 * step + 2e-3).all()
