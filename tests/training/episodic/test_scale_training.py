"""Systems that train scales and shifts of a base network."""

import pytest
import torch

from infoshot import InvalidArgumentError
from infoshot.backbones import Encoder, make_backbone
from infoshot.backbones.backbone import weights_digest
from infoshot.core.progress import Progress
from infoshot.images import open_dataset
from infoshot.training import base_splits, load_system, load_training_images, run_episodes
from infoshot.training.episodic.episodic_config import resolve_episodic_config
from infoshot.training.episodic.registry import SYSTEMS, System
from tests.heads import Linear
from tests.image_folders import make_folders

NET = "tests.heads:TinyNet"
SETTINGS = {
    "epochs": 2, "episodes_per_epoch": 8, "tasks_per_step": 2, "n_way": 3, "n_query": 2,
    "val_tasks": 10, "learning_rate": 0.01,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _scaled(monkeypatch):
    scaled = System(name="scaled", title="Scaled", summary="x", reference="x", head=Linear,
                    trains="scale-and-shift", starts_from="base-network")  # fmt: skip
    monkeypatch.setattr(
        "infoshot.training.episodic.registry.SYSTEMS", {**SYSTEMS, "scaled": scaled}
    )


@pytest.fixture
def images(tmp_path):
    splits = base_splits(open_dataset("folder", make_folders(tmp_path / "data", 5, size=(20, 20))))
    return load_training_images("folder", *splits, make_backbone(NET).input_spec, n_workers=1)


@pytest.fixture
def init():
    torch.manual_seed(7)
    backbone = make_backbone(NET).eval()
    for layer in (backbone.layers[1], backbone.layers[4]):
        layer.running_mean.uniform_(-0.1, 0.1)
    return Encoder(NET, backbone, weights_digest(backbone))


class StoppedError(Exception):
    pass


class Stop(Progress):
    def say(self, sentence):
        raise StoppedError


def test_checkpoint_is_an_ordinary_backbone_and_resumes(images, init, tmp_path):
    config = resolve_episodic_config("scaled", NET, settings=SETTINGS)
    before = {name: value.clone() for name, value in init.backbone.state_dict().items()}
    run_episodes(images, config, tmp_path / "whole", init=init)
    whole = load_system(tmp_path / "whole" / "last")
    # A kernel is multiplied by one number; batch normalisation moves by the shift only.
    ratio = whole.encoder.backbone.layers[0].weight / before["layers.0.weight"]
    torch.testing.assert_close(ratio, ratio[..., :1, :1].expand_as(ratio), atol=1e-4, rtol=1e-4)
    assert (ratio - 1).abs().max() > 1e-3
    after = whole.encoder.backbone.state_dict()
    assert (after["layers.1.running_mean"] - before["layers.1.running_mean"]).abs().max() > 1e-3
    for name in ("layers.1.weight", "layers.1.bias", "layers.1.running_var"):
        assert torch.equal(after[name], before[name])
    with pytest.raises(StoppedError):
        run_episodes(images, config, tmp_path / "part", init=init, progress=Stop())
    run_episodes(images, config, tmp_path / "part", init=init)
    assert load_system(tmp_path / "part" / "last").digest == whole.digest


def test_network_that_cannot_be_folded_is_refused_first(images, tmp_path):
    config = resolve_episodic_config("scaled", "tests.heads:BareNet", settings=SETTINGS)
    with pytest.raises(InvalidArgumentError, match="or shifts cannot be folded; got BareNet"):
        run_episodes(images, config, tmp_path)
