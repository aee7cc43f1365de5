"""The solver interface: write a frozen dataclass with two methods, and everything else works.

A *solver* is a frozen dataclass whose fields are its hyperparameters, each with a default. A
*state* is a dataclass derived from ``State`` whose tensors have the task as first axis. A solver
must define

- ``init(task)``: the state to start from,
- ``prototypes(task, state)``: class weights, shape ``(task, class, dim)``,

and may define ``step``, ``log_posterior``, ``classify`` and the other methods of ``Solver``, which
have defaults. ``solve`` runs the loop. Solvers never see query labels, files, clocks or progress
bars, and never write into the task. The example of :class:`Solver` is complete:
``solve(NearestMedian(), tasks)``, ``TIMClassifier(method=NearestMedian())``,
``resolve_method("my_methods:NearestMedian")`` and every other place that takes a method accept it;
``infoshot.testing.check_solver(NearestMedian())`` checks that it keeps the contract. By default
queries are classified by ``classify``: a softmax over squared distances from the class weights.
An iterative solver has a field ``n_steps`` and defines ``step``; with a field ``tolerance``,
``step`` also sets ``state.posterior``. A method whose answer for the queries is not a function of
the class weights alone defines ``log_posterior``.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import ShapeError
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import log_posterior, support_cross_entropy

Rule = Callable[[str, object], None]


@dataclasses.dataclass(eq=False, kw_only=True)
class State:
    """Intermediate result of a solve; every tensor field has the task as first axis.

    ``posterior`` holds the query probabilities that the last step started from, with classes as
    rows, shape ``(task, class, query)``. ``solve`` compares it between steps to stop tasks that
    have converged; a solver without a ``tolerance`` may leave it empty.

    Examples
    --------
    >>> @dataclasses.dataclass(eq=False)
    ... class MedianState(State):
    ...     weights: torch.Tensor  # (task, class, dim)
    >>> MedianState(weights=torch.zeros(2, 5, 64)).weights.shape
    torch.Size([2, 5, 64])
    """

    posterior: Tensor = dataclasses.field(default_factory=partial(torch.empty, 0))

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
    """A method that classifies the queries of few-shot tasks; see the module for how to write one.

    Concrete solvers are frozen dataclasses. Every field is a hyperparameter with a default.
    ``rules`` maps fields to checks of their values, for ``validate``; others take any value.

    Examples
    --------
    >>> @dataclasses.dataclass(eq=False)
    ... class MedianState(State):
    ...     weights: torch.Tensor  # (task, class, dim)
    >>> @dataclasses.dataclass(frozen=True, kw_only=True)
    ... class NearestMedian(Solver):
    ...     '''Nearest class median.'''
    ...     temperature: float = 10.0
    ...     def init(self, task):
    ...         of_class = [task.y_sup == k for k in range(task.n_way)]  # each (task, support)
    ...         z = [task.z_sup.where(mask.unsqueeze(-1), float("nan")) for mask in of_class]
    ...         return MedianState(weights=torch.stack([m.nanmedian(1).values for m in z], dim=1))
    ...     def prototypes(self, task, state):
    ...         return state.weights
    >>> NearestMedian().settings()
    {'temperature': 10.0}
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "n_steps": partial(checks.at_least, least=1, most=checks.MOST_STEPS),
        "temperature": checks.positive,
        "learning_rate": checks.positive,
        "tolerance": checks.positive_or_none,
        "class_prior": checks.prior_or_none,
    }

    @property
    def n_steps(self) -> int:
        """Largest number of steps of a task; 0 for a method without iterations."""
        return 0

    @property
    def tolerance(self) -> float | None:
        """A task stops once no query probability changes by more than this; ``None``: never."""
        return None

    @property
    def temperature(self) -> float:
        """Factor on similarities in the posterior; larger is sharper."""
        return 1.0

    @property
    def inductive(self) -> bool:
        """Whether ``classify`` labels new samples as ``log_posterior`` labels the queries.

        The estimator and ``label`` need such a solver. True by default, False by default for a
        solver that defines ``log_posterior``; a class attribute ``inductive = True`` or ``False``
        overrides both.
        """
        return type(self).log_posterior is Solver.log_posterior

    @property
    def rounding_error(self) -> float:
        """Largest effect of single-precision rounding on a probability that the solver declares.

        ``check_solver`` compares float32 with float64 features. A method whose steps depend on
        rounding, because they make discrete choices, may declare more, at most 0.05; its module
        then says why.
        """
        return 1e-3

    def init(self, task: TaskBatch) -> StateT:
        """Return the state to start from; by default an empty one, for methods without steps."""
        return cast("StateT", State())

    def step(self, task: TaskBatch, state: StateT) -> StateT:
        """Take one iteration for all tasks; it may write into ``state``, never into ``task``."""
        return state

    @abstractmethod
    def prototypes(self, task: TaskBatch, state: StateT) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""

    def log_posterior(self, task: TaskBatch, state: StateT) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``.

        Default: ``classify`` with the class weights.
        """
        return self.classify(task.z_qry, self.prototypes(task, state))

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples given class weights, ``(task, sample, class)``.

        Default: a softmax over minus half the squared distance, times the temperature.
        """
        return log_posterior(z, prototypes, self.temperature)

    def outlier_scores(self, task: TaskBatch, state: StateT) -> Tensor | None:
        """How unlikely each query belongs to any class, ``(task, query)``; larger is less likely.

        ``None``: one minus the largest probability.
        """
        return None

    def notes(self, task: TaskBatch, state: StateT) -> tuple[str, ...]:
        """One sentence for the user per task, empty where there is nothing to say; or ``()``."""
        return ()

    def loss(self, task: TaskBatch, log_p_sup: Tensor, log_p_qry: Tensor) -> Tensor:
        """Value of the objective for traces, shape ``(task,)``.

        Default: the support cross-entropy.
        """
        return support_cross_entropy(log_p_sup, task.y_sup)

    def objective(self, task: TaskBatch, state: StateT) -> Tensor | None:
        """Value that the steps decrease, shape ``(task,)``.

        ``solve`` watches it and reports tasks that end higher than they were on the way. ``None``,
        the default: there is nothing to watch.
        """
        return None

    def with_smaller_steps(self) -> Self | None:
        """Return the solver for tasks that diverge, or ``None`` if it has no size of steps."""
        return None

    def planned_steps(self, task: TaskBatch) -> int:
        """Largest number of steps for tasks of this shape. Default: ``n_steps``."""
        return self.n_steps

    def advance(self, task: TaskBatch, state: StateT, n_steps: int) -> StateT:
        """Take many steps at once. Default: a loop over ``step``."""
        for _ in range(n_steps):
            state = self.step(task, state)
        return state

    def reporting_temperature(self, task: TaskBatch, state: StateT) -> Tensor:
        """Temperature at which the prototypes classify new samples, shape ``(task,)``."""
        return task.z_qry.new_full((len(task),), self.temperature)

    def at_temperature(self, temperature: float) -> Self:
        """Return the solver with this temperature; unchanged if it has no such field."""
        if "temperature" not in self.settings():
            return self
        return self.with_settings(temperature=temperature)

    def working_set(self, task: TaskBatch) -> int:
        """Count the numbers that a step touches per task; it decides how many make a chunk."""
        return (task.n_sup + task.n_qry + task.n_way) * task.dim

    def splits_samples(self, task: TaskBatch) -> bool:
        """Whether tasks of this shape are divided into blocks by ``core.parallel.map_blocks``.

        The threads of ``solve`` then share the blocks of a single chunk. By default they share its
        matrix products.
        """
        return False

    def settings(self) -> dict[str, Any]:
        """Hyperparameters by name: those that a user can change."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def provenance(self) -> dict[str, Any]:
        """What a result of the solver depends on, as rows record it. Default: ``settings``."""
        return self.settings()

    def with_settings(self, **changes: Any) -> Self:  # noqa: ANN401 - of any field's type
        """Return the same solver with some hyperparameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def validate(self, n_way: int | None = None) -> None:
        """Raise if a hyperparameter has a value that is not allowed (for this many classes)."""
        for name, rule in self.rules.items():
            if name in self.__dict__:
                rule(f"{type(self).__name__}: {name}", getattr(self, name))
        prior = self.__dict__.get("class_prior")
        if prior is not None and n_way is not None and len(prior) != n_way:
            raise ShapeError(
                f"{type(self).__name__}: class_prior must hold one weight for each of the {n_way} "
                f"classes; got {len(prior)}."
            )
