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
        classifier = self._classifier(w, self.queries, kit.DTYPE)
        how = {"classifier": classifier, "power": 1 + solver.conditional_entropy_weight}
        sums = self._sum(self._over_queries(partial(kit.class_sums, **how), w.new_zeros(len(w))))
        moments = partial(kit.query_moments, **how, shift=self._shift(sums))
        own = self._over_queries(moments, w.new_zeros(len(w), w.shape[1] + 2))
        if (whitening := self.queries.preparation.whitening) is not None:
            own[:, :-2] = whitening.shorten(own[:, :-2])
        total = self._sum(own + self._over_support(w))
        moved, a, c = total[:, :-2], total[:, -2:-1], total[:, -1:]
        updated = (a * w + moved) / c
        # A class without support weight that is far from all queries keeps its weights.
        return w.lerp(updated.where(c > 0, w), solver.step_size())

    def mean_prediction(self, w: Tensor) -> Tensor:
        """Mean posterior over all queries, ``(class,)``, float64."""
        work = partial(passes.prediction_sums, classifier=self._classifier(w, self.queries))
        return self._sum(self._over_queries(work, w.new_zeros(len(w)))) / self.n_queries

    def moved(self, queries: Tensor, before: Tensor, after: Tensor) -> float:
        """Largest change of the probabilities of prepared queries between two class weights."""
        device = self.queries.device
        z = queries.to(device)
        scales = z.new_ones(len(z), 1)
        p_before, p_after = (
            passes.posterior(z, scales, Classifier.of(w, self.solver.temperature, device))
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
        classifier = self._classifier(w, self.support)
        total = w.new_zeros(len(w), w.shape[1] + 2, device=self.support.device)
        for _, part in self.support.map(partial(passes.support_moments, classifier=classifier)):
            total += part
        return total * weight

    def _over_queries(self, work: Callable[..., Tensor], zeros: Tensor) -> Tensor:
        """Sum over the queries of this process, which begins with ``zeros``."""
        total = zeros.to(self.queries.device)
        for _, part in self.queries.map(work):
            total += part
        return total

    def _sum(self, own: Tensor) -> Tensor:
        """Sum over all processes, on the CPU."""
        return self.sum_over_processes(own).cpu()

    def _classifier(self, w: Tensor, rows: Rows, dtype: torch.dtype = passes.DTYPE) -> Classifier:
        whitening, temperature = rows.preparation.whitening, self.solver.temperature
        return Classifier.of(w, temperature, rows.device, dtype=dtype, whitening=whitening)
