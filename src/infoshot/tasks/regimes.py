"""What a query set looks like: how many queries there are of each class of a task.

The paper draws as many queries of every class. Real piles are not like that, so tasks can also be
drawn with

- ``dirichlet:A``: class probabilities from a symmetric Dirichlet distribution, counts multinomial;
- ``effective:K``: queries of K of the task's classes only, as equally many as possible;
- ``few:N``: N queries in all, each of a class at random;
- ``open:N``: N of the queries from classes that have no support.

Where the number of queries is not in the name it is that of the balanced task. Counts depend on the
seed and on the number of the task only.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from infoshot.core.errors import InvalidArgumentError
from infoshot.core.rng import choose, random_bits

Kind = Literal["balanced", "dirichlet", "effective", "few", "open"]
_SHARES, _QUERIES, _PRESENT = 5, 6, 7  # streams of random numbers
_ATTEMPTS = 24


@dataclass(frozen=True)
class Regime:
    """A kind of query set; ``value`` is what stands after the colon of its name."""

    kind: Kind = "balanced"
    value: float = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "balanced" else f"{self.kind}:{self.value:g}"

    def n_queries(self, n_way: int, n_query: int) -> int:
        """Queries of a task, those of classes without support counted in."""
        return int(self.value) if self.kind == "few" else n_way * n_query

    def n_outliers(self) -> int:
        """Queries of a task that belong to none of its classes."""
        return int(self.value) if self.kind == "open" else 0

    def most_of_a_class(self, n_way: int, n_query: int) -> int:
        """Queries that a task may need of one of its classes."""
        total = self.n_queries(n_way, n_query) - self.n_outliers()
        if self.kind in ("dirichlet", "few"):
            return total
        n_present = int(self.value) if self.kind == "effective" else n_way
        return math.ceil(total / n_present)

    def validate(self, n_way: int, n_query: int) -> None:
        """Raise ``InvalidArgumentError`` if such tasks do not exist."""
        total = n_way * n_query
        whole = float(self.value).is_integer()
        wrong = {
            "balanced": "",
            "dirichlet": "" if 0 < self.value < math.inf else "A must be a number above 0",
            "effective": ""
            if whole and 1 <= self.value <= n_way
            else f"K must be from 1 to the {n_way} ways",
            "few": "" if whole and self.value >= 1 else "N must be a whole number of at least 1",
            "open": ""
            if whole and 1 <= self.value < total
            else f"N must be from 1 to {total - 1}, below the {total} queries of a task",
        }[self.kind]
        if wrong:
            raise InvalidArgumentError(f"regime '{self}': {wrong}.")

    def counts(self, n_way: int, n_query: int, seed: int, tasks: Tensor) -> Tensor:
        """Queries of each class of each task, shape ``(task, n_way)``, int64; outliers apart."""
        n_tasks = len(tasks)
        total = self.n_queries(n_way, n_query) - self.n_outliers()
        if self.kind == "effective":
            n_present = int(self.value)
            sizes = torch.full((n_tasks,), n_way)
            present = choose(seed, _PRESENT, tasks, sizes, n_present)
            counts = torch.zeros(n_tasks, n_way, dtype=torch.int64)
            return counts.scatter_(1, present, even_counts(total, n_present).expand(n_tasks, -1))
        if self.kind in ("dirichlet", "few"):
            shares = torch.ones(n_tasks, n_way, dtype=torch.float64)
            if self.kind == "dirichlet":
                shares = _gamma(self.value, seed, tasks, n_way)
            edges = shares.cumsum(1) / shares.sum(1, keepdim=True)
            u = _uniform(seed, _QUERIES, tasks, (total,))
            drawn = torch.searchsorted(edges, u).clamp(max=n_way - 1)
            return torch.zeros(n_tasks, n_way, dtype=torch.int64).scatter_add_(
                1, drawn, torch.ones_like(drawn)
            )
        return even_counts(total, n_way).expand(n_tasks, -1)


def parse_regime(text: str) -> Regime:
    """Read a regime as it is written.

    Examples
    --------
    >>> parse_regime("dirichlet:2")
    Regime(kind='dirichlet', value=2.0)
    """
    kind, colon, value = text.partition(":")
    try:
        if kind in get_args(Kind) and (kind == "balanced") == (not colon):
            return Regime(kind, float(value) if colon else 0)  # type: ignore[arg-type]
    except ValueError:
        pass
    raise InvalidArgumentError(
        "regime must be balanced, dirichlet:A, effective:K, few:N or open:N with numbers for the "
        f"letters; got '{text}'."
    )


def even_counts(total: int, n_classes: int) -> Tensor:
    """Counts that differ by one at most.

    Examples
    --------
    >>> even_counts(7, 3)
    tensor([3, 2, 2])
    """
    counts = torch.full((n_classes,), total // n_classes)
    counts[: total % n_classes] += 1
    return counts


def _uniform(seed: int, stream: int, tasks: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers inside (0, 1)."""
    return (random_bits(seed, stream, tasks, shape).double() + 0.5) / 2**32


def _gamma(a: float, seed: int, tasks: Tensor, n: int) -> Tensor:
    """Gamma variates of shape ``a``, ``n`` for each task: Dirichlet shares up to their sum.

    G. Marsaglia, W. W. Tsang. A simple method for generating gamma variables. TOMS 2000: the first
    of several proposals that is accepted; each is with probability above 0.95.
    """
    u = _uniform(seed, _SHARES, tasks, (n, 3 * _ATTEMPTS + 1))
    first, second, accept = u[..., 1:].view(len(tasks), n, 3, _ATTEMPTS).unbind(2)
    normal = (-2 * first.log()).sqrt() * (2 * math.pi * second).cos()
    boosted = a if a >= 1 else a + 1
    d = boosted - 1 / 3
    v = (1 + normal / math.sqrt(9 * d)) ** 3
    good = (v > 0) & (accept.log() < normal**2 / 2 + d - d * v + d * v.clamp(min=1e-300).log())
    value = d * v.gather(-1, good.double().argmax(-1, keepdim=True)).squeeze(-1)
    return value if a >= 1 else value * u[..., 0] ** (1 / a)
