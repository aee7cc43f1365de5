r"""TIM-auto: TIM-ADM that decides from the features how far to trust an equal class balance.

TIM's marginal entropy makes the classes of the queries equally frequent. Where they are, that is
worth ten points; where they are not, it costs as much. The *weight* of that term decides: with
:math:`\beta = 1`, the published one, balance is enforced, around :math:`\beta = \alpha` it is
suggested, below it is left to the queries. This method finds the weight for each task:

1. **Calm the features.** Every query is averaged with its nearest queries,
   :math:`x_i \propto (1 - s) z_i + s \sum_j g_{ij} z_j` with g a softmax over the k nearest, and
   scaled to length one; the class means start shrunken, as in ``prototype.py``. Neither asks how
   frequent classes are.
2. **Rehearse twice**, with a loose weight and with a firm one, and look how unequal the classes
   come out: :math:`D = 1 - H(\hat p) / \log K`, 0 for equal shares and 1 for a single class.
3. **Decide.** With few examples and few queries shares come out unequal by chance, as
   :math:`\nu^2 = \frac{1}{K^2} \sum_k \frac{1}{n_k} + \frac{1}{|Q|}`, so

   .. math:: \beta = \beta_0 \exp\left(-c \, (0.2 D_{loose} + 0.8 D_{firm}) / \nu\right),
             \quad \text{kept within } [0.04, 1].

4. **Solve**: TIM-ADM with that weight, from the same start.

With fewer than two queries per class there is nothing to learn from them together: each gets the
nearest shrunken class mean. Probabilities are reported at a lower temperature than the solve's, at
which they are calibrated best. A query's outlier score is its squared distance from the nearest
prototype.

It assumes nothing about class frequencies, knows no query label and no class count. All constants
were chosen on the validation classes of mini-ImageNet; ``docs/tim-auto.md`` has the experiments,
also those that failed. Cost: that of 140 steps of TIM-ADM, and 4 \|Q\| \|Q\| d for the
neighbours, which are found block by block.

Reference: [Boudiaf2020]_ in ``objective.py`` for the solve; the decision is our own.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from infoshot.solvers.base import Solver
from infoshot.solvers.baselines.prototype import shrunken
from infoshot.solvers.objective import class_logits, class_rows, inverse_lengths, log_posterior
from infoshot.solvers.tim_adm import AdmState, TimAdm
from infoshot.types import TaskBatch

# Weights of the marginal entropy: of the two rehearsals, how the decision falls with the unevenness
# that they show, and where it ends.
_LOOSE, _FIRM, _SHARE_OF_LOOSE = 0.065, 0.12, 0.2
_AT_BALANCE, _FALL = 0.8, 14.0
_LEAST, _MOST = 0.04, 1.0
_NEIGHBOUR_TEMPERATURE = 20.0
_BLOCK = 2**24  # similarities at a time


@dataclass(eq=False, kw_only=True)
class _AutoState(AdmState):
    z_qry: Tensor  # averaged with their neighbours, [task, query, dim]
    shares: Tensor  # of the classes in the loose rehearsal, [task, class]
    beta: Tensor  # what was decided, [task]


@final
@dataclass(frozen=True, kw_only=True)
class TimAuto(Solver[_AutoState]):
    """Transductive information maximization, safe for any class balance.

    Parameters
    ----------
    n_steps, n_rehearsal_steps
        Alternations per task, and in each of the two rehearsals.
    temperature
        Factor on the squared distance while solving; larger is sharper.
    confidence_temperature
        The same for the probabilities that are reported; it never changes a label.
    cross_entropy_weight, conditional_entropy_weight
        Weights of the two terms of the objective that are not decided here.
    shrinkage
        How many examples the mean of all classes counts for in the class means at the start.
    smoothing
        Share of a query that comes from its neighbours.
    n_neighbours
        How many nearest queries each query is averaged with.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(TimAuto(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    n_steps: int = 60
    n_rehearsal_steps: int = 40
    temperature: float = 35.0
    confidence_temperature: float = 14.0
    cross_entropy_weight: float = 0.15
    conditional_entropy_weight: float = 0.1
    shrinkage: float = 5.0
    smoothing: float = 0.3
    n_neighbours: int = 8

    def planned_steps(self, task: TaskBatch) -> int:
        """No steps where queries are too few to learn from."""
        return 0 if _too_few(task) else self.n_steps

    def init(self, task: TaskBatch) -> _AutoState:
        """Calm the features, rehearse, decide."""
        smoothed = self._smoothed(task)
        start = self._adm.init(smoothed)
        start.weights = shrunken(start.weights, task, self.shrinkage)
        shares, beta = self._decide(smoothed, start)
        fields = {field.name: getattr(start, field.name) for field in dataclasses.fields(start)}
        fields["balance"] = (beta / (1 + beta)).view(-1, 1, 1)
        return _AutoState(**fields, z_qry=smoothed.z_qry, shares=shares, beta=beta)

    def step(self, task: TaskBatch, state: _AutoState) -> _AutoState:
        """One step of TIM-ADM with the weight that was decided."""
        self._adm.step(task, state)
        return state

    def log_posterior(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return self.classify(state.z_qry, self.prototypes(task, state))

    def prototypes(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""
        return self._adm.prototypes(dataclasses.replace(task, z_qry=state.z_qry), state)

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities that class weights give to any samples, ``(task, sample, class)``."""
        return log_posterior(z, prototypes, self.confidence_temperature)

    def outlier_scores(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Squared distance from the nearest prototype, shape ``(task, query)``."""
        nearness = class_logits(state.z_qry, self.prototypes(task, state), 2.0).amax(1)
        square: Tensor = torch.linalg.vecdot(state.z_qry, state.z_qry)
        return square.sub_(nearness).clamp_(min=0)

    def notes(self, task: TaskBatch, state: _AutoState) -> tuple[str, ...]:
        """Say for each task what was decided and why."""
        if _too_few(task):
            note = (
                f"{task.n_qry} queries for {task.n_way} classes are too few to be judged together: "
                "each got the nearest (shrunken) class mean by itself."
            )
            return (note,) * len(task)
        pairs = zip(state.shares.tolist(), state.beta.tolist(), strict=True)
        return tuple(_note(shares, beta) for shares, beta in pairs)

    def working_set(self, task: TaskBatch) -> int:
        """Count what TIM-ADM touches, and the similarities of the queries."""
        return self._adm.working_set(task) + min(task.n_qry**2, _BLOCK)

    @cached_property
    def _adm(self) -> TimAdm:
        """What takes the steps."""
        return TimAdm(
            n_steps=self.n_steps + 2 * self.n_rehearsal_steps,
            temperature=self.temperature,
            cross_entropy_weight=self.cross_entropy_weight,
            conditional_entropy_weight=self.conditional_entropy_weight,
        )

    def _smoothed(self, task: TaskBatch) -> TaskBatch:
        """Tasks whose queries are averaged with their neighbours."""
        z = task.z_qry
        if _too_few(task) or self.smoothing == 0:
            return task
        n_rows = max(1, _BLOCK // (len(task) * task.n_qry))
        blocks = [self._averages(z, start, n_rows) for start in range(0, task.n_qry, n_rows)]
        mean = torch.cat(blocks, dim=1).mul_(self.smoothing).add_(z, alpha=1 - self.smoothing)
        length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
        return dataclasses.replace(
            task, z_qry=mean.mul_(inverse_lengths(mean).unsqueeze(-1)).mul_(length)
        )

    def _averages(self, z: Tensor, start: int, n_rows: int) -> Tensor:
        """Weighted means of the neighbours of some queries, ``(task, row, dim)``."""
        rows = z[:, start : start + n_rows]
        half_norm = torch.linalg.vecdot(z, z).mul_(0.5)
        nearness = torch.bmm(rows, z.mT).sub_(half_norm.unsqueeze(1)).mul_(_NEIGHBOUR_TEMPERATURE)
        nearness.diagonal(start, 1, 2).fill_(-math.inf)
        kept = nearness.topk(min(self.n_neighbours, z.shape[1] - 1), sorted=False)
        share = torch.softmax(kept.values, dim=-1)
        return torch.bmm(torch.zeros_like(nearness).scatter_(2, kept.indices, share), z)

    def _decide(self, task: TaskBatch, start: AdmState) -> tuple[Tensor, Tensor]:
        """Class shares of the loose rehearsal, ``(task, class)``, and the weight, ``(task,)``."""
        n_shots = class_rows(task.y_sup, task.n_way, task.z_sup.dtype).sum(-1)
        if _too_few(task):
            return n_shots / task.n_sup, n_shots.new_full((len(task),), _LEAST)
        loose, firm = (self._rehearse(task, start, beta) for beta in (_LOOSE, _FIRM))
        unevenness = _SHARE_OF_LOOSE * _unevenness(loose) + (1 - _SHARE_OF_LOOSE) * _unevenness(
            firm
        )
        by_chance = n_shots.reciprocal().sum(-1) / task.n_way**2 + 1 / task.n_qry
        log_beta = math.log(_AT_BALANCE) - _FALL * unevenness / by_chance.sqrt()
        return loose, log_beta.exp().clamp_(_LEAST, _MOST)

    def _rehearse(self, task: TaskBatch, start: AdmState, beta: float) -> Tensor:
        """Mean prediction over the queries after some steps with this weight."""
        state = dataclasses.replace(start, weights=start.weights.clone(), balance=beta / (1 + beta))
        for _ in range(self.n_rehearsal_steps):
            state = self._adm.step(task, state)
        return self._adm.log_posterior(task, state).exp().mean(1)


def _too_few(task: TaskBatch) -> bool:
    return task.n_qry < 2 * task.n_way


def _unevenness(shares: Tensor) -> Tensor:
    """One minus the entropy of class shares over its largest value."""
    entropy: Tensor = torch.special.entr(shares).sum(-1)
    return 1 - entropy / math.log(shares.shape[-1])


def _note(shares: list[float], beta: float) -> str:
    """Words for one decision."""
    if beta >= 0.2:
        judgement = "that is even enough to expect equally frequent classes"
    elif beta >= 0.08:
        judgement = "that is somewhat uneven, so balance is expected with reserve"
    elif beta > _LEAST:
        judgement = "that is uneven, so balance is hardly expected"
    else:
        judgement = "that is very uneven, so the frequencies are left to the queries"
    return (
        f"Rehearsals put {max(shares):.0%} of the queries in the largest class and "
        f"{min(shares):.0%} in the smallest: {judgement} (balance weight {beta:.2f}; 1 is TIM's)."
    )
