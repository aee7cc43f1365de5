"""Query regimes: how many queries a task has of each class.

The paper draws the same number of queries from every class. Real unlabelled data is imbalanced, so
tasks can also be drawn with

- ``dirichlet:A``: class probabilities from a symmetric Dirichlet distribution, multinomial counts;
- ``effective:K``: queries from K of the task's classes only, counts that differ by at most one;
- ``few:N``: N queries in total, each from a class chosen uniformly at random;
- ``open:N``: N of the queries from classes without support.

If the name does not give the number of queries, it is that of the balanced task. Counts depend only
on the seed, on the index of the task and, where classes have few samples, on their sizes.

A class may have fewer samples than its count. Then :func:`move_excess` takes the samples that the
class has and moves the remaining queries to the other classes of the task. ``balanced`` tasks are
never changed this way: they would no longer be balanced.
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
_LARGEST_A = 1e9  # shares differ by less than 1e-4 of their mean; much more is not finite
_TINY = 1e-12


@dataclass(frozen=True)
class Regime:
    """A kind of query set; ``value`` is the number after the colon of its name."""

    kind: Kind = "balanced"
    value: float = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "balanced" else f"{self.kind}:{self.value:g}"

    def n_queries(self, n_way: int, n_query: int) -> int:
        """Total number of queries of a task, including those of classes without support."""
        return int(self.value) if self.kind == "few" else n_way * n_query

    def n_outliers(self) -> int:
        """Number of queries of a task that belong to none of its classes."""
        return int(self.value) if self.kind == "open" else 0

    def n_present(self, n_way: int) -> int:
        """Number of the task's classes that may have queries."""
        return int(self.value) if self.kind == "effective" else n_way

    def most_of_a_class(self, n_way: int, n_query: int) -> int:
        """Largest number of queries that a task may need from one of its classes."""
        total = self.n_queries(n_way, n_query) - self.n_outliers()
        if self.kind in ("dirichlet", "few"):
            return total
        return math.ceil(total / self.n_present(n_way))

    def validate(self, n_way: int, n_query: int) -> None:
        """Raise ``InvalidArgumentError`` if such tasks do not exist."""
        total = n_way * n_query
        whole = float(self.value).is_integer()
        wrong = {
            "balanced": "",
            "dirichlet": ""
            if 0 < self.value <= _LARGEST_A
            else f"A must be a number above 0 and at most {_LARGEST_A:g}",
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
        """Queries per class, shape ``(task, n_way)``, int64; outliers are not included."""
        n_tasks = len(tasks)
        total = self.n_queries(n_way, n_query) - self.n_outliers()
        if self.kind == "effective":
            n_present = self.n_present(n_way)
            sizes = torch.full((n_tasks,), n_way)
            present = choose(seed, _PRESENT, tasks, sizes, n_present)
            counts = torch.zeros(n_tasks, n_way, dtype=torch.int64)
            return counts.scatter_(1, present, even_counts(total, n_present).expand(n_tasks, -1))
        if self.kind in ("dirichlet", "few"):
            shares = self._shares(n_way, seed, tasks)
            edges = shares.cumsum(1) / shares.sum(1, keepdim=True)
            u = _uniform(seed, _QUERIES, tasks, (total,))
            drawn = torch.searchsorted(edges, u).clamp(max=n_way - 1)
            return torch.zeros(n_tasks, n_way, dtype=torch.int64).scatter_add_(
                1, drawn, torch.ones_like(drawn)
            )
        return even_counts(total, n_way).expand(n_tasks, -1)

    def limited_counts(
        self, n_way: int, n_query: int, seed: int, tasks: Tensor, limits: Tensor
    ) -> Tensor:
        """Counts like :meth:`counts`, none above its limit, shape ``(task, n_way)``.

        Classes that have no queries under ``effective:K`` do not get any.
        """
        counts = self.counts(n_way, n_query, seed, tasks)
        if self.kind == "effective":
            limits = limits * (counts > 0)
        return move_excess(counts, self._shares(n_way, seed, tasks), limits)

    def _shares(self, n_way: int, seed: int, tasks: Tensor) -> Tensor:
        """Class probabilities up to a factor, shape ``(task, n_way)``."""
        if self.kind == "dirichlet":
            return _gamma(self.value, seed, tasks, n_way)
        return torch.ones(len(tasks), n_way, dtype=torch.float64)


def move_excess(counts: Tensor, shares: Tensor, limits: Tensor) -> Tensor:
    """Cap counts at their limits and move what is above to classes below their limit.

    Every class first keeps at most its limit. The excess of a task is divided among its classes
    below their limit in proportion to their shares, by the largest-remainder method (the excess
    that remains after rounding down goes to the largest fractional parts, the first class first in
    a tie). This repeats until no excess is left, because it may take further classes to their
    limit.

    Parameters
    ----------
    counts, limits
        Whole numbers, shape ``(task, class)``; the limits of a task must add up to at least its
        counts.
    shares
        Class probabilities up to a factor, shape ``(task, class)``.

    Returns
    -------
    Counts with the same totals, none above its limit, shape ``(task, class)``.

    Examples
    --------
    >>> move_excess(torch.tensor([[9, 1, 0]]), torch.tensor([[6.0, 3.0, 1.0]]),
    ...             torch.tensor([[5, 8, 8]]))
    tensor([[5, 4, 1]])
    """
    total = counts.sum(1, keepdim=True)
    counts = counts.minimum(limits)
    largest = shares.amax(1, keepdim=True).double().clamp(min=torch.finfo(torch.float64).tiny)
    shares = (shares / largest).clamp(min=_TINY)  # shares of 0 count where no others are left
    for _ in range(counts.shape[1]):  # every round but the last takes a class to its limit
        excess = total - counts.sum(1, keepdim=True)
        if not excess.any():
            break
        weights = shares * (counts < limits)
        quota = excess * (weights / weights.sum(1, keepdim=True).clamp(min=_TINY))
        whole = quota.floor()
        remainder = torch.where(counts < limits, quota - whole, -1.0)
        rank = remainder.argsort(dim=1, descending=True, stable=True).argsort(1)
        whole += rank < excess - whole.sum(1, keepdim=True)
        counts = (counts + whole.long()).minimum(limits)
    return counts


def parse_regime(text: str) -> Regime:
    """Parse the name of a regime.

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
    """Split a total into counts that differ by at most one.

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
    """Gamma variates of shape ``a``, ``n`` per task: Dirichlet shares up to their sum.

    G. Marsaglia, W. W. Tsang. A simple method for generating gamma variables. TOMS 2000. Takes the
    first accepted of several proposals; each is accepted with probability above 0.95.
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
