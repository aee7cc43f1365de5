"""What holds for every head that reads vectors, to be called by the tests of each."""

import copy
import dataclasses

import torch
from torch.testing import assert_close

from infoshot.training.episodic.head import Episodes, Head

N_TASKS, N_WAY, DIM = 3, 3, 6


def small_episodes(seed: int = 0) -> Episodes:
    """Three tasks of 3 ways in float64, with 1, 2 and 3 shots in any order, and 7 queries."""
    generator = torch.Generator().manual_seed(seed)
    y_sup = torch.tensor([[0, 1, 1, 2, 2, 2], [2, 0, 1, 2, 0, 2], [1, 2, 0, 0, 1, 0]])
    y_qry = torch.tensor([[0, 1, 2, 0, 1, 2, 1], [2, 2, 1, 0, 1, 0, 0], [0, 1, 2, 2, 1, 0, 2]])
    means = torch.randn(N_TASKS, N_WAY, DIM, generator=generator, dtype=torch.float64)

    def draw(y):
        noise = torch.randn(*y.shape, DIM, generator=generator, dtype=torch.float64)
        return means.gather(1, y.unsqueeze(-1).expand(-1, -1, DIM)) + 0.7 * noise

    return Episodes(draw(y_sup), y_sup, draw(y_qry), y_qry, torch.arange(3).expand(3, 3))


def move_parameters(head: Head, seed: int = 0) -> Head:
    """Add noise to all parameters, so that none has a value that hides an error; in float64."""
    generator = torch.Generator().manual_seed(seed)
    head = head.double()
    with torch.no_grad():
        for value in head.parameters():
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            value += 0.2 * noise
    return head.eval()


def check_head(head: Head, *, relabels: bool = True) -> None:
    """Check shapes, batches, orders, precision and gradients; ``head`` is in float64."""
    episodes = small_episodes()
    z_sup, y_sup, z_qry = episodes.z_sup, episodes.y_sup, episodes.z_qry
    log_p = head.log_posterior(z_sup, y_sup, z_qry, N_WAY)
    assert log_p.shape == (N_TASKS, z_qry.shape[1], N_WAY)
    assert_close(log_p.logsumexp(-1), torch.zeros(log_p.shape[:2], dtype=torch.float64))
    for task in range(N_TASKS):
        one = slice(task, task + 1)
        alone = head.log_posterior(z_sup[one], y_sup[one], z_qry[one], N_WAY)
        assert_close(alone, log_p[one], rtol=0, atol=1e-12)
    order = torch.tensor([4, 0, 6, 2, 5, 1, 3])
    permuted = head.log_posterior(z_sup, y_sup, z_qry[:, order], N_WAY)
    assert_close(permuted, log_p[:, order], rtol=0, atol=1e-12)
    order = torch.tensor([3, 0, 5, 2, 1, 4])
    permuted = head.log_posterior(z_sup[:, order], y_sup[:, order], z_qry, N_WAY)
    assert_close(permuted, log_p, rtol=0, atol=1e-12)
    if relabels:
        names = torch.tensor([2, 0, 1])
        renamed = head.log_posterior(z_sup, names[y_sup], z_qry, N_WAY)
        assert_close(renamed[..., names], log_p, rtol=0, atol=1e-12)
    assert head.prototypes(z_sup, y_sup, N_WAY).shape == (N_TASKS, N_WAY, DIM)
    _check_single_precision(head, episodes, log_p)
    _check_gradients(head, episodes)


def _check_single_precision(head: Head, episodes: Episodes, log_p: torch.Tensor) -> None:
    single = copy.deepcopy(head).float()
    parts = (episodes.z_sup.float(), episodes.y_sup, episodes.z_qry.float())
    found = single.log_posterior(*parts, N_WAY)
    assert found.dtype == torch.float32
    assert_close(found.double(), log_p, rtol=1e-3, atol=1e-4)


def _check_gradients(head: Head, episodes: Episodes) -> None:
    """The loss passes a gradient to the samples, as finite differences say."""
    z_sup = episodes.z_sup.clone().requires_grad_()

    def loss(z_sup):
        return head.loss(dataclasses.replace(episodes, z_sup=z_sup))[0]

    (found,) = torch.autograd.grad(loss(z_sup), z_sup)
    step = torch.zeros_like(z_sup)
    for place in ((0, 0, 0), (1, 3, 2), (2, 5, 5)):
        step[place] = 1e-6
        with torch.no_grad():
            slope = (loss(z_sup + step) - loss(z_sup - step)) / 2e-6
        assert_close(found[place], slope, rtol=1e-5, atol=1e-8)
        step[place] = 0.0
