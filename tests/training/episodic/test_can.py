"""CAN against loops in NumPy, with known limits, and on synthetic episodes."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import avg_pool2d, cosine_similarity

from infoshot import InvalidArgumentError
from infoshot.solvers.objective import class_means
from infoshot.training.episodic import query_chunks
from infoshot.training.episodic.can import Can
from infoshot.training.episodic.head import Episodes
from tests.reference import systems_can_numpy as reference
from tests.training.episodic.head_checks import DIM, check_head
from tests.training.episodic.map_head import MapHead, map_episodes, randomise_norms


def _head(side=3):
    torch.manual_seed(0)
    return randomise_norms(Can(4, 8, side=side))


def _classify(head, episodes):
    return head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.n_way)


def test_posterior_and_loss_agree_with_loops():
    head, episodes = _head(), map_episodes((4, 3, 3))
    weights = {name: value.numpy() for name, value in head.state_dict().items()}
    losses, posteriors = [], []
    for task in range(2):
        z_sup, z_qry = (x[task].flatten(2).numpy() for x in (episodes.z_sup, episodes.z_qry))
        y_sup, y_qry = episodes.y_sup[task].numpy(), episodes.y_qry[task].numpy()
        posteriors.append(reference.classify(weights, z_sup, y_sup, z_qry, 3))
        base_labels = episodes.classes[task].numpy()[y_qry]
        losses.append(reference.loss(weights, z_sup, y_sup, z_qry, y_qry, base_labels, 3))
    with torch.no_grad():
        loss, log_p = head.loss(episodes)
        np.testing.assert_allclose(_classify(head, episodes), posteriors, atol=1e-10)
    np.testing.assert_allclose(log_p, posteriors, atol=1e-10)
    np.testing.assert_allclose(loss, np.mean(losses), atol=1e-10)


def test_contract():
    check_head(MapHead(_head(), DIM, (4, 3, 3)).double())
    check_head(MapHead(_head(side=2), DIM, (4, 5, 3)).double())  # maps of another size


def test_larger_maps_are_averaged():
    head, episodes = _head(side=2), map_episodes((4, 6, 6))
    small_sup, small_qry = (
        avg_pool2d(z.flatten(0, 1), 3).view(*z.shape[:3], 2, 2)
        for z in (episodes.z_sup, episodes.z_qry)
    )
    expected = head.log_posterior(small_sup, episodes.y_sup, small_qry, 3)
    torch.testing.assert_close(_classify(head, episodes), expected)


def test_a_zero_kernel_compares_the_means_of_the_maps():
    head, episodes = _head(), map_episodes((4, 3, 3))
    nn.init.zeros_(head.fusion[3].weight)
    nn.init.zeros_(head.fusion[3].bias)
    means = class_means(episodes.z_sup.mean((3, 4)), episodes.y_sup, 3)
    queries = episodes.z_qry.mean((3, 4))
    cosines = cosine_similarity(queries.unsqueeze(2), means.unsqueeze(1), dim=-1)
    torch.testing.assert_close(_classify(head, episodes), (7 * cosines).log_softmax(-1))


def test_a_position_without_features_keeps_gradients_finite():
    head, episodes = _head().train(), map_episodes((4, 3, 3))
    episodes.z_sup[..., 0, 0] = 0
    episodes.z_qry[..., 1, 1] = 0
    for z in (episodes.z_sup, episodes.z_qry):
        z.requires_grad_()
    loss, _ = head.loss(episodes)
    loss.backward()
    assert episodes.z_sup.grad.isfinite().all()
    assert episodes.z_qry.grad.isfinite().all()


def test_chunks_do_not_change_the_posterior(monkeypatch):
    head, episodes = _head(), map_episodes((4, 3, 3))
    whole = _classify(head, episodes)
    monkeypatch.setattr(query_chunks, "_MOST_VALUES", 4 * 2 * 3 * 81)  # four of 6 queries
    torch.testing.assert_close(_classify(head, episodes), whole)


def _cluttered_episodes(n_tasks, seed):
    """Eight base classes, 3 ways, 1 shot; three of nine positions show the class."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(8, 16, 1, 1, generator=torch.Generator().manual_seed(99))
    classes = torch.rand(n_tasks, 8, generator=generator).argsort(1)[:, :3]

    def draw(y):
        rank = torch.rand(*y.shape, 9, generator=generator).argsort(-1)
        noise = torch.randn(*y.shape, 16, 3, 3, generator=generator)
        shows = (rank < 3).view(*y.shape, 1, 3, 3)
        return torch.where(shows, centres[classes.gather(1, y)] + 0.2 * noise, 2 * noise)

    y_sup, y_qry = torch.arange(3).repeat(n_tasks, 1), torch.arange(3).repeat(n_tasks, 2)
    return Episodes(draw(y_sup), y_sup, draw(y_qry), y_qry, classes)


@torch.no_grad()
def _accuracy(head):
    episodes = _cluttered_episodes(100, seed=10**6)
    return (_classify(head.eval(), episodes).argmax(-1) == episodes.y_qry).float().mean()


def test_training_learns_which_positions_to_compare():
    torch.manual_seed(0)
    head, without_attention = Can(16, 8, side=3), Can(16, 8, side=3)
    nn.init.zeros_(without_attention.fusion[3].weight)
    nn.init.zeros_(without_attention.fusion[3].bias)
    before = _accuracy(head)
    optimiser = torch.optim.Adam(head.parameters(), 0.03)
    for step in range(100):
        loss, _ = head.train().loss(_cluttered_episodes(8, seed=step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert _accuracy(head) > max(before, _accuracy(without_attention)) + 0.04


@pytest.mark.parametrize("name", ["side", "reduction", "attention_temperature", "scale"])
def test_wrong_settings_are_refused(name):
    with pytest.raises(InvalidArgumentError, match=f"{name} must be a "):
        Can(4, 8, **{name: 0})
