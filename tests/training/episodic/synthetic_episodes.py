"""Episodes of synthetic features: few dimensions tell the classes apart, a rotation hides them."""

import torch
from torch import Tensor

from infoshot.training.episodic.head import Episodes, Head

DIM, N_INFORMATIVE = 24, 4


def synthetic_episodes(
    n_tasks: int,
    seed: int,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 5,
    dtype: torch.dtype = torch.float32,
) -> Episodes:
    """Draw episodes of ever new classes, in the order of the labels.

    Classes have means in 4 dimensions, samples noise of variance 0.1 in these and of variance 1 in
    the other 20. A rotation, the same in all episodes, mixes the 24 dimensions.
    """
    generator = torch.Generator().manual_seed(seed)
    means = torch.zeros(n_tasks, n_way, 1, DIM)
    shape = (n_tasks, n_way, 1, N_INFORMATIVE)
    means[..., :N_INFORMATIVE] = torch.randn(shape, generator=generator)
    spread = torch.ones(DIM)
    spread[:N_INFORMATIVE] = 0.1**0.5
    noise = torch.randn(n_tasks, n_way, n_shot + n_query, DIM, generator=generator)
    z = (means + noise * spread).to(dtype) @ _rotation().to(dtype)
    labels = torch.arange(n_way).view(1, n_way, 1).expand(n_tasks, n_way, n_shot + n_query)
    return Episodes(
        z[:, :, :n_shot].flatten(1, 2),
        labels[:, :, :n_shot].flatten(1),
        z[:, :, n_shot:].flatten(1, 2),
        labels[:, :, n_shot:].flatten(1),
        torch.arange(n_way).repeat(n_tasks, 1),
    )


def train(
    head: Head, n_steps: int, learning_rate: float, *, n_tasks: int = 16, **shots: int
) -> None:
    """Take steps of Adam on episodes that are new in every step."""
    optimiser = torch.optim.Adam(head.parameters(), lr=learning_rate)
    head.train()
    for step in range(n_steps):
        loss, _ = head.loss(synthetic_episodes(n_tasks, seed=1000 + step, **shots))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    head.eval()


@torch.no_grad()
def accuracy(head: Head, n_tasks: int = 200, **shots: int) -> float:
    """Share of correct labels over queries of episodes that training has not seen."""
    episodes = synthetic_episodes(n_tasks, seed=1, **shots)
    head.eval()
    log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.n_way)
    return float((log_p.argmax(-1) == episodes.y_qry).double().mean())


def _rotation() -> Tensor:
    return torch.linalg.qr(torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(0)))[0]
