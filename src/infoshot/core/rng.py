"""Random numbers that depend only on (seed, stream, task, position).

With a sequential generator, task 7 depends on how many tasks were drawn before it. Here every
number is a hash of its position, so that tasks can be drawn in any order, in parallel and on any
device. The hash is the finalizer of splitmix64 (G. L. Steele, D. Lea,
C. H. Flood. Fast splittable pseudorandom number generators. OOPSLA 2014) in int64 arithmetic, which
wraps around the same way on every device.
"""

import torch
from torch import Tensor

_GOLDEN = -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed number
_MIX_1 = -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
_MIX_2 = -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB


def random_bits(seed: int, stream: int, tasks: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return 32 random bits for every position of every task.

    Parameters
    ----------
    seed, stream
        Whole numbers; different streams of a seed are independent.
    tasks
        Task numbers, int64, shape ``(task,)``.
    shape
        Positions per task.

    Returns
    -------
    Whole numbers from 0 to 2**32 - 1, int64, shape ``(task, *shape)``.
    """
    root = _mix(_mix(torch.tensor(seed) * _GOLDEN + _GOLDEN) + torch.tensor(stream) * _GOLDEN)
    start = _mix(root.to(tasks.device) + tasks * _GOLDEN)
    n_positions = torch.Size(shape).numel()
    positions = torch.arange(1, n_positions + 1, device=tasks.device) * _GOLDEN
    bits = _mix(start.unsqueeze(-1) + positions)
    return _shift(bits, 32).view(len(tasks), *shape)


def choose(seed: int, stream: int, tasks: Tensor, sizes: Tensor, n: int) -> Tensor:
    """Draw ``n`` different whole numbers below each size, in random order.

    Every ordered choice is equally likely, up to a bias of size / 2**32.

    Parameters
    ----------
    seed, stream, tasks
        As in :func:`random_bits`.
    sizes
        How many numbers to choose from, at least ``n``, int64, shape ``(task, *rows)``.
    n
        How many to draw.

    Returns
    -------
    Shape ``(task, *rows, n)``, int64.
    """
    rows = tuple(sizes.shape[1:])
    bits = random_bits(seed, stream, tasks, (*rows, 2 * n))
    # R. Floyd's sampling: in round j the new number is below size - n + j + 1; if it is taken
    # already, the largest candidate, which cannot be, comes in its place. It is taken if it came
    # up before, or if it is the largest candidate of an earlier round whose own number was taken;
    # such chains are followed in all rounds at once, twice as far each time.
    rounds = torch.arange(n, device=sizes.device)
    smallest = sizes.unsqueeze(-1) - n
    new = (bits[..., :n] * (smallest + rounds + 1)) >> 32
    taken = (new.unsqueeze(-1) == new.unsqueeze(-2)).tril_(-1).any(-1)
    earlier = new - smallest
    earlier = torch.where((earlier >= 0) & (earlier < rounds), earlier, rounds)
    for _ in range((n - 1).bit_length()):
        taken |= taken.gather(-1, earlier)
        earlier = earlier.gather(-1, earlier)
    chosen = torch.where(taken, smallest + rounds, new)
    # That makes every set equally likely; shuffling makes every order so.
    return chosen.gather(-1, bits[..., n:].argsort(dim=-1, stable=True))


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, n_bits: int) -> Tensor:
    """Logical shift to the right; PyTorch's own keeps the sign."""
    return (x >> n_bits) & ((1 << (64 - n_bits)) - 1)
