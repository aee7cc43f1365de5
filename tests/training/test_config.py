import pytest
import torch

from infoshot import InvalidArgumentError
from infoshot.training import TrainConfig
from infoshot.training.losses import smoothed_cross_entropy
from infoshot.training.records import EpochRecord, best_epoch


@pytest.mark.parametrize("n_classes", [2, 5, 64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_smoothing_goes_to_the_other_classes_only(n_classes, smoothing):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, n_classes, (7,), generator=generator)
    targets = torch.full((7, n_classes), smoothing / (n_classes - 1), dtype=torch.float64)
    targets[torch.arange(7), labels] = 1 - smoothing
    expected = -(targets * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(
        smoothed_cross_entropy(logits, labels, smoothing), expected, atol=1e-12, rtol=0
    )


def test_defaults_are_the_published_recipe():
    config = TrainConfig(backbone="resnet18")
    assert (config.epochs, config.images_per_step(), config.learning_rate) == (90, 256, 0.1)
    assert (config.momentum, config.weight_decay, config.label_smoothing) == (0.9, 1e-4, 0.1)
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number above 0; got -1.0"),
        ({"momentum": 1.0}, "momentum must be below 1; got 1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing must be a finite number of at least 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(InvalidArgumentError, match=message):
        TrainConfig(backbone="conv4", **change).validate()


def _records(*accuracies):
    return [
        EpochRecord(number + 1, 0.1, 1.0, 50.0, accuracy, 1.0, 100.0, 1.0)
        for number, accuracy in enumerate(accuracies)
    ]


def test_best_epoch_is_the_first_of_the_best():
    assert best_epoch(_records(40.0, 60.0, 50.0, 60.0)) == 2
    assert best_epoch(_records(None, None)) == 2
