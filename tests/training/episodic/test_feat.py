"""FEAT against the paper in NumPy, and on episodes in which it has something to learn."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from infoshot import InvalidArgumentError
from infoshot.training.episodic.feat import Feat
from tests.reference import systems_feat_numpy as reference
from tests.training.episodic.head_checks import (
    DIM,
    N_WAY,
    check_head,
    move_parameters,
    small_episodes,
)
from tests.training.episodic.synthetic_episodes import DIM as SYNTHETIC_DIM
from tests.training.episodic.synthetic_episodes import accuracy, synthetic_episodes, train


@pytest.fixture
def head():
    return move_parameters(Feat(DIM, 64))


def _numbers(head):
    values = {
        "query": head.query.weight,
        "key": head.key.weight,
        "value": head.value.weight,
        "output": head.output.weight,
        "output_bias": head.output.bias,
        "gain": head.norm.weight,
        "offset": head.norm.bias,
    }
    return {name: value.detach().numpy() for name, value in values.items()}


def _arrays(episodes):
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.y_qry)
    return zip(*(part.numpy() for part in parts), strict=True)


def test_feat_agrees_with_the_paper(head):
    episodes = small_episodes()
    with torch.no_grad():
        log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)
        prototypes = head.prototypes(episodes.z_sup, episodes.y_sup, N_WAY)
    for task, (z_s, y_s, z_q, _) in enumerate(_arrays(episodes)):
        expected, adapted = reference.feat(z_s, y_s, z_q, N_WAY, _numbers(head))
        np.testing.assert_allclose(log_p[task].numpy(), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(prototypes[task].numpy(), adapted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("weight", "divisor"), [(0.1, 32.0), (1.0, 64.0), (0.0, 1.0)])
def test_loss_agrees_with_the_paper(weight, divisor):
    settings = {"regulariser_weight": weight, "regulariser_temperature": 2 / divisor}
    head = move_parameters(Feat(DIM, 64, **settings))
    episodes = small_episodes()
    expected = [
        reference.loss(*task, N_WAY, _numbers(head), weight=weight, divisor=divisor)
        for task in _arrays(episodes)
    ]
    with torch.no_grad():
        found, log_p = head.loss(episodes)
    assert float(found) == pytest.approx(np.mean(expected), abs=1e-12)
    assert_close(log_p, head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY))


def test_head_holds_what_every_head_holds(head):
    check_head(head)


def test_other_numbers_of_ways_than_in_training_work(head):
    episodes = small_episodes()
    y_sup = episodes.y_sup.clamp(max=1)
    assert head.log_posterior(episodes.z_sup, y_sup, episodes.z_qry, 2).shape[2] == 2


def test_without_output_the_normalised_class_means_classify(head):
    """With W_o = 0, b_o = 0 only layer normalisation remains; means of variance 1 stay."""
    torch.nn.init.zeros_(head.output.weight)
    torch.nn.init.zeros_(head.output.bias)
    torch.nn.init.ones_(head.norm.weight)
    torch.nn.init.zeros_(head.norm.bias)
    means = torch.nn.functional.layer_norm(small_episodes().z_sup[:, :N_WAY], (DIM,), eps=0.0)
    labels = torch.arange(N_WAY).expand(len(means), -1)
    assert_close(head.prototypes(means, labels, N_WAY), means, rtol=0, atol=1e-4)


def test_dropout_acts_in_training_only(head):
    episodes = small_episodes()
    arguments = (episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)
    assert torch.equal(head.log_posterior(*arguments), head.log_posterior(*arguments))
    head.train()
    assert not torch.equal(head.log_posterior(*arguments), head.log_posterior(*arguments))


def test_training_learns_which_directions_matter():
    torch.manual_seed(0)
    head = Feat(SYNTHETIC_DIM, 64, temperature=0.5, regulariser_temperature=0.5, dropout=0.1)
    before = accuracy(head)
    nearest = _nearest_mean_accuracy()
    train(head, 150, 3e-3)
    assert accuracy(head) > max(before, nearest) + 0.05


def _nearest_mean_accuracy():
    episodes = synthetic_episodes(200, seed=1)
    distances = torch.cdist(episodes.z_qry, episodes.z_sup)
    return float((distances.argmin(-1) == episodes.y_qry).double().mean())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0}, "temperature must be a finite number above 0; got 0."),
        ({"regulariser_weight": -1}, "regulariser_weight must be a finite number of at least 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0."),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Feat(DIM, 64, **settings)
