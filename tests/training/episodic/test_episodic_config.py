"""Settings of episodic training: sources, names, values, files."""

import dataclasses

import pytest
import torch

from infoshot import DataError, InvalidArgumentError
from infoshot.training import EpisodicConfig
from infoshot.training.config_file import read_config, write_config
from infoshot.training.episodic.episodic_config import SETTINGS, resolve_episodic_config
from infoshot.training.episodic.registry import SYSTEMS

# A value other than the default for every field.
CHANGED = {
    "epochs": 7, "episodes_per_epoch": 90, "tasks_per_step": 3, "n_way": 4, "n_shot": 2,
    "n_query": 5, "optimizer": "sgd", "learning_rate": 0.3, "backbone_rate": 0.5,
    "schedule": "cosine", "drops": [0.25], "drop_factor": 0.5, "momentum": 0.8, "nesterov": True,
    "weight_decay": 5e-4, "crop_area": 0.2, "crop_aspect": [0.5, 2.0], "jitter": 0, "flip": False,
    "val_tasks": 9, "val_shots": 3, "seed": 3, "head.temperature": 10, "head.per_dimension": True,
}  # fmt: skip


def _resolve(*sources, system="protonet", **settings):
    return resolve_episodic_config(system, "conv4", *sources, settings=settings or None)


def test_every_field_can_be_set_and_read_back(tmp_path):
    head = {name for name in CHANGED if name.startswith("head.")}
    assert set(CHANGED) - head == set(SETTINGS)
    config = _resolve(**CHANGED)
    expected = {"backbone": "conv4", "system": "protonet", **CHANGED}
    assert config.to_json() == expected
    default = _resolve().to_json()
    assert all(default[name] != value for name, value in CHANGED.items())
    write_config(tmp_path / "config.toml", config)
    assert read_config(tmp_path / "config.toml", (*CHANGED, "system")) == expected
    assert _resolve(tmp_path / "config.toml").to_json() == expected
    assert _resolve(config) == config


def test_defaults_are_those_of_the_closer_look():
    for name in ("protonet", "matchnet"):
        config = _resolve(system=name)
        assert config.epochs * config.episodes_per_epoch == 60_000
        assert (config.n_way, config.n_shot, config.n_query) == (5, 1, 16)
        assert (config.optimizer, config.learning_rate, config.weight_decay) == ("adam", 1e-3, 0)
        assert (config.tasks_per_step, config.backbone_rate) == (1, 1)
        assert [config.learning_rate_at(epoch) for epoch in (0, 59)] == [1e-3, 1e-3]
        assert config.shots_of_validation() == 1
    assert _resolve(n_shot=5).shots_of_validation() == 5


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_published_settings_are_valid(system):
    config = resolve_episodic_config(system.name, "resnet12")
    stored = config.to_json()
    for name, value in system.settings.items():
        assert stored[name] == (list(value) if isinstance(value, tuple) else value)
    assert system.needs_init or config.backbone_rate > 0


def test_later_sources_replace_earlier_ones(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("epochs = 5\nmomentum = 0.5\nn_query = 4\n[head]\ntemperature = 3.0\n")
    config = resolve_episodic_config(
        "protonet", "conv4", path, {"epochs": 6, "seed": None}, {"n_query": 2}
    )
    assert (config.epochs, config.momentum, config.n_query, config.seed) == (6, 0.5, 2, 0)
    assert config.head == {"temperature": 3.0, "per_dimension": False}


def test_head_for_a_number_of_classes_gets_that_of_the_episodes():
    name = "tests.heads:Linear"
    assert _resolve(system=name, n_way=3).head == {"n_way": 3}
    assert _resolve(system=name).head == {"n_way": 5}
    assert _resolve(system=name, **{"head.n_way": 4}).head == {"n_way": 4}


def test_random_numbers_of_the_caller_are_kept():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    _resolve(system="tests.heads:Linear")
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 3}, r"Unknown training setting 'epoch'. Did you mean 'epochs'\?"),
        ({"head.temperatures": 3}, r"'head.temperatures'. Did you mean 'head.temperature'\?"),
        ({"head.temperature": 0}, "protonet: temperature must be a finite number above 0; got 0"),
        ({"batch_size": 3}, "Unknown training setting 'batch_size'"),
        ({"tasks_per_step": 0}, "tasks_per_step must be a whole number of at least 1; got 0"),
        ({"episodes_per_epoch": 0}, "episodes_per_epoch must be a whole number of at least 1"),
        ({"n_way": 1}, "n_way must be a whole number of at least 2; got 1"),
        ({"n_shot": 0}, "n_shot must be a whole number of at least 1; got 0"),
        ({"n_query": 1.5}, "n_query must be a whole number of at least 1; got 1.5"),
        ({"val_shots": 0}, "val_shots must be a whole number of at least 1; got 0"),
        ({"optimizer": "rmsprop"}, "optimizer must be one of 'sgd', 'adam'; got 'rmsprop'"),
        ({"backbone_rate": -1}, "backbone_rate must be a finite number of at least 0; got -1"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0; got 0"),
        ({"jitter": 2}, "jitter must be at most 1; got 2"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(InvalidArgumentError, match=message):
        _resolve(**change)


def test_settings_of_another_system_are_refused(tmp_path):
    write_config(tmp_path / "config.toml", _resolve(system="matchnet"))
    other = "config must hold settings of protonet; got those of another system"
    with pytest.raises(InvalidArgumentError, match=other):
        _resolve(tmp_path / "config.toml")
    with pytest.raises(InvalidArgumentError, match=other):
        _resolve(dataclasses.replace(_resolve(), system="matchnet"))
    (tmp_path / "own.toml").write_text("[head]\nscale = 3\n")
    with pytest.raises(DataError, match=r"own.toml: Unknown training setting 'head.scale'"):
        _resolve(tmp_path / "own.toml")


def test_batch_must_be_shared_evenly():
    with pytest.raises(InvalidArgumentError, match="tasks_per_step must be a multiple of the num"):
        EpisodicConfig(backbone="conv4", system="protonet", tasks_per_step=3).check_processes(2)
