"""The interface of a solver: hyperparameters, a start, a step, and how to read off the answer.

A *solver* is a frozen dataclass whose fields are its hyperparameters. A *state* is a private
dataclass whose tensors have the task as first axis. The loop over steps is ``loop.solve``. Solvers
never see query labels, files, clocks or progress bars.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Self, TypeVar

from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import ShapeError
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import log_posterior, support_cross_entropy

Rule = Callable[[str, object], None]
RULES: dict[str, Rule] = {
    "n_steps": partial(checks.at_least, least=1),
    "n_rehearsal_steps": partial(checks.at_least, least=1),
    "temperature": checks.positive,
    "solve_temperature": checks.positive,
    "learning_rate": checks.positive,
    "cross_entropy_weight": checks.not_negative,
    "marginal_entropy_weight": checks.not_negative,
    "conditional_entropy_weight": checks.not_negative,
    "prototype_step_size": checks.share_or_none,
    "shrinkage": checks.not_negative,
    "smoothing": checks.share_below_one,
    "tsallis_alpha": checks.positive_or_none,
    "marginal_weight": checks.positive_or_none,
    "inlier_temperature": checks.positive,
    "class_prior": checks.prior_or_none,
    "tolerance": checks.positive_or_none,
    "n_neighbours": partial(checks.at_least, least=1),
    "affinity_weight": checks.positive_or_none,
    "propagation": checks.below_one,
    "linearized": partial(checks.one_of, allowed=(True, False)),
    "rectify": partial(checks.one_of, allowed=(True, False)),
    "form": partial(checks.one_of, allowed=("auto", "gram", "feature")),
}


@dataclasses.dataclass(eq=False)
class State:
    """Where the solve of a chunk stands; every tensor field has the task as first axis.

    ``posterior`` holds the query probabilities that the last step started from, with classes as
    rows, shape ``(task, class, query)``: what is compared to tell whether a task still moves.
    """

    posterior: Tensor

    def select(self, keep: Tensor) -> Self:
        """Return the state of some of the tasks, by mask."""
        tensors = {
            field.name: value[keep]
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return dataclasses.replace(self, **tensors)


StateT = TypeVar("StateT", bound=State)


class Solver(ABC, Generic[StateT]):
    """A method for classifying the queries of few-shot tasks.

    Concrete solvers are final frozen dataclasses; every hyperparameter is a field whose default is
    the published value and whose allowed values are in ``RULES``.
    """

    @property
    def n_steps(self) -> int:
        """Most steps a task may take; 0 for a method without iterations."""
        return 0

    @property
    def tolerance(self) -> float | None:
        """Stop a task once no query probability moved by more than this; ``None``: never."""
        return None

    @property
    def inductive(self) -> bool:
        """Whether ``classify`` labels new samples as ``log_posterior`` labels the queries.

        True unless a solver defines ``log_posterior`` itself; one that does and still leaves class
        weights for new samples sets the class attribute ``inductive = True``.
        """
        return type(self).log_posterior is Solver.log_posterior

    @property
    @abstractmethod
    def temperature(self) -> float:
        """Factor on similarities in the posterior; larger is sharper."""

    def reporting_temperature(self, task: TaskBatch) -> float:
        """Temperature of the probabilities that are reported for tasks of this shape."""
        return self.temperature

    @abstractmethod
    def init(self, task: TaskBatch) -> StateT:
        """Where to start from."""

    def planned_steps(self, task: TaskBatch) -> int:
        """Most steps that tasks of this shape may take."""
        return self.n_steps

    def step(self, task: TaskBatch, state: StateT) -> StateT:
        """One iteration for all tasks; it may write into ``state``, never into ``task``."""
        return state

    def advance(self, task: TaskBatch, state: StateT, n_steps: int) -> StateT:
        """Take many steps, without a look at what is between them."""
        for _ in range(n_steps):
            state = self.step(task, state)
        return state

    def log_posterior(self, task: TaskBatch, state: StateT) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``.

        Default: what ``classify`` gives them with the class weights.
        """
        return self.classify(task.z_qry, self.prototypes(task, state))

    @abstractmethod
    def prototypes(self, task: TaskBatch, state: StateT) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities that class weights give to any samples, ``(task, sample, class)``."""
        return log_posterior(z, prototypes, self.temperature)

    def outlier_scores(self, task: TaskBatch, state: StateT) -> Tensor | None:
        """How little each query belongs to any class, shape ``(task, query)``; larger is stranger.

        ``None``: one minus the largest probability.
        """
        return None

    def notes(self, task: TaskBatch, state: StateT) -> tuple[str, ...]:
        """What a user should know of each task, a sentence or none (``""``); ``()``: nothing."""
        return ()

    def loss(self, task: TaskBatch, log_p_sup: Tensor, log_p_qry: Tensor) -> Tensor:
        """Return the objective of TIM's family, else the support cross-entropy; for traces.

        Shape ``(task,)``.
        """
        return support_cross_entropy(log_p_sup, task.y_sup)

    def working_set(self, task: TaskBatch) -> int:
        """Count the numbers that a step touches per task; decides how many tasks make a chunk."""
        return (task.n_sup + task.n_qry + task.n_way) * task.dim

    def settings(self) -> dict[str, Any]:
        """Hyperparameters by name."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def with_settings(self, **changes: Any) -> Self:  # noqa: ANN401 - of any field's type
        """Return the same solver with some hyperparameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def validate(self, n_way: int | None = None) -> None:
        """Raise if a hyperparameter has a value that is not allowed (for this many classes)."""
        for name, rule in RULES.items():
            if name in self.__dict__:
                rule(f"{type(self).__name__}: {name}", getattr(self, name))
        prior = self.__dict__.get("class_prior")
        if prior is not None and n_way is not None and len(prior) != n_way:
            raise ShapeError(
                f"{type(self).__name__}: class_prior must hold one weight for each of the {n_way} "
                f"classes; got {len(prior)}."
            )
