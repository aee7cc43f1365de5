import dataclasses

import numpy as np
import pytest
import torch

from infoshot import solve
from infoshot.benchmark import Protocol, score_cell
from infoshot.solvers import METHODS, Prototype
from infoshot.solvers.baselines.prototype import trust_common_mean
from infoshot.tasks import TaskSpec, gaussian_tasks


def _by_hand(z_sup, y_sup, z_qry, n_way, kappa, tau):
    """One task in plain loops."""
    shots = [z_sup[y_sup == k] for k in range(n_way)]
    means = [rows.sum(0) / len(rows) for rows in shots]
    common = sum(means) / n_way
    out = np.empty((len(z_qry), n_way))
    for i, z in enumerate(z_qry):
        for k in range(n_way):
            n = len(shots[k])
            s = (n * means[k] + kappa * common) / (n + kappa)
            out[i, k] = np.exp(-tau / 2 * ((z - s) ** 2).sum())
    return out / out.sum(1, keepdims=True)


@pytest.mark.parametrize("kappa", [0.0, 1.5, 5.0, 100.0])
def test_equals_its_formula_also_with_unequal_shots(kappa):
    tasks, _ = gaussian_tasks(3, n_way=4, n_shot=3, n_query=5, dim=8, dtype=torch.float64)
    keep = [0, 1, 2, 3, 4, 6, 9, 10]  # 3, 2, 1 and 2 examples
    tasks = dataclasses.replace(tasks, z_sup=tasks.z_sup[:, keep], y_sup=tasks.y_sup[:, keep])
    p = solve(Prototype(shrinkage=kappa, temperature=3.0), tasks).probabilities
    for i in range(3):
        arrays = (tasks.z_sup[i].numpy(), tasks.y_sup[i].numpy(), tasks.z_qry[i].numpy())
        np.testing.assert_allclose(p[i], _by_hand(*arrays, 4, kappa, 3.0), atol=1e-12)


def test_gains_with_one_example_and_does_no_harm_with_many(embedded):
    def mean(name, n_shot):
        protocol = Protocol(spec=TaskSpec(n_shot=n_shot), n_tasks=1000)
        return score_cell(embedded, METHODS[name], protocol)[0].mean

    assert mean("shrunken-prototype", 1) > mean("prototype", 1) + 2
    assert mean("shrunken-prototype", 20) > mean("prototype", 20) - 0.5


def test_common_mean_is_trusted_where_it_is_longer_than_by_chance():
    generator = torch.Generator().manual_seed(0)
    around_origin = torch.randn(500, 5, 64, generator=generator)
    assert trust_common_mean(around_origin).mean() < 0.2
    assert (trust_common_mean(around_origin + 5) > 0.999).all()


def test_common_mean_is_trusted_fully_without_spread_and_not_at_the_origin():
    opposite = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    means = torch.stack((opposite, torch.ones(2, 2), torch.zeros(2, 2)))
    assert trust_common_mean(means).flatten().tolist() == [0, 1, 0]
    assert trust_common_mean(torch.ones(1, 3)).item() == 1  # a single class
