r"""TIM-ADM over queries that are processed in chunks, by one or several processes.

The iteration is that of ``solvers/tim_adm.py`` in its feature form. The posterior of a query
depends on the class weights only, so it is recomputed when needed and never stored. An iteration is
two passes over the queries, each followed by a sum over all processes:

1. :math:`s_k = \sum_i p_{ik}^{1+\alpha}`, K numbers, what [Q-STEP] needs of the other queries;
2. :math:`\sum_i (q_{ik} - p_{ik}) z_i`, :math:`\sum_i p_{ik}` and :math:`\sum_i q_{ik}`,
   K (d + 2) numbers, what [W-STEP] needs of them, and the same over the support with y in
   place of q.

The cost is three products of 2 \|Q\| K d operations; matrices of \|Q\| K entries exist for one
chunk at a time. Sums within a chunk are in float32, sums over chunks and processes in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from infoshot.solvers import TimAdm
from infoshot.solvers.sharded import half, passes
from infoshot.solvers.sharded.passes import Classifier
from infoshot.solvers.sharded.rows import Rows

_SMALLEST = 2.0**-120  # lower bound of the sums s_k, which are 0 for a class far from all queries


@dataclass(frozen=True, eq=False)
class ShardedAdm:
    """Data of the iteration; class weights are ``(class, dim)``, float64, on the CPU.

    ``support`` and ``queries`` are those of this process, ``n_support`` and ``n_queries`` count
    those of all processes; ``sum_over_processes`` sums a tensor over them.
    """

    solver: TimAdm
    support: Rows
    queries: Rows
    n_support: int
    n_queries: int
    sum_over_processes: Callable[[Tensor], Tensor] = lambda values: values

    def step(self, w: Tensor) -> Tensor:
        """Return the class weights after one iteration."""
        solver, kit = self.solver, half if self.queries.as_stored else passes
        classifier = Classifier.of(w, solver.temperature, self.queries.device, kit.DTYPE)
        how = {"classifier": classifier, "power": 1 + solver.conditional_entropy_weight}
        sums = self._over_queries(partial(kit.class_sums, **how), w)
        moments = partial(kit.query_moments, **how, shift=self._shift(sums))
        total = self._over_queries(moments, w, start=self._over_support(w))
        moved, a, c = total[:, :-2], total[:, -2:-1], total[:, -1:]
        updated = (a * w + moved) / c
        # A class without support weight that is far from all queries keeps its weights.
        return w.lerp(updated.where(c > 0, w), solver.step_size())

    def mean_prediction(self, w: Tensor) -> Tensor:
        """Mean posterior over all queries, ``(class,)``, float64."""
        classifier = Classifier.of(w, self.solver.temperature, self.queries.device)
        work = partial(passes.prediction_sums, classifier=classifier)
        return self._over_queries(work, w) / self.n_queries

    def moved(self, queries: Tensor, before: Tensor, after: Tensor) -> float:
        """Largest change of the probabilities of some queries between two class weights."""
        device = self.queries.device
        z = queries.to(device)
        p_before, p_after = (
            passes.posterior(z, Classifier.of(w, self.solver.temperature, device))
            for w in (before, after)
        )
        return float((p_after - p_before).abs().max())

    def _shift(self, sums: Tensor) -> Tensor:
        """Term that the q-step subtracts for each class, in base 2, see [Q-STEP]."""
        log_share = sums.clamp(min=_SMALLEST).log2()
        prior = self.solver.class_prior
        if prior is not None:
            shares = torch.as_tensor(prior, dtype=torch.float64)
            log_share -= (shares / shares.sum()).log2()
        beta = self.solver.marginal_entropy_weight
        return (log_share * (beta / (1 + beta))).float().to(self.queries.device)

    def _over_support(self, w: Tensor) -> Tensor:
        """Moments of the support of this process, with its weight relative to the queries."""
        weight = self.solver.support_weight(self.n_support, self.n_queries)
        classifier = Classifier.of(w, self.solver.temperature, self.support.device)
        total = w.new_zeros(len(w), w.shape[1] + 2, device=self.support.device)
        for _, part in self.support.map(partial(passes.support_moments, classifier=classifier)):
            total += part
        return total * weight

    def _over_queries(
        self, work: Callable[..., Tensor], w: Tensor, start: Tensor | None = None
    ) -> Tensor:
        """Sum over the queries of all processes; ``start`` is added by each process."""
        total = w.new_zeros(len(w), device=self.queries.device) if start is None else start
        for _, part in self.queries.map(work):
            total += part
        return self.sum_over_processes(total).cpu()
