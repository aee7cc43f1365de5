"""What a sample of the queries shows: how equal the class frequencies are, and how sure to be.

TIM-auto does the same on all queries of a small task: from the imbalance of two trial solves it
chooses the weight of the marginal entropy, see ``solvers/balance.py``. Here an evenly spaced sample
stands for all queries.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers import TimAuto, balance
from infoshot.solvers.baselines.prototype import Prototype, shrink
from infoshot.solvers.graph_evidence import spread_labels_over_queries
from infoshot.solvers.neighbours import find_neighbours
from infoshot.solvers.pooling import choose_sharpness, classify_by_means
from infoshot.solvers.sharded.rows import Piece, Rows
from infoshot.solvers.sharded.sharded_adm import ShardedAdm

_LEAST, _PER_CLASS = 2048, 8  # queries of the sample


def sample_size(n_queries: int, n_classes: int) -> int:
    """Number of queries in the sample."""
    return min(n_queries, max(_LEAST, _PER_CLASS * n_classes))


@dataclass(frozen=True)
class BalanceCheck:
    """Weight of the marginal entropy, what the sample shows, and that with the decision."""

    beta: float
    evidence: str
    note: str


def check_balance(
    auto: TimAuto, support: Rows, counts: Tensor, means: Tensor, sample: Tensor
) -> BalanceCheck:
    """Decide from a sample of the queries how equal the class frequencies can be expected to be.

    Parameters
    ----------
    auto
        Settings of the trial solves.
    support
        All labelled rows.
    counts, means
        Number of rows of each class, ``(class,)``, and their mean, ``(class, dim)``, float64.
    sample
        Some of the queries, prepared like the labelled rows, ``(query, dim)``.
    """
    queries = Rows([Piece.prepared(sample)], support.chunk_size, support.device, support.n_threads)
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
    imbalance, nu = balance.imbalance(*shares), balance.chance(counts, len(sample))
    beta = float(balance.choose_weight(imbalance, nu))
    seen = f"with {len(support)} examples and a sample of {len(sample):,} queries"
    evidence = balance.describe_evidence(seen, float(imbalance), float(nu))
    return BalanceCheck(
        beta, evidence, balance.describe_decision(seen, float(imbalance), float(nu), beta)
    )


def choose_temperature(auto: TimAuto, z: Tensor, y: Tensor, sample: Tensor, beta: float) -> float:
    """Return the temperature of the reported probabilities.

    Parameters
    ----------
    auto
        Settings of the method.
    z, y
        All labelled rows, ``(row, dim)``, and their classes, ``(row,)``.
    sample
        Some of the queries, prepared like the labelled rows, ``(query, dim)``.
    beta
        The weight of the marginal entropy.
    """
    task = TaskBatch(z.unsqueeze(0), y.unsqueeze(0), sample.unsqueeze(0), int(y.max()) + 1)
    means = Prototype(shrinkage=auto.shrinkage).init(task).weights
    near = find_neighbours(task.z_qry, auto.n_neighbours)
    sharpness = choose_sharpness(
        classify_by_means(task.z_qry, means),
        spread_labels_over_queries(task, near),
        torch.tensor([beta]),
        auto.temperature,
    )
    return auto.solve_temperature * float(sharpness)
