"""The same numbers on a GPU; run there with ``-m gpu``."""

import pytest
import torch

from infoshot import TaskBatch, solve
from infoshot.benchmark import Protocol, score_cell
from infoshot.core.types import FeatureTable
from infoshot.features import default_features_path, read_features
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSampler, TaskSpec, gaussian_tasks
from infoshot.tasks.regimes import parse_regime
from infoshot.testing import check_solver

pytestmark = pytest.mark.gpu


@pytest.mark.filterwarnings(
    "ignore::infoshot.core.errors.IsolatedWarning"
)  # features of length 1e6
@pytest.mark.parametrize("name", METHODS)
def test_contract_holds_on_the_gpu(name):
    check_solver(METHODS[name].solver, "cuda")


@pytest.mark.parametrize("name", METHODS)
def test_gpu_equals_cpu(name):
    tasks, _ = gaussian_tasks(20, dim=64, dtype=torch.float64)
    there = TaskBatch(tasks.z_sup.cuda(), tasks.y_sup.cuda(), tasks.z_qry.cuda(), tasks.n_way)
    solver = METHODS[name].solver
    here, gone = solve(solver, tasks), solve(solver, there)
    # A solver with a larger error than usual chooses neighbours by distances that differ by
    # rounding only.
    close = {"atol": 1e-8 if solver.rounding_error <= 1e-3 else solver.rounding_error, "rtol": 0}
    torch.testing.assert_close(gone.probabilities.cpu(), here.probabilities, **close)
    torch.testing.assert_close(gone.prototypes.cpu(), here.prototypes, **close)


@pytest.mark.parametrize("regime", ["balanced", "dirichlet:1"])
def test_gpu_draws_the_same_tasks(regime):
    labels = torch.arange(20).repeat_interleave(30)  # too few for some dirichlet counts
    tables = [
        FeatureTable(torch.rand(600, 2, device=device), labels.to(device))
        for device in ("cpu", "cuda")
    ]
    spec = TaskSpec(n_shot=5, regime=parse_regime(regime))
    here, there = (TaskSampler(table, spec).draw(range(500)) for table in tables)
    assert torch.equal(here[0], there[0].cpu())
    assert torch.equal(here[1], there[1].cpu())


@pytest.mark.parametrize("name", ["prototype", "tim-adm"])
def test_gpu_benchmark_equals_cpu(name):
    table = read_features(default_features_path())
    protocols = [Protocol(spec=TaskSpec(), n_tasks=1000, device=d) for d in ("cpu", "cuda")]
    means = [score_cell(table, METHODS[name], protocol)[0].mean for protocol in protocols]
    assert means[0] == pytest.approx(means[1], abs=0.05)
