"""The weights in ``results/`` are those of the features in the package, rounded to 8 bits.

The features were computed with the same weights in float16.
"""

from pathlib import Path

import pytest
import torch

from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.features import read_features
from infoshot.features.extract import Extraction, split_provenance
from infoshot.features.normalize import find_statistics
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


def test_features_record_the_same_weights(embedded):
    val = read_features(RUN / "mini_val_resnet18.safetensors")
    for table, split, n_images in ((embedded, "test", 12_000), (val, "val", 9_600)):
        assert table.provenance["weights_sha256"].startswith("bfc4c9c7")
        assert table.provenance["split"] == split
        assert table.features.shape == (n_images, 512)
        assert list(table.class_names) == _classes(split)
    assert torch.equal(val.base_mean, embedded.base_mean)


def test_both_precisions_have_the_same_base_statistics(encoder, embedded):
    rounded = find_statistics(encoder.digest)
    own = find_statistics(embedded.provenance["weights_sha256"])
    torch.testing.assert_close(rounded.mean, own.mean, rtol=0.01, atol=1e-3)
    one, other = (base.scatter.T @ base.scatter for base in (rounded, own))
    assert (one - other).norm() < 0.01 * other.norm()


def test_weights_and_images_give_the_features(encoder, embedded, mini_imagenet):
    split = open_dataset("mini-imagenet", mini_imagenet).split("test")
    about = split_provenance("mini-imagenet", split, encoder, Extraction())
    del about["infoshot"]  # the version that computed them
    about["weights_sha256"] = embedded.provenance["weights_sha256"]  # before they were rounded
    # They were computed before the decoding of large JPEGs was part of the record.
    about["transform"] = "resize 96, crop 84, bilinear"
    assert about.items() <= embedded.provenance.items()
    numbers = range(0, 12_000, 300)
    some = split.without(set(range(12_000)) - set(numbers))
    features = extract_features(some, encoder, Extraction())
    rows = embedded.features[list(numbers)]
    assert torch.cosine_similarity(features, rows).min() > 0.999
