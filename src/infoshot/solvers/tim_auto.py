r"""TIM-auto: TIM-ADM that estimates from the features how balanced the classes are.

TIM's marginal entropy favours equally frequent classes among the queries. On balanced queries that
gains about ten points of accuracy; on imbalanced ones it costs ten to fifty. Its weight
:math:`\beta` is 1 in the paper; around :math:`\beta = \alpha` it is a mild preference, and below
that the queries decide. TIM-auto chooses the weight for each task.

Objective: [ADM] of ``docs/math.md`` with the chosen :math:`\beta`. Procedure:

1. **Smooth**: every query is averaged with its nearest queries (``neighbours.py``), and the class
   means start shrunken (``prototype.py``). Neither depends on the class frequencies. Features were
   whitened before, where the scatter within the base classes is known (``features/normalize.py``).
2. **Two trial solves**, with a small and a larger weight and at most 2,048 evenly spaced queries,
   measure the imbalance of the predicted class proportions, :math:`D = 1 - H(\hat p) / \log K`.
3. **Choose the weight** :math:`\beta`, from 0.8 for no imbalance to 0.03, see ``balance.py``.
4. **Solve** with TIM-ADM and that weight, from the same start.
5. **Ask two others**, the nearest shrunken class mean and labels that spread over a graph
   (``graph_evidence.py``). Their log-probabilities are added where steps 2 and 3 leave the balance
   open, see ``pooling.py``, which also says how sharp the probabilities are.

With fewer than two queries per class the nearest class mean decides, shrunken towards a point that
is near the origin for whitened features (``prototype.py``). The outlier score of a query is its
squared distance from the nearest prototype. Prototypes alone classify new samples.

Cost: 140 steps of TIM-ADM (slightly more than 60 for many queries), and for the neighbours 2 to 4
\|Q\| \|Q\| d operations, from 20,000 queries on about 16,000 \|Q\| d. It is the default, for any
class balance; ``docs/tim-auto.md`` has the experiments, also the negative ones.

Reference: [Boudiaf2020]_ in ``objective.py`` for the solve; the rest is our own.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers import balance, pooling
from infoshot.solvers.adm_blocks import AdmState
from infoshot.solvers.baselines.prototype import Prototype, shrink, trust_common_mean
from infoshot.solvers.neighbours import (
    average_with_neighbours,
    find_neighbours,
    similarities_at_a_time,
)
from infoshot.solvers.objective import class_counts, class_logits, class_means, log_posterior
from infoshot.solvers.solver import Rule, Solver
from infoshot.solvers.tim_adm import TimAdm

_MOST_TRIAL_QUERIES = 2048  # the trial solves use a subset of this size if there are more


@dataclass(eq=False, kw_only=True)
class _AutoState(AdmState):
    z_qry: Tensor  # averaged with their neighbours, [task, query, dim]
    imbalance: Tensor  # of the trial solves, [task]
    chance: Tensor  # nu, the scale of chance, [task]
    beta: Tensor  # the chosen weight, [task]
    others: Tensor  # weighted log-probabilities of the other classifications, [task, class, query]
    scale: Tensor  # factor on the sum of all classifications, [task]
    sharpness: Tensor  # factor on the classification of the solve alone, [task]


@final
@dataclass(frozen=True, kw_only=True)
class TimAuto(Solver[_AutoState]):
    """TIM for any class balance.

    Parameters
    ----------
    n_steps, n_trial_steps
        Alternations of the solve, and of each of the two trial solves.
    temperature
        Sharpness of the reported probabilities: 10.5 is calibrated, twice that is twice as sharp.
    solve_temperature
        Factor on the squared distance during the solve.
    cross_entropy_weight, conditional_entropy_weight
        Weights of the two terms of the objective that are fixed.
    shrinkage
        Number of examples that the mean of all classes counts as in the class means at the start.
    smoothing
        Weight of the neighbours in a smoothed query.
    n_neighbours
        Nearest queries that a query is averaged with, and that a sample has edges to in the graph.
    means_weight, graph_weight
        Weights of the class means and of the graph, where they count most.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(TimAuto(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "n_trial_steps": partial(checks.at_least, least=1, most=checks.MOST_STEPS),
        "solve_temperature": checks.positive,
        "cross_entropy_weight": checks.not_negative,
        "conditional_entropy_weight": checks.not_negative,
        "shrinkage": checks.not_negative,
        "smoothing": checks.share_below_one,
        "n_neighbours": partial(checks.at_least, least=1),
        "means_weight": checks.not_negative,
        "graph_weight": checks.not_negative,
    }
    inductive = True

    n_steps: int = 60
    n_trial_steps: int = 40
    temperature: float = pooling.CALIBRATED
    solve_temperature: float = 35.0
    cross_entropy_weight: float = 0.15
    conditional_entropy_weight: float = 0.1
    shrinkage: float = 5.0
    smoothing: float = 0.3
    n_neighbours: int = 8
    means_weight: float = pooling.MEANS_WEIGHT
    graph_weight: float = pooling.GRAPH_WEIGHT

    def planned_steps(self, task: TaskBatch) -> int:
        """No steps if there are too few queries."""
        return 0 if _too_few(task) else self.n_steps

    def init(self, task: TaskBatch) -> _AutoState:
        """Smooth the features, run the trial solves, choose the weight, ask the others."""
        near = None if _too_few(task) else find_neighbours(task.z_qry, self.n_neighbours)
        smoothed = task
        if near is not None:
            z_qry = average_with_neighbours(task.z_qry, near, self.smoothing)
            smoothed = dataclasses.replace(task, z_qry=z_qry)
        start = self._start(smoothed)
        imbalance, chance = self._evidence(smoothed, start)
        beta = balance.choose_weight(imbalance, chance)
        fields = {field.name: getattr(start, field.name) for field in dataclasses.fields(start)}
        fields["balance"] = (beta / (1 + beta)).view(-1, 1, 1)
        fields |= {"imbalance": imbalance, "chance": chance, "beta": beta, "z_qry": smoothed.z_qry}
        if near is None:
            ones = torch.ones_like(beta)
            return _AutoState(**fields, others=ones.view(-1, 1, 1), scale=ones, sharpness=ones)
        means = Prototype(shrinkage=self.shrinkage).init(task).weights
        settings = (self.means_weight, self.graph_weight, self.temperature)
        ambiguity = pooling.weigh_others(imbalance, chance)
        others = pooling.ask_others(task, near, means, settings, ambiguity, beta)
        return _AutoState(**fields, **vars(others))

    def step(self, task: TaskBatch, state: _AutoState) -> _AutoState:
        """Take one step of TIM-ADM with the chosen weight."""
        return self.advance(task, state, 1)

    def advance(self, task: TaskBatch, state: _AutoState, n_steps: int) -> _AutoState:
        """Take many steps of TIM-ADM."""
        self._adm.advance(task, state, n_steps)
        return state

    def log_posterior(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        w = self.prototypes(task, state)
        if _too_few(task):
            return log_posterior(state.z_qry, w, pooling.MEANS_TEMPERATURE)
        weight_of_support = self.cross_entropy_weight / (1 + self.conditional_entropy_weight)
        share = task.n_way / (task.n_qry * (1 + weight_of_support))
        own = pooling.classify_without_own_share(state.z_qry, w, self.solve_temperature, share)
        pooled = own.add_(state.others).mul_(state.scale.view(-1, 1, 1))
        return torch.log_softmax(pooled, dim=1).mT

    def objective(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Return the TIM loss with the chosen weight, shape ``(task,)``."""
        return self._adm.loss_of(task, state, state.beta)

    def reporting_temperature(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Temperature at which the prototypes classify new samples, shape ``(task,)``."""
        if _too_few(task):
            return torch.full_like(state.sharpness, pooling.MEANS_TEMPERATURE)
        return self.solve_temperature * state.sharpness

    def prototypes(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""
        return self._adm.prototypes(dataclasses.replace(task, z_qry=state.z_qry), state)

    def outlier_scores(self, task: TaskBatch, state: _AutoState) -> Tensor:
        """Squared distance from the nearest prototype, shape ``(task, query)``."""
        nearness = class_logits(state.z_qry, self.prototypes(task, state), 2.0).amax(1)
        square: Tensor = torch.linalg.vecdot(state.z_qry, state.z_qry)
        return square.sub_(nearness).clamp_(min=0)

    def notes(self, task: TaskBatch, state: _AutoState) -> tuple[str, ...]:
        """Say for each task which weight was chosen and why."""
        if _too_few(task):
            return (balance.describe_too_few(task.n_qry, task.n_way),) * len(task)
        counts = f"with {task.n_sup} examples and {task.n_qry} queries"
        columns = (state.imbalance.tolist(), state.chance.tolist(), state.beta.tolist())
        decisions = zip(*columns, strict=True)
        return tuple(balance.describe_decision(counts, *numbers) for numbers in decisions)

    def working_set(self, task: TaskBatch) -> int:
        """Count the working set of TIM-ADM, and the similarities of the queries."""
        return self._adm.working_set(task) + similarities_at_a_time(task.n_qry)

    def splits_samples(self, task: TaskBatch) -> bool:
        """Whether the steps divide the samples into blocks."""
        return self._adm.splits_samples(task)

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
        """The solver of the steps; the weights of the marginal entropy are in the states."""
        return self.adm(1.0, self.n_steps + 2 * self.n_trial_steps)

    def _start(self, task: TaskBatch) -> AdmState:
        """Start from the shrunken class means."""
        start = self._adm.init(task)
        n_shots = class_counts(task.y_sup, task.n_way).to(start.weights.dtype)
        means = class_means(task.z_sup, task.y_sup, task.n_way) if _too_few(task) else None
        trust = 1 if means is None else trust_common_mean(means)
        start.weights = shrink(start.weights, n_shots, self.shrinkage, trust)
        return start

    def _evidence(self, task: TaskBatch, start: AdmState) -> tuple[Tensor, Tensor]:
        """Imbalance of the trial solves, and nu, the scale of chance; both ``(task,)``."""
        if task.n_qry > _MOST_TRIAL_QUERIES:
            some = balance.evenly_spaced(task.n_qry, _MOST_TRIAL_QUERIES).to(task.z_qry.device)
            task = dataclasses.replace(task, z_qry=task.z_qry[:, some])
            start = self._start(task)
        n_shots = class_counts(task.y_sup, task.n_way).to(task.z_sup.dtype)
        chance = balance.chance(n_shots, task.n_qry)
        if _too_few(task):
            return torch.ones_like(chance), chance
        return balance.try_solves(self._adm, task, start, self.n_trial_steps), chance


def _too_few(task: TaskBatch) -> bool:
    return task.n_qry < 2 * task.n_way
