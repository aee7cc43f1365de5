"""LEO against complex steps in NumPy, its invariances, and a short training."""

import numpy as np
import pytest
import torch
from torch import nn

from infoshot import InvalidArgumentError
from infoshot.training.episodic.leo import Leo
from tests.reference import systems_leo_numpy as reference
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

N_LATENTS = 4
PENALTIES = {
    "kl_weight": 0.3, "latent_penalty_weight": 0.7, "l2_weight": 0.05, "orthogonality_weight": 0.2,
}  # fmt: skip


def _head(**settings):
    torch.manual_seed(0)
    settings = {"n_latents": N_LATENTS, "dropout": 0.0, "latent_rate": 0.3, **settings}
    return move_parameters(Leo(DIM, 7, **settings))


def _matrices(head):
    """The parameters as the reference names them."""
    state = {name: value.numpy() for name, value in head.state_dict().items()}
    return {
        "encoder": state["encoder.weight"],
        "relation": [state[f"relation.{layer}.weight"] for layer in (0, 2, 4)],
        "decoder": state["decoder.weight"],
        "latent_rates": state["latent_rates"],
        "weight_rates": state["weight_rates"],
    }


def _tasks(episodes):
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.y_qry)
    return list(zip(*(part.numpy() for part in parts), strict=True))


def _classify(head, episodes):
    with torch.inference_mode():
        return head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)


def test_leo_agrees_with_complex_steps():
    head, episodes = _head(), small_episodes()
    log_p = _classify(head, episodes)
    for row, (x_sup, y_sup, x_qry, _) in zip(log_p, _tasks(episodes), strict=True):
        expected = reference.leo(_matrices(head), x_sup, y_sup, x_qry, N_WAY)
        np.testing.assert_allclose(row.numpy(), expected, rtol=0, atol=1e-12)


def test_training_loss_agrees_with_complex_steps(monkeypatch):
    """With given noise; some scales are at their smallest value, others are not."""
    head, episodes = _head(**PENALTIES).train(), small_episodes()
    generator = torch.Generator().manual_seed(3)
    draws = []

    def draw(like):
        draws.append(torch.randn(like.shape, generator=generator, dtype=like.dtype))
        return draws[-1]

    monkeypatch.setattr(torch, "randn_like", draw)
    loss, log_p = head.loss(episodes)
    assert log_p.shape == (N_TASKS, 7, N_WAY)
    assert len(draws) == 7  # of the codes, and of the weights before and after each of five steps
    noises = [iter([draw[task].numpy() for draw in draws]) for task in range(N_TASKS)]
    weights = [0.3, 0.7, 0.05, 0.2]
    x_sup, y_sup, _, _ = _tasks(episodes)[0]
    raw = reference.encode(_matrices(head), reference.unit(x_sup), y_sup, N_WAY)[:, N_LATENTS:]
    assert (raw > 0).any()
    assert (raw < 0).any()
    expected = reference.loss(_matrices(head), _tasks(episodes), N_WAY, weights, noises)
    assert loss.item() == pytest.approx(expected, abs=1e-11)


def test_gradient_passes_through_the_inner_steps():
    """Finite differences in one number of every parameter, in evaluation mode."""
    # The stopped gradient of the code penalty is no derivative; the term is left out.
    head, episodes = _head(**{**PENALTIES, "latent_penalty_weight": 0.0}), small_episodes()
    head.loss(episodes)[0].backward()
    for parameter in head.parameters():
        place = tuple(size // 2 for size in parameter.shape)
        values = []
        with torch.no_grad():
            for h in (1e-5, -2e-5):
                parameter[place] += h
                values.append(float(head.loss(episodes)[0]))
            parameter[place] += 1e-5
        difference = (values[0] - values[1]) / 2e-5
        assert float(parameter.grad[place]) == pytest.approx(difference, rel=1e-5, abs=1e-8)
        assert difference != 0


def test_penalty_of_the_codes_moves_their_start_only():
    head, episodes = _head(kl_weight=0.0, l2_weight=0.0, orthogonality_weight=0.0), small_episodes()
    gradients = []
    for weight in (0.0, 1.0):
        head.latent_penalty_weight = weight
        head.zero_grad()
        head.loss(episodes)[0].backward()
        gradients.append({name: p.grad.clone() for name, p in head.named_parameters()})
    without, with_penalty = gradients
    for name in without:
        depends = not torch.equal(without[name], with_penalty[name])
        assert depends == name.startswith(("encoder", "relation"))


def test_head_holds_what_every_head_holds():
    check_head(_head(latent_penalty_weight=0.0))  # its stopped gradient is no derivative


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


def test_one_step_from_zero_gives_differences_of_class_sums():
    """A limiting case in closed form: zero codes decode to zero weights, which give p = 1/K."""
    head, episodes = _head(n_latent_steps=0, n_weight_steps=1), small_episodes()
    nn.init.zeros_(head.encoder.weight)
    weights = head.prototypes(episodes.z_sup, episodes.y_sup, N_WAY)
    x = episodes.z_sup / episodes.z_sup.norm(dim=-1, keepdim=True)
    for k in range(N_WAY):
        own = (x * (episodes.y_sup == k).unsqueeze(-1)).sum(1)
        expected = head.weight_rates * (own * N_WAY - x.sum(1)) / 6
        torch.testing.assert_close(weights[:, k], expected, rtol=0, atol=1e-12)


def test_length_of_features_does_not_matter():
    head, episodes = _head(), small_episodes()
    scaled = head.log_posterior(3 * episodes.z_sup, episodes.y_sup, 0.2 * episodes.z_qry, N_WAY)
    torch.testing.assert_close(scaled, _classify(head, episodes), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0."),
        ({"n_latent_steps": -1}, "n_latent_steps must be a whole number of at least 0; got -1."),
        ({"kl_weight": -1.0}, "kl_weight must be a finite number of at least 0; got -1.0."),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Leo(DIM, 7, **settings)


def test_training_learns_and_serves_other_ways_and_shots():
    torch.manual_seed(0)
    head = Leo(SYNTHETIC_DIM, 5, n_latents=16)
    before = accuracy(head)
    train(head, 60, learning_rate=0.01)
    assert before < 0.4
    assert accuracy(head) > 0.75
    assert accuracy(head, n_shot=5) > accuracy(head)
    assert accuracy(head, n_way=3) > accuracy(head)
    tasks = synthetic_episodes(2, seed=0, n_way=8)
    log_p = head.log_posterior(tasks.z_sup, tasks.y_sup, tasks.z_qry, 8)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 40))
