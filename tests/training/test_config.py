import dataclasses
import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.training import TrainConfig
from infoshot.training.config_file import SETTINGS, read_config, resolve_config, write_config
from infoshot.training.records import EpochRecord, best_epoch

# A value other than the default for every field.
CHANGED = {
    "epochs": 7, "batch_size": 12, "learning_rate": 0.3, "schedule": "cosine", "drops": [0.25],
    "drop_factor": 0.5, "momentum": 0.8, "nesterov": True, "weight_decay": 5e-4,
    "train_crop": 64, "label_smoothing": 0, "crop_area": 0.2, "crop_aspect": [0.5, 2.0],
    "jitter": 0, "flip": False,
    "rotation_weight": 0.5, "mixup": 2.0, "mixup_start": 0.5,
    "distillation_weight": 0.3, "distillation_temperature": 2,
    "classifier": "cosine", "classifier_scale": 30, "classifier_scaling": "fixed", "margin": -0.02,
    "val_tasks": 9, "seed": 3,
}  # fmt: skip


@pytest.mark.parametrize("n_classes", [2, 5, 64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_smoothing_is_spread_over_the_wrong_classes(n_classes, smoothing):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, n_classes, (7,), generator=generator)
    targets = torch.full((7, n_classes), smoothing / (n_classes - 1), dtype=torch.float64)
    targets[torch.arange(7), labels] = 1 - smoothing
    expected = -(targets * logits.log_softmax(1)).sum(1).mean()
    config = TrainConfig(backbone="conv4", label_smoothing=smoothing)
    loss = cross_entropy(logits, labels, label_smoothing=config.smoothing_over_all(n_classes))
    torch.testing.assert_close(loss, expected, atol=1e-12, rtol=0)


def test_smoothing_leaves_the_true_class_the_largest_target():
    config = TrainConfig(backbone="conv4", label_smoothing=0.6)
    assert config.smoothing_over_all(3) == pytest.approx(0.9)
    with pytest.raises(InvalidArgumentError, match=r"at most 0.5 for 2 classes; got 0.6"):
        config.smoothing_over_all(2)


def test_defaults_are_the_published_recipe():
    config = TrainConfig(backbone="resnet18")
    assert (config.epochs, config.images_per_step(), config.learning_rate) == (90, 256, 0.1)
    assert (config.momentum, config.weight_decay, config.label_smoothing) == (0.9, 1e-4, 0.1)
    assert (config.schedule, config.nesterov, config.flip) == ("step", False, True)
    assert (config.crop_area, config.crop_aspect, config.jitter) == (0.08, (3 / 4, 4 / 3), 0.4)
    rates = [config.learning_rate_at(epoch) for epoch in range(90)]
    assert rates[:45] == [0.1] * 45
    assert rates[45:66] == pytest.approx([0.01] * 21)
    assert rates[66:] == pytest.approx([0.001] * 24)
    assert TrainConfig(backbone="wrn28-10").images_per_step() == 128


@pytest.mark.parametrize(("epochs", "changes"), [(30, [0, 15, 22]), (3, [0, 2]), (1, [0])])
def test_shorter_schedules_drop_at_the_same_shares(epochs, changes):
    config = TrainConfig(backbone="conv4", epochs=epochs)
    rates = [config.learning_rate_at(epoch) for epoch in range(epochs)]
    assert [rates.index(rate) for rate in sorted(set(rates), reverse=True)] == changes
    assert rates[0] == 0.1


def test_drop_factor_multiplies_at_each_drop():
    config = TrainConfig(backbone="conv4", epochs=4, drops=(0.25, 0.5), drop_factor=0.5)
    assert [config.learning_rate_at(epoch) for epoch in range(4)] == [0.1, 0.05, 0.025, 0.025]


def test_cosine_schedule_follows_its_formula():
    config = TrainConfig(backbone="conv4", epochs=6, learning_rate=0.2, schedule="cosine")
    rates = [config.learning_rate_at(epoch) for epoch in range(6)]
    assert rates == pytest.approx([0.1 * (1 + math.cos(math.pi * e / 6)) for e in range(6)])
    assert rates[0] == 0.2
    assert rates[3] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
        ({"epochs": "many"}, "epochs must be a whole number of at least 1; got 'many'"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number above 0; got -1.0"),
        ({"schedule": "linear"}, "schedule must be one of 'step', 'cosine'; got 'linear'"),
        ({"drops": (0.5, 1.5)}, "drops must be above 0 and below 1; got 1.5"),
        ({"drop_factor": 2}, "drop_factor must be at most 1; got 2"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1; got 1.0"),
        ({"nesterov": "yes"}, "nesterov must be one of True, False; got 'yes'"),
        ({"nesterov": True, "momentum": 0}, "nesterov must be False without momentum"),
        ({"weight_decay": math.inf}, "weight_decay must be a finite number of at least 0; got inf"),
        ({"label_smoothing": -0.1}, "label_smoothing must be at least 0 and below 1; got -0.1"),
        ({"classifier": "euclid"}, "classifier must be one of 'linear', 'cosine'; got 'euclid'"),
        ({"classifier_scale": 0}, "classifier_scale must be a finite number above 0; got 0"),
        ({"classifier_scaling": "no"}, "classifier_scaling must be one of 'fixed', 'learned', 'p"),
        ({"margin": 2}, "margin must be between -1 and 1; got 2"),
        ({"margin": -0.1}, "margin must be 0 unless classifier is 'cosine' and classifier_scal"),
        ({"margin": 0.1, "classifier": "cosine"}, "classifier_scaling 'fixed'; got 0.1"),
        ({"train_crop": 8}, "train_crop must be a whole number of at least 16; got 8"),
        ({"train_crop": 64.5}, "train_crop must be a whole number of at least 16; got 64.5"),
        ({"train_crop": 10**6}, "train_crop must be at most 4096; got 1000000"),
        ({"crop_area": 0}, "crop_area must be a finite number above 0; got 0"),
        ({"crop_area": 1.1}, "crop_area must be at most 1; got 1.1"),
        ({"crop_aspect": (2.0, 0.5)}, r"crop_aspect must be the smallest and .* got \[2.0, 0.5\]"),
        ({"crop_aspect": (0.5,)}, r"crop_aspect must be the smallest and .* got \[0.5\]"),
        ({"jitter": 1.5}, "jitter must be at most 1; got 1.5"),
        ({"flip": None}, "flip must be one of True, False; got None"),
        ({"val_tasks": 0}, "val_tasks must be a whole number of at least 1; got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(InvalidArgumentError, match=message):
        TrainConfig(backbone="conv4", **change).validate()


def test_every_field_can_be_set():
    assert set(CHANGED) == set(SETTINGS)
    resolved = resolve_config("conv4", settings=CHANGED)
    assert resolved.to_json() == {"backbone": "conv4", **CHANGED}
    default = TrainConfig(backbone="conv4")
    assert all(getattr(resolved, name) != getattr(default, name) for name in SETTINGS)


@pytest.mark.parametrize("settings", [{}, CHANGED])
def test_written_configuration_is_read_back(tmp_path, settings):
    config = resolve_config("conv4", settings=settings)
    write_config(tmp_path / "config.toml", config)
    expected = {name: value for name, value in config.to_json().items() if value is not None}
    assert read_config(tmp_path / "config.toml") == expected
    again = resolve_config("conv4", tmp_path / "config.toml")
    assert again == dataclasses.replace(config, batch_size=config.images_per_step())
    assert resolve_config("resnet18", str(tmp_path / "config.toml")).backbone == "resnet18"


def test_settings_override_options_and_these_the_file(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("epochs = 5\nlearning_rate = 0.5\nmomentum = 0.5\n")
    options = {"epochs": 6, "learning_rate": 0.6, "batch_size": None}
    resolved = resolve_config("conv4", path, options, {"epochs": 7})
    assert (resolved.epochs, resolved.learning_rate, resolved.momentum) == (7, 0.6, 0.5)
    assert resolved.batch_size is None
    assert resolved.weight_decay == 1e-4
    from_object = TrainConfig(backbone="resnet12", epochs=5, learning_rate=0.5, momentum=0.5)
    assert resolve_config("conv4", from_object, options, {"epochs": 7}) == resolved


def test_single_drop_needs_no_list():
    assert resolve_config("conv4", settings={"drops": 0.8}).drops == (0.8,)
    assert resolve_config("conv4", settings={"drops": []}).learning_rate_at(89) == 0.1


def test_unknown_settings_are_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(
        InvalidArgumentError, match=r"Unknown training setting 'wieght_decay'. .* 'weight_decay'\?"
    ):
        resolve_config("conv4", settings={"wieght_decay": 1})
    path = tmp_path / "recipe.toml"
    path.write_text("crop_size = 0.2\n")
    with pytest.raises(
        DataError, match=r"recipe.toml: Unknown training setting 'crop_size'. Did you mean 'crop_a"
    ):
        resolve_config("conv4", path)


def test_unreadable_configuration_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none.toml: cannot be read \(No such file"):
        resolve_config("conv4", tmp_path / "none.toml")
    path = tmp_path / "recipe.toml"
    path.write_text("epochs 5")
    with pytest.raises(DataError, match=r"recipe.toml: not a TOML file \(Expected '='"):
        resolve_config("conv4", path)


def test_published_checkpoint_has_the_default_settings():
    """Fields that did not exist when the run was made count as having their defaults."""
    folder = Path(__file__).parents[2] / "results" / "training" / "resnet18" / "checkpoint"
    checkpoint = load_checkpoint(folder)
    stored = {name: value for name, value in checkpoint.config.items() if name in SETTINGS}
    assert "crop_area" not in stored
    default = TrainConfig(backbone="resnet18")
    assert resolve_config("resnet18", settings=stored).to_json() == default.to_json()


def _records(*accuracies):
    return [
        EpochRecord(number + 1, 0.1, 1.0, 50.0, accuracy, 1.0, 100.0, 1.0)
        for number, accuracy in enumerate(accuracies)
    ]


def test_best_epoch_is_the_first_of_the_best():
    assert best_epoch(_records(40.0, 60.0, 50.0, 60.0)) == 2
    assert best_epoch(_records(None, None)) == 2
