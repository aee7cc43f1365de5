r"""Estimate the accuracy of a run and calibrate its confidences on held-out examples.

Every example is held out once, except corrections: a person chose those images because they are
hard. A held-out example is solved among the images by a solve that does not know its label.
Examples are held out in turns, one or more of every class at a time and never the only one of its
class, and 500 images stand for all of them, so this costs a few small solves. The results

- estimate the accuracy, with Wilson's interval. The estimate is slightly low, since each solve has
  fewer examples than the run itself;
- calibrate the confidences: one exponent on the probabilities, the most probable one under the
  prior of ``exponents.py``, so that a few dozen examples do not move a solver that is calibrated
  already. Targets are slightly below 1 as in Platt's scaling, so that a few dozen correct examples
  do not make every image certain;
- show which examples look mislabelled.

In both, an example weighs as much as its class has images: whether examples of classes that hardly
occur are recognised says nothing about the images. With weights :math:`w_i` of mean 1, n examples
say as much as :math:`(\sum_i w_i)^2 / \sum_i w_i^2` of equal weight (L. Kish, Survey Sampling,
1965). The interval has this number of examples, and the likelihood of the exponent its ratio to n
as a factor.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.parallel import map_chunks
from infoshot.core.types import TaskBatch
from infoshot.labelling.exponents import EXPONENTS, log_likelihood, log_powers, log_prior
from infoshot.metrics import wilson_interval
from infoshot.solvers import Method, solve_with_retry

_TURNS = 5
_IMAGES = 500
_ENOUGH = 20
_TINY = 1e-30
_LEAST_SHARE = 1e-12


@dataclass(frozen=True)
class Estimate:
    """Estimated accuracy between 0 and 1, its 95 % interval, and the number of examples."""

    accuracy: float
    low: float
    high: float
    n_examples: int


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for the held-out examples.

    Parameters
    ----------
    rows
        Numbers of the examples, shape ``(held_out,)``.
    truth
        Their classes.
    probabilities
        Predicted probabilities, shape ``(held_out, class)``.
    shares
        Share of each class among the images, shape ``(class,)``.
    """

    rows: Tensor
    truth: Tensor
    probabilities: Tensor
    shares: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def enough(self) -> bool:
        """Whether there are enough examples to calibrate confidences."""
        return len(self) >= _ENOUGH

    def estimate(self) -> Estimate | None:
        """Estimate the accuracy; ``None`` without held-out examples."""
        if not len(self):
            return None
        weights = weigh_by_shares(self.truth, self.shares)
        is_correct = self.probabilities.argmax(-1) == self.truth
        accuracy = min(1.0, float((weights * is_correct).mean()))
        n_equal = len(self) * _information(weights)
        low, high = wilson_interval(accuracy * n_equal, n_equal)
        return Estimate(accuracy, low, high, len(self))

    def exponent(self) -> float:
        """Return the most probable power of the probabilities; 1 if there are too few examples."""
        if not self.enough:
            return 1.0
        powers = log_powers(self.probabilities)
        own = log_likelihood(powers, self.truth)
        others = (powers.sum(-1) - own) / (powers.shape[2] - 1)
        doubt = 1 / (len(self) + 2)
        weights = weigh_by_shares(self.truth, self.shares)
        likelihood = ((1 - doubt) * own + doubt * others) @ weights * _information(weights)
        return float(EXPONENTS[(likelihood + log_prior()).argmax()])


def choose_usable(given: Sequence[bool], n_sup: int) -> Tensor:
    """Return the mask of the examples that may be held out, shape ``(support,)``.

    Parameters
    ----------
    given
        Which examples are corrections. They were chosen because they are hard, and say nothing
        about the other images.
    n_sup
        Number of examples and of the texts of classes, which come after them.
    """
    usable = torch.zeros(n_sup, dtype=torch.bool)
    usable[: len(given)] = ~torch.tensor(given, dtype=torch.bool)
    return usable


def hold_out(
    method: Method, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, shares: Tensor, usable: Tensor
) -> HeldOut:
    """Hold out once every usable example, except the only one of a class.

    ``shares`` are those of the classes among the images, shape ``(class,)``.
    """
    n_way = len(shares)
    turn = _assign_turns(y_sup, n_way).masked_fill_(~usable, -1)
    some = torch.randperm(len(z_qry), generator=torch.Generator().manual_seed(0))[:_IMAGES]

    def solve_turn(number: int) -> tuple[Tensor, Tensor]:
        out = turn == number
        queries = torch.cat((z_sup[out], z_qry[some]))
        tasks = TaskBatch(
            z_sup[~out].unsqueeze(0), y_sup[~out].unsqueeze(0), queries.unsqueeze(0), n_way
        )
        solution = solve_with_retry(method.solver, tasks)
        rows = out.nonzero().flatten()
        return rows, solution.probabilities[0, : len(rows)].cpu()

    turns = turn[turn >= 0].unique().tolist()
    if not turns:
        nothing = torch.empty(0, dtype=torch.int64)
        return HeldOut(nothing, nothing, torch.empty(0, n_way), shares.cpu())
    rows, probabilities = zip(*map_chunks(solve_turn, turns, torch.get_num_threads()), strict=True)
    which = torch.cat(rows)
    return HeldOut(which, y_sup[which], torch.cat(probabilities), shares.cpu())


def weigh_by_shares(truth: Tensor, shares: Tensor) -> Tensor:
    r"""Weigh examples by the images of their class, :math:`w_i \propto s_{y_i} / n_{y_i}`.

    Parameters
    ----------
    truth
        The classes of the examples; :math:`n_k` of them have the class k.
    shares
        Share of each class among the images, :math:`s_k`, shape ``(class,)``.

    Returns
    -------
    Weights with the mean 1, float64, shape ``(example,)``.
    """
    counts = truth.bincount(minlength=len(shares))
    weights: Tensor = ((shares.double() + _LEAST_SHARE) / counts.clamp_min(1))[truth]
    return weights / weights.mean() if len(weights) else weights


def _information(weights: Tensor) -> float:
    """Return how many examples of equal weight say as much, relative to the number of all."""
    return 1 / float(weights.square().mean())


def calibrate(probabilities: Tensor, exponent: float) -> Tensor:
    """Raise probabilities to a power and normalise them."""
    if math.isclose(exponent, 1.0):
        return probabilities
    return torch.softmax(exponent * probabilities.clamp_min(_TINY).log(), dim=-1)


def _assign_turns(y_sup: Tensor, n_way: int) -> Tensor:
    """Assign each example the turn in which it is held out; -1 for the only one of its class."""
    turn = torch.full_like(y_sup, -1)
    for label in range(n_way):
        own = (y_sup == label).nonzero().flatten()
        if len(own) > 1:
            turn[own] = torch.arange(len(own)) % min(_TURNS, len(own))
    return turn
