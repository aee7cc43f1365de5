r"""TIM-auto: TIM-ADM that decides from the features how far to trust an equal class balance.

TIM's marginal entropy makes the classes of the queries equally frequent. Where they are, that is
worth ten points; where they are not, it costs ten to fifty. The *weight* of that term decides: with
:math:`\beta = 1`, the published one, balance is enforced, around :math:`\beta = \alpha` it is
suggested, below it is left to the queries. This method finds the weight for each task:

1. **Calm the features.** Every query is averaged with its nearest queries,
   :math:`x_i \propto (1 - s) z_i + s \sum_j g_{ij} z_j` with g a softmax over the k nearest,
   and keeps its length; the class means start shrunken, as in ``prototype.py``. Neither asks how
   frequent classes are.
2. **Rehearse twice**, with a loose weight and with a firm one, and look how unequal the classes
   come out: :math:`D = 1 - H(\hat p) / \log K`, 0 for equal shares and 1 for a single class. Of
   more than 2,048 queries as many, evenly spaced, stand for all.
3. **Decide.** With few examples and few queries shares come out unequal by chance, as
   :math:`\nu^2 = \frac{1}{K^2} \sum_k \frac{1}{n_k} + \frac{1}{|Q|}`, so

   .. math:: \beta = 0.8 \exp\left(-14 \, (0.2 D_{loose} + 0.8 D_{firm}) / \nu\right),
             \quad \text{at least } 0.04.

4. **Solve**: TIM-ADM with that weight, from the same start.

With fewer than two queries per class there is nothing to learn from them together: each gets the
nearest shrunken class mean. Probabilities are reported at temperatures of their own, at which they
are calibrated best: below that of the solve, and the higher the more examples there are. A query's
outlier score is its squared distance from the nearest prototype. New samples are classified by the
prototypes alone; a query's own probabilities also know its neighbours, so the two can differ.

It assumes nothing about class frequencies, knows no query label and no class count. All constants
were chosen on the validation classes of mini-ImageNet; ``docs/tim-auto.md`` has the experiments,
also those that failed. Cost: that of 140 steps of TIM-ADM (60 and a little for many queries), and
2 to 4 \|Q\| \|Q\| d for the neighbours, which are found block by block.

Reference: [Boudiaf2020]_ in ``objective.py`` for the solve; the decision is our own.
"""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers import balance
from infoshot.solvers.baselines.prototype import shrunken
from infoshot.solvers.neighbours import averaged_with_neighbours, similarities_at_a_time
from infoshot.solvers.objective import class_counts, class_logits, log_posterior
from infoshot.solvers.solver import Solver
from infoshot.solvers.tim_adm import AdmState, TimAdm

_REHEARSED = 2048  # queries that stand for all of them in the rehearsals, where there are more
_GROWTH = 0.4  # of the temperature of reported probabilities, as a power of the examples per class
_ALONE_TEMPERATURE = 100.0  # at which shrunken class means are calibrated, whatever the examples


@dataclass(eq=False, kw_only=True)
class _AutoState(AdmState):
    z_qry: Tensor  # averaged with their neighbours, [task, query, dim]
    unevenness: Tensor  # of the rehearsals, [task]
    chance: Tensor  # nu, the scale of chance, [task]
    beta: Tensor  # what was decided, [task]


@final
@dataclass(frozen=True, kw_only=True)
class TimAuto(Solver[_AutoState]):
    """Transductive information maximization, for any class balance.

    Parameters
    ----------
    n_steps, n_rehearsal_steps
        Alternations per task, and in each of the two rehearsals.
    temperature
        Factor on the squared distance in the probabilities that are reported, for one example per
        class; larger is sharper. It never changes a label. Queries that are judged alone have 100.
    solve_temperature
        The same while solving.
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

    inductive = True

    n_steps: int = 60
    n_rehearsal_steps: int = 40
    temperature: float = 10.5
    solve_temperature: float = 35.0
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
        start = self._started(smoothed)
        uneven, chance = self._evidence(smoothed, start)
        beta = balance.decided_weight(uneven, chance)
        fields = {field.name: getattr(start, field.name) for field in dataclasses.fields(start)}
        fields["balance"] = (beta / (1 + beta)).view(-1, 1, 1)
        return _AutoState(
            **fields,
            z_qry=smoothed.z_qry,
            unevenness=uneven,
            chance=chance,
            beta=beta,
        )

    def step(self, task: TaskBatch, state: _AutoState) -> _AutoState:
        """One step of TIM-ADM with the weight that was decided."""
        return self.advance(task, state, 1)

    def advance(self, task: TaskBatch, state: _AutoState, n_steps: int) -> _AutoState:
        """Take many steps of TIM-ADM."""
        self._adm.advance(task, state, n_steps)
        return state

    def log_posterior(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        w = self.prototypes(task, state)
        return log_posterior(state.z_qry, w, self.reporting_temperature(task))

    def reporting_temperature(self, task: TaskBatch) -> float:
        """Temperature at which probabilities are calibrated, by the examples per class."""
        if _too_few(task):
            return _ALONE_TEMPERATURE
        return float(self.temperature * (task.n_sup / task.n_way) ** _GROWTH)

    def prototypes(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""
        return self._adm.prototypes(dataclasses.replace(task, z_qry=state.z_qry), state)

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
        columns = (state.unevenness, state.chance, state.beta)
        seen = f"with {task.n_sup} examples and {task.n_qry} queries"
        return tuple(
            balance.in_words(seen, *numbers)
            for numbers in zip(*(column.tolist() for column in columns), strict=True)
        )

    def working_set(self, task: TaskBatch) -> int:
        """Count what TIM-ADM touches, and the similarities of the queries."""
        return self._adm.working_set(task) + similarities_at_a_time(task.n_qry)

    def adm(self, beta: float, n_steps: int) -> TimAdm:
        """TIM-ADM with the settings of the solve, and this weight of the marginal entropy."""
        return TimAdm(
            n_steps=n_steps,
            temperature=self.solve_temperature,
            cross_entropy_weight=self.cross_entropy_weight,
            marginal_entropy_weight=beta,
            conditional_entropy_weight=self.conditional_entropy_weight,
        )

    @cached_property
    def _adm(self) -> TimAdm:
        """What takes the steps; weights of the marginal entropy are in the states."""
        return self.adm(1.0, self.n_steps + 2 * self.n_rehearsal_steps)

    def _smoothed(self, task: TaskBatch) -> TaskBatch:
        """Tasks whose queries are averaged with their neighbours."""
        if _too_few(task) or self.smoothing == 0:
            return task
        z_qry = averaged_with_neighbours(task.z_qry, self.smoothing, self.n_neighbours)
        return dataclasses.replace(task, z_qry=z_qry)

    def _started(self, task: TaskBatch) -> AdmState:
        start = self._adm.init(task)
        n_shots = class_counts(task.y_sup, task.n_way).to(start.weights.dtype)
        start.weights = shrunken(start.weights, n_shots, self.shrinkage)
        return start

    def _evidence(self, task: TaskBatch, start: AdmState) -> tuple[Tensor, Tensor]:
        """How uneven rehearsals come out, and nu, the scale of chance; both ``(task,)``."""
        if task.n_qry > _REHEARSED:
            some = balance.evenly_spaced(task.n_qry, _REHEARSED).to(task.z_qry.device)
            task = dataclasses.replace(task, z_qry=task.z_qry[:, some])
            start = self._started(task)
        n_shots = class_counts(task.y_sup, task.n_way).to(task.z_sup.dtype)
        chance = balance.chance(n_shots, task.n_qry)
        if _too_few(task):
            return torch.ones_like(chance), chance
        shares = [self._rehearse(task, start, beta) for beta in balance.REHEARSED]
        return balance.unevenness(*shares), chance

    def _rehearse(self, task: TaskBatch, start: AdmState, beta: float) -> Tensor:
        """Mean prediction over the queries after some steps with this weight."""
        state = dataclasses.replace(start, weights=start.weights.clone(), balance=beta / (1 + beta))
        state = self._adm.advance(task, state, self.n_rehearsal_steps)
        return self._adm.log_posterior(task, state).exp().mean(1)


def _too_few(task: TaskBatch) -> bool:
    return task.n_qry < 2 * task.n_way
