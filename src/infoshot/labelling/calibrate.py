"""How far a labelling may be trusted, told from the examples alone.

Every example is once held out (but for labels that were given later, to photos chosen because they
are hard): solved among the photos by a solve that does not know its label.
Examples take turns, one or more of every class at a time (never the only one of its class), and
five hundred photos stand for all of them, so this costs a few small solves. What comes out

- estimates the accuracy, with Wilson's interval; a little low, since each solve has fewer examples;
- calibrates the confidences: one exponent on the probabilities, chosen by their likelihood, with
  targets a little below 1 as in Platt's scaling, so that a few dozen examples that all come out
  right do not make every photo certain;
- finds examples that look mislabelled.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.metrics import wilson_interval
from infoshot.solvers import Method, solve

_TURNS = 5
_PHOTOS = 500
_ENOUGH = 20
_EXPONENTS = torch.logspace(-0.7, 0.7, 141)
_TINY = 1e-30


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What became of the examples that were held out.

    Parameters
    ----------
    rows
        Which examples they are, shape ``(held_out,)``.
    truth
        Their classes.
    probabilities
        Of the classes, shape ``(held_out, class)``.
    """

    rows: Tensor
    truth: Tensor
    probabilities: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def enough(self) -> bool:
        """Whether there are enough of them to calibrate by."""
        return len(self) >= _ENOUGH

    def accuracy(self) -> tuple[float, float, float]:
        """Share that came out right, with the ends of its interval."""
        right = int((self.probabilities.argmax(-1) == self.truth).sum())
        low, high = wilson_interval(right, len(self))
        return right / max(1, len(self)), low, high

    def exponent(self) -> float:
        """Power of the probabilities that makes these examples most likely; 1 if too few."""
        if not self.enough:
            return 1.0
        log_p = self.probabilities.double().clamp_min(_TINY).log()
        scaled = torch.log_softmax(_EXPONENTS.double().view(-1, 1, 1) * log_p, dim=-1)
        n_way, doubt = log_p.shape[1], 1 / (len(self) + 2)
        own = scaled[:, torch.arange(len(self)), self.truth]
        others = (scaled.sum(-1) - own) / (n_way - 1)
        likelihood = ((1 - doubt) * own + doubt * others).mean(-1)
        return float(_EXPONENTS[likelihood.argmax()])


def hold_out(
    method: Method, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int, may_be: Tensor
) -> HeldOut:
    """Hold out once every example that may be, except the only one of a class."""
    turn = _turns(y_sup, n_way).masked_fill_(~may_be, -1)
    some = torch.randperm(len(z_qry), generator=torch.Generator().manual_seed(0))[:_PHOTOS]
    rows, probabilities = [], []
    for number in turn[turn >= 0].unique().tolist():
        out = turn == number
        queries = torch.cat((z_sup[out], z_qry[some]))
        tasks = TaskBatch(
            z_sup[~out].unsqueeze(0), y_sup[~out].unsqueeze(0), queries.unsqueeze(0), n_way
        )
        solution = solve(method.solver, tasks)
        rows.append(out.nonzero().flatten())
        probabilities.append(solution.probabilities[0, : len(rows[-1])].cpu())
    if not rows:
        nothing = torch.empty(0, dtype=torch.int64)
        return HeldOut(nothing, nothing, torch.empty(0, n_way))
    which = torch.cat(rows)
    return HeldOut(which, y_sup[which], torch.cat(probabilities))


def calibrated(probabilities: Tensor, exponent: float) -> Tensor:
    """Probabilities to a power, summing to 1 again."""
    if math.isclose(exponent, 1.0):
        return probabilities
    return torch.softmax(exponent * probabilities.clamp_min(_TINY).log(), dim=-1)


def _turns(y_sup: Tensor, n_way: int) -> Tensor:
    """When each example is held out; -1 for the only one of its class."""
    turn = torch.full_like(y_sup, -1)
    for label in range(n_way):
        own = (y_sup == label).nonzero().flatten()
        if len(own) > 1:
            turn[own] = torch.arange(len(own)) % min(_TURNS, len(own))
    return turn
