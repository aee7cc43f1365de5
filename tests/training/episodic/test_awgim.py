"""AWGIM against a slow NumPy version, its invariances, and a short training."""

import numpy as np
import pytest
import torch
from torch import nn

from infoshot import InvalidArgumentError
from infoshot.training.episodic.awgim import Awgim
from tests.reference import systems_awgim_numpy as reference
from tests.training.episodic.head_checks import (
    DIM,
    N_TASKS,
    N_WAY,
    check_head,
    move_parameters,
    small_episodes,
)
from tests.training.episodic.synthetic_episodes import DIM as SYNTHETIC_DIM
from tests.training.episodic.synthetic_episodes import accuracy, synthetic_episodes, train

N_HEADS = 2
TERMS = {"support_weight": 0.8, "context_weight": 0.3, "query_weight": 0.6}


def _head(**settings):
    torch.manual_seed(0)
    settings = {"n_latents": 4, "n_heads": N_HEADS, "dropout": 0.0, **settings}
    return move_parameters(Awgim(DIM, 7, **settings))


def _matrices(head):
    """The parameters as the reference names them."""
    state = {name: value.numpy() for name, value in head.state_dict().items()}

    def network(name):
        return [state[f"{name}.{layer}.weight"] for layer in (1, 3)]

    def block(name):
        stacked = np.split(state[f"{name}.attention.in_proj_weight"], 3)
        return {
            **dict(zip(("queries", "keys", "values"), stacked, strict=True)),
            "output": state[f"{name}.attention.out_proj.weight"],
            "scale_1": state[f"{name}.normalise_1.weight"],
            "shift_1": state[f"{name}.normalise_1.bias"],
            "scale_2": state[f"{name}.normalise_2.weight"],
            "shift_2": state[f"{name}.normalise_2.bias"],
            "network": network(f"{name}.network"),
        }

    encoders = ("context_encoder", "attentive_encoder")
    return {
        **{name: state[f"{name}.weight"] for name in encoders},
        **{name: block(name) for name in ("context", "attentive_context", "cross")},
        **{name: network(name) for name in ("decoder", "read_context", "read_query")},
    }


def _tasks(episodes):
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.y_qry)
    return list(zip(*(part.numpy() for part in parts), strict=True))


def _classify(head, episodes):
    with torch.inference_mode():
        return head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)


def test_awgim_agrees_with_loops():
    head, episodes = _head(), small_episodes()
    log_p = _classify(head, episodes)
    for row, (x_sup, y_sup, x_qry, _) in zip(log_p, _tasks(episodes), strict=True):
        expected = reference.awgim(_matrices(head), N_HEADS, x_sup, y_sup, x_qry, N_WAY)
        np.testing.assert_allclose(row.numpy(), expected, rtol=0, atol=1e-12)


def test_training_loss_agrees_with_loops(monkeypatch):
    head, episodes = _head(**TERMS).train(), small_episodes()
    noise = torch.randn(N_TASKS, 7, N_WAY, DIM, generator=torch.Generator().manual_seed(3))
    monkeypatch.setattr(torch, "randn_like", lambda like: noise.to(like))
    loss, log_p = head.loss(episodes)
    assert log_p.shape == (N_TASKS, 7, N_WAY)
    expected = [
        reference.loss(_matrices(head), N_HEADS, task, N_WAY, tuple(TERMS.values()), draw.numpy())
        for task, draw in zip(_tasks(episodes), noise.double(), strict=True)
    ]
    assert loss.item() == pytest.approx(np.mean(expected), abs=1e-11)


def test_reading_back_does_not_move_what_is_read():
    """Context and query are constants there; a decoder of zeros leaves no other path to them."""
    head, episodes = _head(context_weight=1.0, query_weight=1.0), small_episodes()
    nn.init.zeros_(head.decoder[3].weight)
    head.loss(episodes)[0].backward()
    gradients = {name: parameter.grad for name, parameter in head.named_parameters()}
    assert not gradients["context_encoder.weight"].any()
    assert not gradients["cross.attention.in_proj_weight"].any()
    assert gradients["decoder.3.weight"].any()


def test_queries_are_classified_independently(monkeypatch):
    """Inductive: a single query is classified as among the others, and so are chunks of queries."""
    head, episodes = _head(), small_episodes()
    together = _classify(head, episodes)
    monkeypatch.setattr("infoshot.training.episodic.query_chunks._MOST_VALUES", 500)
    torch.testing.assert_close(_classify(head, episodes), together, rtol=0, atol=1e-12)
    for query in range(7):
        z_qry = episodes.z_qry[:, [query]]
        alone = head.log_posterior(episodes.z_sup, episodes.y_sup, z_qry, N_WAY)
        torch.testing.assert_close(alone, together[:, [query]], rtol=0, atol=1e-12)
    assert not head.transductive


def test_head_holds_what_every_head_holds():
    # What is read back is a constant, so that these terms have no derivative by the samples.
    check_head(_head(context_weight=0.0, query_weight=0.0))


def test_equal_classes_are_equally_likely():
    """A limiting case with a known answer: all classes have the same support."""
    head, episodes = _head(), small_episodes()
    z_sup = episodes.z_sup[:, :1].expand(-1, 6, -1)
    log_p = head.log_posterior(z_sup, episodes.y_sup, episodes.z_qry, N_WAY)
    torch.testing.assert_close(log_p, torch.full_like(log_p, -np.log(N_WAY)))


def test_test_time_is_deterministic_and_training_is_not():
    head, episodes = _head(dropout=0.5), small_episodes()
    state = torch.get_rng_state()
    assert torch.equal(_classify(head, episodes), _classify(head, episodes))
    assert torch.equal(state, torch.get_rng_state())
    head.train()
    torch.manual_seed(0)
    first, second = (head.loss(episodes)[0] for _ in range(2))
    torch.manual_seed(0)
    again, _ = head.loss(episodes)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0."),
        ({"n_latents": 10}, "n_latents must be a multiple of n_heads=4; got 10."),
        ({"query_weight": -1.0}, "query_weight must be a finite number of at least 0; got -1.0."),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Awgim(DIM, 7, **settings)


def test_training_learns_and_serves_other_ways_and_shots():
    torch.manual_seed(0)
    head = Awgim(SYNTHETIC_DIM, 5, n_latents=16, dropout=0.0)
    before = accuracy(head)
    train(head, 100, learning_rate=0.003)
    assert before < 0.3
    assert accuracy(head) > 0.65
    assert accuracy(head, n_shot=5) > accuracy(head)
    assert accuracy(head, n_way=3) > accuracy(head)
    tasks = synthetic_episodes(2, seed=0, n_way=8)
    log_p = head.log_posterior(tasks.z_sup, tasks.y_sup, tasks.z_qry, 8)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 40))
