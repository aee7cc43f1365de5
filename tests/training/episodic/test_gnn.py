"""The graph network against loops in NumPy, with a known limit, and on synthetic episodes."""

import numpy as np
import pytest
import torch
from torch import nn

from infoshot import InvalidArgumentError
from infoshot.training.episodic import query_chunks
from infoshot.training.episodic.gnn import Gnn
from tests.reference import systems_gnn_numpy as reference
from tests.training.episodic.head_checks import DIM, check_head, small_episodes
from tests.training.episodic.map_head import randomise_norms
from tests.training.episodic.synthetic_episodes import DIM as TRAINING_DIM
from tests.training.episodic.synthetic_episodes import accuracy, train


def _head(n_way=3):
    torch.manual_seed(0)
    return randomise_norms(Gnn(DIM, 8, n_way=n_way, n_embedding=4, n_edge=6))


def _classify(head, episodes):
    return head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.n_way)


def test_posterior_agrees_with_loops():
    head, episodes = _head(), small_episodes()
    weights = {name: value.numpy() for name, value in head.state_dict().items()}
    with torch.no_grad():
        log_p = _classify(head, episodes)
    for task in range(3):
        given = (x[task].numpy() for x in (episodes.z_sup, episodes.y_sup, episodes.z_qry))
        expected = reference.classify(weights, *given, 3)
        np.testing.assert_allclose(log_p[task], expected, atol=1e-10)


def test_contract():
    check_head(_head(), relabels=False)  # labels are coordinates


def test_published_layers():
    head = Gnn(512, 64)
    edges = sum(
        (width + 1) * 192 + 193 * 192 + 193 * 96 + 97 * 96 + 97 + 2 * (192 + 192 + 96 + 96)
        for width in (133, 181, 229)
    )
    updates = (2 * 133 + 1) * 48 + (2 * 181 + 1) * 48 + 4 * 48
    expected = 513 * 128 + 2 * 128 + edges + updates + (2 * 229 + 1) * 5
    assert sum(parameter.numel() for parameter in head.parameters()) == expected


def test_equal_edges_vote_with_the_labels_of_the_support():
    head, episodes = _head(), small_episodes()
    for edge in head.edges:
        nn.init.zeros_(edge[-1].weight)
    nn.init.zeros_(head.output.weight)
    nn.init.zeros_(head.output.bias)
    width = head.output.in_features // 2
    with torch.no_grad():  # the labels of the neighbours, after the embedding
        head.output.weight[:, width + 4 : width + 7] = torch.eye(3)
    shares = torch.tensor([[1, 2, 3], [2, 1, 3], [3, 2, 1]]).double() / 6
    expected = shares.log_softmax(-1).unsqueeze(1).expand(-1, 7, -1)
    torch.testing.assert_close(_classify(head, episodes), expected)


def test_chunks_do_not_change_the_posterior(monkeypatch):
    head, episodes = _head(), small_episodes()
    whole = _classify(head, episodes)
    monkeypatch.setattr(query_chunks, "_MOST_VALUES", 1)  # one query of each task
    torch.testing.assert_close(_classify(head, episodes), whole)


def test_training_learns_to_propagate_labels():
    torch.manual_seed(0)
    head, task = Gnn(TRAINING_DIM, 8, n_way=3, n_embedding=8, n_edge=8), {"n_way": 3, "n_shot": 2}
    assert accuracy(head, n_tasks=50, **task) < 0.5
    train(head, 50, 0.05, n_tasks=8, **task)
    assert accuracy(head, n_tasks=50, **task) > 0.7


def test_tasks_with_another_number_of_classes_are_refused():
    head, episodes = _head(n_way=5), small_episodes()
    with pytest.raises(InvalidArgumentError, match=r"n_way must be 5 for this system.* got 3\."):
        _classify(head, episodes)
