"""Labelling with a network and a method from outside the package."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from infoshot import DataError, InvalidArgumentError, labelling
from infoshot.backbones import InputSpec, open_encoder
from infoshot.labelling import add_labels, predict

PARTS = """
from dataclasses import dataclass

import torch
from torch import nn

from infoshot.backbones import InputSpec
from infoshot.solvers import Solver, State


@dataclass(eq=False)
class Means(State):
    weights: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class NearestMean(Solver):
    sharpness: float = 10.0

    def init(self, task):
        of_class = nn.functional.one_hot(task.y_sup, task.n_way).to(task.z_sup)
        means = of_class.mT @ task.z_sup / of_class.sum(1).unsqueeze(-1)
        return Means(weights=self.sharpness * means)

    def prototypes(self, task, state):
        return state.weights

    def classify(self, z, prototypes):
        return (z @ prototypes.mT).log_softmax(-1)


class Pool(nn.Module):
    input_spec = InputSpec(crop=32, resize=36)

    def forward(self, x):
        return nn.functional.adaptive_avg_pool2d(x, 6).flatten(1)
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """The module ``my_parts``, which has a solver and a network."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "my_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("my_parts", None)


class Local(nn.Module):
    """Random weights that differ from instance to instance."""

    input_spec = InputSpec(crop=32, resize=36)

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3))

    def forward(self, x):
        return self.body(x).flatten(1)


def share_correct(labels):
    return sum(path.split("/")[-1][:3] == label for path, label in labels.items()) / len(labels)


def test_a_network_and_a_solver_by_reference(parts, label, made, tmp_path):
    own = {"backbone": "my_parts:Pool", "method": "my_parts:NearestMean"}
    result = label(tmp_path / "r", **own, settings={"sharpness": 30.0}, cache=tmp_path / "cache")
    assert share_correct(result.labels) > 0.9
    facts = json.loads((tmp_path / "r" / "run.json").read_text())
    assert facts["method"]["name"] == "my_parts:NearestMean"
    assert facts["method"]["settings"] == {"sharpness": 30.0}
    assert facts["encoder"]["backbone"] == "my_parts:Pool"
    # Each image is labelled independently of the others, so predict gives the same labels.
    again = predict(tmp_path / "r", made / "photos")
    assert {image.path: image.label for image in again} == result.labels
    for image in again:
        assert image.confidence == pytest.approx(result.confidences[image.path], abs=1e-5)
    corrected = add_labels(tmp_path / "r", {str(made / "photos" / "cat7.png"): "newt"})
    assert corrected.labels[str(made / "photos" / "cat7.png")] == "newt"


def test_objects_give_the_labels_of_their_references(parts, label, tmp_path):
    import my_parts

    named = label(tmp_path / "a", backbone="my_parts:Pool", method="my_parts:NearestMean")
    given = label(tmp_path / "b", backbone=my_parts.Pool(), method=my_parts.NearestMean())
    assert given.confidences == named.confidences
    requests = [json.loads((tmp_path / r / "run.json").read_text())["request"] for r in "ab"]
    assert requests[0] == requests[1]


def test_a_plain_module_is_an_encoder(label, made, tmp_path):
    torch.manual_seed(0)
    network = Local()
    result = label(tmp_path / "r", backbone=network, cache=tmp_path / "cache")
    assert share_correct(result.labels) > 0.6
    # Its features are cached, so corrections need no encoder.
    photo = str(made / "photos" / "cat7.png")
    assert add_labels(tmp_path / "r", {photo: "newt"}).labels[photo] == "newt"
    # New images do, and another instance has other weights.
    with pytest.raises(DataError, match="has changed since the run: its weights differ"):
        predict(tmp_path / "r", made / "photos")
    again = predict(tmp_path / "r", made / "photos", backbone=network, cache=tmp_path / "other")
    assert share_correct({image.path: image.label for image in again}) > 0.6


def test_an_encoder_object_is_needed_again_for_new_images(label, made, tmp_path):
    encoder = open_encoder(made / "weights")
    by_path = label(tmp_path / "a", cache=tmp_path / "cache")
    result = label(tmp_path / "b", backbone=encoder, cache=tmp_path / "cache")
    assert result.confidences == by_path.confidences
    assert result.images_per_second is None
    with pytest.raises(InvalidArgumentError, match="'conv4' has no pretrained weights"):
        predict(tmp_path / "b", made / "photos")
    first, second = (
        predict(tmp_path / name, made / "photos", backbone=backbone)
        for name, backbone in (("a", None), ("b", encoder))
    )
    assert first == second
    photo = tmp_path / "new.png"
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8)  # the same in every run
    Image.fromarray(noise).save(photo)
    with pytest.raises(InvalidArgumentError, match="'conv4' has no pretrained weights"):
        add_labels(tmp_path / "b", {str(photo): "newt"})
    assert not (tmp_path / "b" / "corrections.csv").exists()
    corrected = add_labels(tmp_path / "b", {str(photo): "newt"}, backbone=encoder)
    assert corrected.classes == ("cat", "dog", "eel", "newt")


def test_a_network_that_changed_is_encoded_again(label, tmp_path):
    torch.manual_seed(0)
    network = Local()
    label(tmp_path / "a", backbone=network, cache=tmp_path / "cache")
    assert (
        label(tmp_path / "b", backbone=network, cache=tmp_path / "cache").images_per_second is None
    )
    with torch.no_grad():
        network.body[0].bias.add_(0.1)
    assert label(tmp_path / "c", backbone=network, cache=tmp_path / "cache").images_per_second


def test_wrong_parts_get_one_sentence(parts, label, tmp_path):
    for arguments, message in (
        ({"method": "my_parts:Nothing"}, "the module 'my_parts' has no 'Nothing'"),
        ({"method": "no_parts:Solver"}, "the module 'no_parts' cannot be imported"),
        ({"method": "my_parts:Pool"}, "Pool must derive from"),
        ({"backbone": "my_parts:NearestMean"}, "must return a torch.nn.Module; got NearestMean."),
        ({"backbone": nn.Conv2d(3, 3, 3)}, "must give a row of floating-point numbers"),
    ):
        with pytest.raises((InvalidArgumentError, DataError)) as caught:
            label(tmp_path / "r", **arguments)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "r").exists()


def test_a_table_is_labelled_by_a_solver_of_the_user(parts, embedded):
    import my_parts

    from infoshot import FeatureTable

    rows = torch.cat([(embedded.labels == k).nonzero().flatten()[:20] for k in range(3)])
    truth = embedded.labels[rows]
    labels = truth.where(torch.arange(60) % 20 < 5, -1)
    table = FeatureTable(embedded.features[rows], labels)
    named = labelling.label_table(table, method="my_parts:NearestMean")
    assert torch.equal(
        named.labels, labelling.label_table(table, method=my_parts.NearestMean()).labels
    )
    assert (named.labels == truth[named.rows]).double().mean() > 0.8
