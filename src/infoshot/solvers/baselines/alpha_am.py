r"""Alpha-AM, adaptive manifold: scores spread over a graph that is learnt with the class weights.

Alpha-AM replaces the distances of alpha-TIM by similarities along a graph of nearest neighbours of
the class weights, the support and the queries. It descends on the class weights and on two numbers
for each pair of samples.

Objective, with Tsallis entropies of order a as in ``alpha_tim.py`` and the scores F of
``manifold.py``, which spread from the class weights w over a graph with parameters g and h:

.. math:: CE - H_a(\hat p) + \frac{1}{|Q|} \sum_{i \in Q} H_a(p_i), \qquad p_i = softmax(\tau F_i)

Update: Adam on the gradient over w, g and h; it starts from the class means, g = 1 and h = c. The
neighbours are chosen again in every step.

Cost for N nodes: N N N / 3 operations for the linear system, 2 K N d for the distances and about
60 N N for the rest, in each of 1000 steps. When to prefer it: with one example per class and
moderately imbalanced queries, where time is no concern.

Numerics: neighbours that change places make the gradient jump, and a pair at the edge of the
neighbours keeps entering and leaving. Rounding decides when. Steps are therefore computed in
float64 for features of any precision. What remains is the rounding of the features themselves:
float32 and float64 features differ by 4e-8 in the probabilities of real 1-shot tasks, and by up to
0.02 in those of small synthetic tasks, so the solver declares a ``rounding_error`` of 0.05.

Reference: M. Lazarou, Y. Avrithis, T. Stathaki. Adaptive manifold for imbalanced transductive
few-shot learning. WACV 2024. As published: the graph, the parameters, the numbers of neighbours and
the orders for 1 and 5 examples. What differs: between 1 and 5 examples per class (on average) those
for 1 apply, where the original has none; of equally near neighbours, as a class mean and its only
example are at the start, all are kept; probabilities are the softmax of the scores, of which the
original reports only the largest; features are of unit length, without its PLC preparation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.adam import AdamState
from infoshot.solvers.alpha_tim import tsallis_slope
from infoshot.solvers.manifold import ManifoldGraph, distances
from infoshot.solvers.objective import class_means, class_rows
from infoshot.solvers.solver import Rule, Solver, State


def _whole_or_none(name: str, value: object) -> None:
    if value is not None:
        checks.at_least(name, value, 1)


def _below_one_or_none(name: str, value: object) -> None:
    if value is not None:
        checks.below_one(name, value)


@dataclass(eq=False, kw_only=True)
class _ManifoldState(State):
    z: Tensor  # support and queries, [task, sample, dim]
    between: Tensor  # their distances, [task, sample, sample]
    y: Tensor  # one-hot support labels, [task, support, class]
    w: AdamState  # class weights
    g: AdamState  # sharpness of each pair, [task, node, node]
    h: AdamState  # weight of each pair, [task, node, node]


@final
@dataclass(frozen=True, kw_only=True)
class AlphaAm(Solver[_ManifoldState]):
    r"""Adaptive manifold: class weights and a graph, learnt with Tsallis entropies.

    Parameters
    ----------
    n_steps
        Gradient steps per task.
    temperature
        Factor on the scores (:math:`\tau`); larger is sharper.
    learning_rate
        Adam's step size.
    n_neighbours
        Edges that a sample keeps. ``None``: as published, 20 below five examples per class (on
        average), else 10.
    propagation
        Weight of the neighbours (c), below 1. ``None``: 0.8 or 0.9, likewise.
    tsallis_alpha
        Order of the entropies (a). ``None``: 2 or 5, likewise.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.7, 0.3], [0.1, 0.9], [0.2, 0.8]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2)
    >>> solve(AlphaAm(n_steps=10, n_neighbours=3), tasks).probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "learning_rate": partial(checks.between, low=1e-12, high=1e-2),
        "n_neighbours": _whole_or_none,
        "propagation": _below_one_or_none,
        "tsallis_alpha": checks.positive_or_none,
    }

    n_steps: int = 1000
    temperature: float = 15.0
    learning_rate: float = 1e-4
    n_neighbours: int | None = None
    propagation: float | None = None
    tsallis_alpha: float | None = None

    @property
    def rounding_error(self) -> float:
        """Largest effect of rounding on a probability; see Numerics of the module."""
        return 0.05

    def init(self, task: TaskBatch) -> _ManifoldState:
        """Start from the class means and equal pairs."""
        z = torch.cat((task.z_sup, task.z_qry), dim=1).double()
        y = class_rows(task.y_sup, task.n_way, z.dtype).mT
        n_nodes = task.n_way + z.shape[1]
        pairs = z.new_ones(len(task), n_nodes, n_nodes)
        return _ManifoldState(
            z=z,
            between=distances(z, z),
            y=y,
            w=AdamState(weights=class_means(z[:, : task.n_sup], task.y_sup, task.n_way)),
            g=AdamState(weights=pairs),
            h=AdamState(weights=pairs * self._propagation(task)),
        )

    def step(self, task: TaskBatch, state: _ManifoldState) -> _ManifoldState:
        """Take one step of Adam on the class weights and on the pairs."""
        of_w, of_g, of_h = self.gradients(task, state)
        state.w.descend(of_w, self.learning_rate)
        state.g.descend(of_g, self.learning_rate)
        state.h.descend(of_h, self.learning_rate)
        return state

    def gradients(self, task: TaskBatch, state: _ManifoldState) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of the loss over w, g and h."""
        graph = self._graph(task, state)
        return graph.gradients(self._by_scores(task, state, graph.scores), state.z)

    def log_posterior(self, task: TaskBatch, state: _ManifoldState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        scores = self._graph(task, state).scores[:, task.n_way + task.n_sup :]
        return torch.log_softmax(self.temperature * scores, dim=-1).to(task.z_sup.dtype)

    def prototypes(self, task: TaskBatch, state: _ManifoldState) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""
        return state.w.weights.to(task.z_sup.dtype)

    def working_set(self, task: TaskBatch) -> int:
        """Count the features and some thirty matrices over all pairs of nodes, in float64."""
        n = task.n_way + task.n_sup + task.n_qry
        return 2 * (n * task.dim + 30 * n * n)

    def _few(self, task: TaskBatch) -> bool:
        return task.n_sup < 5 * task.n_way

    def _propagation(self, task: TaskBatch) -> float:
        if self.propagation is not None:
            return self.propagation
        return 0.8 if self._few(task) else 0.9

    def _graph(self, task: TaskBatch, state: _ManifoldState) -> ManifoldGraph:
        few = 20 if self._few(task) else 10
        return ManifoldGraph.build(
            state.w.weights,
            state.z,
            state.between,
            sharpness=state.g.weights,
            pair_weights=state.h.weights,
            n_neighbours=self.n_neighbours or few,
            propagation=self._propagation(task),
        )

    def _by_scores(self, task: TaskBatch, state: _ManifoldState, scores: Tensor) -> Tensor:
        """Gradient of the loss over the scores, ``(task, node, class)``."""
        order = self.tsallis_alpha or (2.0 if self._few(task) else 5.0)
        n_way, n_qry, n_labelled = task.n_way, task.n_qry, task.n_way + task.n_sup
        log_p = torch.log_softmax(self.temperature * scores, dim=-1)
        p = log_p.exp()
        q = p[:, n_labelled:]
        u = tsallis_slope(q.mean(1, keepdim=True).log_(), order) - tsallis_slope(
            log_p[:, n_labelled:], order
        )
        gradient = torch.zeros_like(p)
        gradient[:, n_way:n_labelled] = (p[:, n_way:n_labelled] - state.y) / task.n_sup
        gradient[:, n_labelled:] = q * (u - (q * u).sum(-1, keepdim=True)) / n_qry
        return gradient.mul_(self.temperature)
