"""Whether equal class frequencies may be expected, told from a sample of the queries.

What TIM-auto does on all queries of a small task: two rehearsals, and from how uneven they come out
the weight of the marginal entropy, see ``solvers/balance.py``. Here a sample of the queries stands
for all of them, evenly spaced, and queries are not averaged with their neighbours.
"""

from dataclasses import dataclass

from torch import Tensor

from infoshot.solvers import TimAuto, balance
from infoshot.solvers.baselines.prototype import shrink
from infoshot.solvers.sharded.rows import Piece, Rows
from infoshot.solvers.sharded.sharded_adm import ShardedAdm

_LEAST, _PER_CLASS = 2048, 8  # queries of the sample


def sample_size(n_queries: int, n_classes: int) -> int:
    """How many queries to look at."""
    return min(n_queries, max(_LEAST, _PER_CLASS * n_classes))


@dataclass(frozen=True)
class Decision:
    """Weight of the marginal entropy; what the sample showed, and with what was decided."""

    beta: float
    evidence: str
    note: str


def decide_balance(
    auto: TimAuto, support: Rows, counts: Tensor, means: Tensor, sample: Tensor
) -> Decision:
    """Whether equal class frequencies may be expected.

    Parameters
    ----------
    auto
        Settings of the rehearsals.
    support
        All labelled rows.
    counts, means
        How many rows each class has, and their mean, float64, ``(class,)`` and ``(class, dim)``.
    sample
        Some of the queries, ``(query, dim)``.
    """
    pieces = [Piece("the sample of the queries", sample)]
    queries = Rows(pieces, support.chunk_size, support.device, support.n_threads)
    shares = []
    for beta in balance.TRIAL_WEIGHTS:
        adm = ShardedAdm(
            solver=auto.adm(beta, auto.n_trial_steps),
            support=support,
            queries=queries,
            n_support=len(support),
            n_queries=len(sample),
        )
        w = shrink(means, counts, auto.shrinkage)
        for _ in range(auto.n_trial_steps):
            w = adm.step(w)
        shares.append(adm.mean_prediction(w))
    uneven, nu = balance.imbalance(*shares), balance.chance(counts, len(sample))
    beta = float(balance.choose_weight(uneven, nu))
    seen = f"with {len(support)} examples and a sample of {len(sample):,} queries"
    evidence = balance.describe_evidence(seen, float(uneven), float(nu))
    return Decision(beta, evidence, balance.describe_decision(seen, float(uneven), float(nu), beta))
