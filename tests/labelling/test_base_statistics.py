"""Runs whose encoder has known base classes: features are whitened, later in the same way."""

import dataclasses
import warnings

import pytest
import torch

from infoshot import DataError
from infoshot.core.tensor_file import format_tensors, parse_tensors
from infoshot.core.types import BaseStatistics
from infoshot.features import unit_length
from infoshot.features.normalize import whiten
from infoshot.labelling import add_labels, predict
from infoshot.labelling.classifier import Classifier, load_classifier
from infoshot.labelling.run_folder import read_run
from infoshot.labelling.suggestions import read_cached_features

DIM = 64  # of conv4


@pytest.fixture
def base(monkeypatch):
    """Statistics of the base classes of every encoder."""
    generator = torch.Generator().manual_seed(0)
    mean, scatter = torch.rand(DIM, generator=generator), torch.randn(9, DIM, generator=generator)
    known = BaseStatistics(mean, scatter)
    monkeypatch.setattr("infoshot.labelling.classifier.find_statistics", lambda _: known)
    return known


@pytest.fixture
def run(base, label, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of random statistics nothing is expected
        return label(tmp_path / "run").folder


def expected_centres(base, run):
    """Class means of the examples of a run, whitened by hand."""
    examples, _ = read_cached_features(read_run(run))
    z = 0.8 * unit_length(whiten(examples, base))
    return unit_length(torch.stack([z[k * 7 : k * 7 + 7].mean(0) for k in range(3)]))


def test_examples_and_photos_are_whitened(base, run):
    torch.testing.assert_close(load_classifier(run).centres, expected_centres(base, run))


def test_new_images_are_whitened_by_the_statistics_of_the_run(run, made, monkeypatch):
    before = {image.path: image for image in predict(run, made / "photos")}
    monkeypatch.setattr("infoshot.labelling.classifier.find_statistics", lambda _: None)
    after = {image.path: image for image in predict(run, made / "photos")}
    assert after == before
    classifier = load_classifier(run)
    _, photos = read_cached_features(read_run(run))
    plain = dataclasses.replace(classifier, base=None)
    assert not torch.allclose(classifier.probabilities(photos), plain.probabilities(photos))


def test_solving_again_whitens_too(base, run, made):
    photo = str(made / "photos" / "cat7.png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        add_labels(run, {photo: "cat"})
    found = load_classifier(run)
    assert torch.equal(found.base.scatter, base.scatter)
    assert found.centres.norm(dim=1).allclose(torch.ones(3))


def test_methods_of_plain_features_do_not_use_it(base, label, tmp_path):
    folder = label(tmp_path / "run", method="prototype").folder
    assert load_classifier(folder).base is None


def test_a_classifier_of_an_earlier_version_has_no_statistics(run):
    path = run / "classifier.safetensors"
    content = load_classifier(run).to_bytes()
    tensors, facts = parse_tensors(content, kind="classifier", path=path)
    old = {name: tensors[name] for name in ("weights", "centres")}
    facts = {**facts, "format": "infoshot.label.classifier/2"}
    facts.pop("sha256")
    path.write_bytes(format_tensors(old, facts, kind="classifier"))
    assert load_classifier(path).base is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_scatter": None}, "base_mean and base_scatter must be given together"),
        ({"base_mean": torch.ones(3)}, "base_mean and base_scatter must have 64 columns"),
        ({"base_mean": torch.full((DIM,), torch.inf)}, "base_mean must be finite numbers"),
        ({"base_scatter": torch.ones(2, DIM, dtype=torch.int64)}, "base_scatter must be finite"),
    ],
)
def test_damaged_statistics_are_refused(run, tmp_path, change, message):
    tensors, facts = parse_tensors(load_classifier(run).to_bytes(), kind="classifier", path=run)
    tensors |= change
    tensors = {name: values for name, values in tensors.items() if values is not None}
    facts = {**facts, "format": "infoshot.label.classifier/2"}  # the last without a digest
    facts.pop("sha256")
    path = tmp_path / "classifier.safetensors"
    path.write_bytes(format_tensors(tensors, facts, kind="classifier"))
    with pytest.raises(DataError, match=message):
        load_classifier(path)


def test_the_file_of_a_classifier_is_complete(run):
    found = load_classifier(run)
    assert isinstance(found, Classifier)
    again = parse_tensors(found.to_bytes(), kind="classifier", path=run)
    assert set(again[0]) == {"weights", "centres", "base_mean", "base_scatter"}
    assert again[1]["format"] == "infoshot.label.classifier/4"
