"""SIB against the paper in NumPy, and on episodes in which the queries help."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from infoshot import InvalidArgumentError
from infoshot.solvers.objective import class_cosines, class_means
from infoshot.training.episodic.sib import Sib
from tests.reference import systems_sib_numpy as reference
from tests.training.episodic.head_checks import (
    DIM,
    N_WAY,
    check_head,
    move_parameters,
    small_episodes,
)
from tests.training.episodic.synthetic_episodes import DIM as SYNTHETIC_DIM
from tests.training.episodic.synthetic_episodes import accuracy, train

RATE = 0.05  # fifty times the published one: few queries, and errors must show


def _head(**settings):
    torch.manual_seed(0)
    return move_parameters(Sib(DIM, 64, n_way=N_WAY, **{"learning_rate": RATE, **settings}))


def _numbers(head):
    pairs = [
        (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for layer in head.score_gradient
        if len(list(layer.parameters()))
    ]
    return {
        "scale": head.scale.item(),
        "channel_weight": head.channel_weight.detach().numpy(),
        "linear": pairs[0::2],
        "norm": pairs[1::2],
    }


def test_sib_agrees_with_the_paper():
    head, episodes = _head(), small_episodes()
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry)
    with torch.no_grad():
        log_p = head.log_posterior(*parts, N_WAY)
    for row, *task in zip(log_p, *(part.numpy() for part in parts), strict=True):
        expected = reference.sib(*task, N_WAY, _numbers(head), learning_rate=RATE)
        np.testing.assert_allclose(row.numpy(), expected, rtol=0, atol=1e-10)


def test_head_holds_what_every_head_holds():
    check_head(_head(), relabels=False)


def test_relabelling_classes_and_the_network_alike_permutes_the_columns():
    head, episodes = _head(), small_episodes()
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry)
    log_p = head.log_posterior(*parts, N_WAY)
    names = torch.tensor([2, 0, 1])
    order = names.argsort()
    with torch.no_grad():
        first, last = head.score_gradient[0], head.score_gradient[-1]
        first.weight.copy_(first.weight[:, order])
        last.weight.copy_(last.weight[order])
        last.bias.copy_(last.bias[order])
    renamed = head.log_posterior(parts[0], names[parts[1]], parts[2], N_WAY)
    assert_close(renamed[..., names], log_p, rtol=0, atol=1e-12)


def test_without_synthetic_gradients_the_cosines_of_class_means_classify():
    head, episodes = _head(), small_episodes()
    torch.nn.init.zeros_(head.score_gradient[-1].weight)
    torch.nn.init.zeros_(head.score_gradient[-1].bias)
    torch.nn.init.ones_(head.channel_weight)
    z_sup = torch.nn.functional.normalize(episodes.z_sup, dim=-1)
    means = class_means(z_sup, episodes.y_sup, N_WAY)
    expected = (head.scale * class_cosines(episodes.z_qry, means).mT).log_softmax(-1)
    log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)
    assert_close(log_p, expected, rtol=0, atol=1e-12)


def test_a_single_query_is_classified():
    episodes = small_episodes()
    log_p = _head().log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry[:, :1], N_WAY)
    assert log_p.isfinite().all()


def test_training_learns_from_queries():
    torch.manual_seed(0)
    head = Sib(SYNTHETIC_DIM, 64, learning_rate=1e-2)
    shots = {"n_query": 15}
    before = accuracy(head, **shots)
    train(head, 100, 1e-2, n_tasks=16, **shots)
    assert accuracy(head, **shots) > before + 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_way": 1}, "n_way must be a whole number of at least 2; got 1."),
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1; got 0."),
        ({"learning_rate": -1}, "learning_rate must be a finite number above 0; got -1."),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Sib(DIM, 64, **settings)


def test_another_number_of_ways_is_refused():
    episodes = small_episodes()
    message = "n_way must be 3 for this system, which has weights for 3 classes of a task; got 4."
    with pytest.raises(InvalidArgumentError, match=message):
        _head().log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 4)
