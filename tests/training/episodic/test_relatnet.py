"""RelatNet against loops in NumPy, against concatenated pairs, and on synthetic episodes."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from infoshot import InvalidArgumentError, ShapeError
from infoshot.solvers.objective import class_means
from infoshot.training.episodic import query_chunks
from infoshot.training.episodic.relatnet import RelatNet
from tests.reference import systems_relatnet_numpy as reference
from tests.training.episodic.head_checks import DIM, check_head
from tests.training.episodic.map_head import MapHead, map_episodes, randomise_norms
from tests.training.episodic.synthetic_episodes import DIM as TRAINING_DIM
from tests.training.episodic.synthetic_episodes import accuracy, train


def _head():
    torch.manual_seed(0)
    return randomise_norms(RelatNet(3, 8))


@pytest.mark.parametrize("size", [(5, 5), (4, 9), (10, 10)], ids=str)  # two padded, one not
def test_posterior_agrees_with_loops(size):
    head, episodes = _head(), map_episodes((3, *size))
    with torch.no_grad():
        log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 3)
    weights = {name: value.numpy() for name, value in head.state_dict().items()}
    for task in range(2):
        z_sup, y_sup, z_qry = (
            x[task].numpy() for x in (episodes.z_sup, episodes.y_sup, episodes.z_qry)
        )
        expected = reference.classify(weights, z_sup, y_sup, z_qry, 3)
        np.testing.assert_allclose(log_p[task], expected, atol=1e-10)


@pytest.mark.parametrize("training", [False, True])
def test_halves_of_the_convolution_equal_concatenated_pairs(training):
    head, episodes = _head().train(training), map_episodes((3, 6, 6))
    log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 3)
    means = class_means(episodes.z_sup.flatten(2), episodes.y_sup, 3).view(2, 1, 3, 3, 6, 6)
    n_query = episodes.z_qry.shape[1]
    queries = episodes.z_qry.unsqueeze(2).expand(-1, -1, 3, -1, -1, -1)
    pairs = torch.cat((means.expand(-1, n_query, -1, -1, -1, -1), queries), dim=3)
    head.compare.padding = head.refine.padding = (1, 1)
    layers = nn.Sequential(
        head.compare, head.norm, nn.ReLU(), nn.MaxPool2d(2),
        head.refine, head.refine_norm, nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), head.score,
    )  # fmt: skip
    scores = layers(pairs.flatten(0, 2)).view(2, n_query, 3)
    torch.testing.assert_close(log_p, scores.log_softmax(-1))


def test_contract():
    check_head(MapHead(_head(), DIM, (3, 5, 5)).double())


def test_chunks_do_not_change_the_posterior(monkeypatch):
    head, episodes = _head(), map_episodes((3, 5, 5))
    whole = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 3)
    monkeypatch.setattr(query_chunks, "_MOST_VALUES", 4 * 2 * 3 * 3 * 25)  # four of 6 queries
    sizes = []
    head.norm.register_forward_hook(lambda _, given, __: sizes.append(len(given[0])))
    parts = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 3)
    torch.testing.assert_close(parts, whole)
    assert sizes == [4 * 2 * 3, 2 * 2 * 3]


def test_scores_that_ignore_the_class_give_equal_probabilities():
    head, episodes = _head(), map_episodes((3, 5, 5))
    nn.init.zeros_(head.compare.weight[:, :3])
    log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 3)
    torch.testing.assert_close(log_p, torch.full_like(log_p, -math.log(3)))


def test_training_learns_to_compare():
    torch.manual_seed(0)
    head = MapHead(RelatNet(8, 8), TRAINING_DIM, (8, 4, 4))
    assert accuracy(head, n_tasks=50) < 0.35
    train(head, 80, 0.01, n_tasks=8)
    assert accuracy(head, n_tasks=50) > 0.6


def test_small_maps_and_wrong_settings_are_refused():
    episodes = map_episodes((3, 3, 5))
    with pytest.raises(ShapeError, match=r"at least 4 x 4 positions .* got 3 x 5\. Use larger"):
        _head().log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, 3)
    with pytest.raises(InvalidArgumentError, match="n_hidden must be a whole number"):
        RelatNet(3, 8, n_hidden=0)
