"""TPN against the paper in NumPy, and trained together with an embedding."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from infoshot import InvalidArgumentError
from infoshot.training.episodic.tpn import Tpn
from tests.reference import systems_tpn_numpy as reference
from tests.training.episodic.embedded_head import EmbeddedHead
from tests.training.episodic.head_checks import (
    DIM,
    N_WAY,
    check_head,
    move_parameters,
    small_episodes,
)
from tests.training.episodic.synthetic_episodes import DIM as SYNTHETIC_DIM
from tests.training.episodic.synthetic_episodes import accuracy, train


def _head(**settings):
    """A head with widths near 1, for which labels reach all samples of the small episodes."""
    torch.manual_seed(0)
    head = move_parameters(Tpn(DIM, 64, **settings))
    with torch.no_grad():
        head.log_width[-1].weight.mul_(0.2)
        head.log_width[-1].bias.fill_(0.5)
    return head


def _layers(head):
    layers = [layer for layer in head.log_width if isinstance(layer, torch.nn.Linear)]
    return [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in layers]


def _arrays(episodes):
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.y_qry)
    return zip(*(part.numpy() for part in parts), strict=True)


@pytest.mark.parametrize(
    "settings", [{}, {"n_neighbours": 3}, {"n_neighbours": 5, "propagation": 0.5}]
)
def test_tpn_agrees_with_the_paper(settings):
    head, episodes = _head(**settings), small_episodes()
    with torch.no_grad():
        loss, log_p = head.loss(episodes)
    for row, (z_s, y_s, z_q, _) in zip(log_p, _arrays(episodes), strict=True):
        expected = reference.tpn(z_s, y_s, z_q, N_WAY, _layers(head), **settings)
        np.testing.assert_allclose(row.numpy(), expected[len(y_s) :], rtol=0, atol=1e-10)
        assert np.ptp(expected[len(y_s) :], axis=1).min() > 1e-3  # no row is uniform
    losses = [reference.loss(*task, N_WAY, _layers(head), **settings) for task in _arrays(episodes)]
    assert float(loss) == pytest.approx(np.mean(losses), abs=1e-10)


@pytest.mark.parametrize("settings", [{}, {"n_neighbours": 4}])
def test_head_holds_what_every_head_holds(settings):
    check_head(_head(**settings))


def test_other_numbers_of_ways_than_in_training_work():
    episodes = small_episodes()
    log_p = _head().log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 4)
    assert log_p.shape[2] == 4


def test_queries_without_a_path_to_a_label_have_equal_probabilities():
    """Two clusters that share no edge; the label of the first does not reach the second."""
    near = 0.1 * torch.arange(3 * DIM, dtype=torch.float64).sin().view(1, 3, DIM)
    z_sup, z_qry = near[:, :1], torch.cat((near[:, 1:], 30 + near), dim=1)
    log_p = _head(n_neighbours=3).log_posterior(z_sup, torch.tensor([[0]]), z_qry, 2)
    assert_close(log_p[:, 2:].exp(), torch.full((1, 3, 2), 0.5, dtype=torch.float64))
    assert (log_p[:, :2, 0] > log_p[:, :2, 1]).all()


def test_training_learns_an_embedding_through_the_linear_system():
    torch.manual_seed(0)
    head = EmbeddedHead(Tpn(SYNTHETIC_DIM, 64))
    before = accuracy(head)
    train(head, 100, 3e-3)
    assert accuracy(head) > before + 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbours": 1}, "n_neighbours must be a whole number of at least 2; got 1."),
        ({"propagation": 1.0}, "propagation must be above 0 and below 1; got 1.0."),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Tpn(DIM, 64, **settings)
