import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from infoshot import DataError, FeatureTable, InvalidArgumentError, TimAdm, solve
from infoshot.benchmark import (
    Protocol,
    convergence,
    result_table,
    rows_from_json,
    rows_to_json,
    score_cell,
)
from infoshot.benchmark.convergence import convergence_curve
from infoshot.features import prepare
from infoshot.metrics import accuracy, mean_interval
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec, sample_tasks
from infoshot.tasks.regimes import parse_regime

CONTRACT = (
    "method ways shots queries tasks seed mean ci95 seconds per_task_ms "
    "device dtype features regime"
)


def _run(table, name, n_tasks=300, **spec):
    return score_cell(table, METHODS[name], Protocol(spec=TaskSpec(**spec), n_tasks=n_tasks))[0]


def test_row_is_the_mean_over_the_tasks_of_the_seed(embedded):
    row = _run(embedded, "tim-adm", n_tasks=40, n_shot=5, seed=3)
    table = FeatureTable(prepare(embedded, "l2"), embedded.labels)
    tasks, labels = sample_tasks(table, TaskSpec(n_shot=5, seed=3), 40)
    mean, half = mean_interval(accuracy(solve(TimAdm(), tasks).probabilities, labels))
    assert row.mean == pytest.approx(100 * mean, abs=0.05)
    assert row.ci95 == pytest.approx(100 * half, abs=0.05)


# Measured on 10,000 tasks with the features before they were stored in 8 bits
# (results/training/resnet18/bench-last.json); the tolerance is four standard errors of 1,000 tasks.
ANCHORS = {
    ("prototype", 1): (53.3, 1.3),
    ("prototype", 5): (74.7, 1.0),
    ("simpleshot", 1): (56.8, 1.3),
    ("simpleshot", 5): (74.4, 1.0),
    ("tim-adm", 1): (67.5, 1.6),
    ("tim-adm", 5): (80.2, 1.0),
}


@pytest.mark.parametrize(("name", "n_shot"), ANCHORS)
def test_accuracy_equals_the_measured_value(embedded, name, n_shot):
    expected, tolerance = ANCHORS[name, n_shot]
    assert _run(embedded, name, n_tasks=1000, n_shot=n_shot).mean == pytest.approx(
        expected, abs=tolerance
    )


def test_gradient_descent_agrees_with_closed_form(embedded):
    gd, adm = _run(embedded, "tim-gd", n_tasks=100), _run(embedded, "tim-adm", n_tasks=100)
    assert gd.mean == pytest.approx(adm.mean, abs=1.5)


def test_numbers_do_not_depend_on_threads(embedded):
    rows = [
        score_cell(
            embedded,
            METHODS["tim-adm"],
            Protocol(spec=TaskSpec(), n_tasks=300, n_threads=n_threads),
        )[0]
        for n_threads in (1, 2)
    ]
    assert rows[0].mean == rows[1].mean
    assert rows[0].ci95 == rows[1].ci95


def test_progress_counts_every_task(embedded):
    progress = []
    score_cell(
        embedded,
        METHODS["prototype"],
        Protocol(spec=TaskSpec(), n_tasks=500),
        on_progress=progress.append,
    )
    assert sum(progress) == 500


def test_rows_keep_the_contract_as_json(embedded):
    row = _run(embedded, "tim-adm", n_tasks=10)
    [back] = json.loads(rows_to_json([row]))
    assert set(CONTRACT.split()) <= set(back)
    assert back["regime"] == "balanced"
    assert back["settings"]["n_steps"] == 150
    assert back["settings"]["preparation"] == "l2"
    assert back["environment"]["torch"] == torch.__version__
    assert back["per_task_ms"] == pytest.approx(1000 * back["seconds"] / 10)


def test_table_has_a_line_per_method_and_a_column_per_shots(embedded):
    row = dataclasses.replace(_run(embedded, "prototype", n_tasks=10), macro_f1=math.nan)
    rows = [
        dataclasses.replace(row, method=method, shots=shots, mean=mean, ci95=0.5, per_task_ms=1.5)
        for method, shots, mean in (("a", 1, 50.0), ("a", 5, 70.0), ("b", 1, 60.0), ("b", 5, 80.0))
    ]
    header, cells = result_table(rows)
    assert header == [
        "method",
        "assumes",
        "ways",
        "tasks",
        *["1-shot", "ms/task", "5-shot", "ms/task"],
    ]
    assert cells[1] == ["b", "nothing", "5", "10", "60.00 ± 0.50", "1.5", "80.00 ± 0.50", "1.5"]
    rows = [
        dataclasses.replace(row, assumes=("base-mean", "balance"), auroc=60.0, macro_f1=55.5)
        for row in rows
    ]
    header, cells = result_table(rows)
    assert header[4:8] == ["1-shot", "F1", "AUROC", "ms/task"]
    assert cells[0][1] == "base-mean, balance"
    assert cells[0][5] == "55.50"


def test_table_of_several_regimes_has_dashes_for_missing_results(embedded):
    row = _run(embedded, "prototype", n_tasks=10)
    other = dataclasses.replace(row, regime="open:5", shots=5, auroc=60.0, auroc_ci95=1.0)
    header, cells = result_table([row, other])
    assert header[:5] == ["method", "assumes", "ways", "regime", "tasks"]
    assert [line[3] for line in cells] == ["balanced", "open:5"]
    assert cells[0][7] == "-"  # no AUROC
    assert cells[0][9:] == ["-"] * 4  # no 5-shot result
    assert cells[1][5:9] == ["-"] * 4
    assert cells[1][11] == "60.00 ± 1.00"


def test_rows_read_from_json_equal_those_written(embedded):
    row = dataclasses.replace(_run(embedded, "tim-adm", n_tasks=10), assumes=["balance"])
    read = rows_from_json(rows_to_json([row]))[0]
    assert json.loads(rows_to_json([read])) == json.loads(rows_to_json([row]))
    assert math.isnan(read.auroc)


def test_rows_of_other_versions_can_be_read(embedded):
    [entry] = json.loads(rows_to_json([_run(embedded, "prototype", n_tasks=10)]))
    older = {name: entry[name] for name in entry if name not in ("macro_f1", "note")}
    [read] = rows_from_json(json.dumps([older | {"difference": 1.0}]))
    assert math.isnan(read.macro_f1)
    assert read.note == ""
    assert read.mean == entry["mean"]


def test_row_has_the_macro_f1_of_its_tasks(embedded):
    spec = TaskSpec(n_shot=5, regime=parse_regime("dirichlet:1"))
    row, _ = score_cell(embedded, METHODS["prototype"], Protocol(spec=spec, n_tasks=30))
    table = FeatureTable(prepare(embedded, "l2"), embedded.labels)
    tasks, labels = sample_tasks(table, spec, 30)
    predicted = solve(METHODS["prototype"].solver, tasks).probabilities.argmax(-1)
    expected = np.mean(
        [
            f1_score(y, p, labels=np.unique(y), average="macro", zero_division=0)
            for y, p in zip(labels.numpy(), predicted.numpy(), strict=True)
        ]
    )
    assert row.macro_f1 == pytest.approx(100 * expected)


def test_rows_of_open_sets_have_the_auroc_of_outlier_scores(embedded):
    spec = TaskSpec(n_shot=5, regime=parse_regime("open:25"))
    row, _ = score_cell(embedded, METHODS["oslo"], Protocol(spec=spec, n_tasks=60))
    table = FeatureTable(prepare(embedded, "centred-l2"), embedded.labels)
    tasks, labels = sample_tasks(table, spec, 60)
    scores = solve(METHODS["oslo"].solver, tasks).outlier_scores
    expected = np.mean([roc_auc_score(y < 0, s) for y, s in zip(labels, scores, strict=True)])
    assert row.auroc == pytest.approx(100 * expected, abs=1e-3)
    assert row.auroc_ci95 > 0


def test_memory_of_a_row_grows_with_the_chunk():
    """In a new process: in this one, memory that earlier tests freed may be used again."""
    code = """
from infoshot import METHODS, read_features
from infoshot.benchmark import Protocol, score_cell
from infoshot.features import default_features_path
from infoshot.tasks import TaskSpec
table = read_features(default_features_path())
for n_tasks, n_query in ((2, 5), (64, 100)):
    protocol = Protocol(spec=TaskSpec(n_query=n_query), n_tasks=n_tasks)
    print(score_cell(table, METHODS["tim-adm"], protocol)[0].memory_mb)
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    small, large = map(float, found.stdout.split())
    assert small + 5 < large < 2000


def test_curve_starts_at_prototypes_and_ends_at_the_solution(embedded):
    spec = TaskSpec(n_shot=5)
    curve = convergence_curve(embedded, METHODS["tim-adm"], spec, n_tasks=20)
    start = convergence_curve(embedded, METHODS["prototype"], spec, n_tasks=20)
    assert curve.accuracy.shape == curve.mutual_information.shape == (20, 151)
    torch.testing.assert_close(curve.accuracy[:, :1], start.accuracy)
    assert (curve.mutual_information[:, -1] > curve.mutual_information[:, 0]).all()
    assert curve.accuracy[:, -1].mean() > curve.accuracy[:, 0].mean()
    assert (curve.seconds_batched.diff() > 0).all()
    assert curve.seconds_alone is None


def test_a_curve_has_the_time_of_tasks_alone(embedded, monkeypatch):
    sizes, original = [], convergence.solve

    def count(solver, tasks, **options):
        sizes.append(len(tasks))
        return original(solver, tasks, **options)

    monkeypatch.setattr(convergence, "solve", count)
    method = METHODS["tim-adm"]
    curve = convergence_curve(embedded, method, TaskSpec(n_shot=5), n_tasks=6, alone=True)
    assert sizes == [6, 6] + [1] * 7  # together after a warm-up, each alone after a warm-up
    assert curve.seconds_alone.shape == curve.seconds_batched.shape == (151,)
    assert (curve.seconds_alone.diff() > 0).all()
    summary = curve.summary()
    assert summary.milliseconds_alone == pytest.approx((1000 * curve.seconds_alone).tolist())
    assert summary.device == "cpu"


def test_curve_of_a_task_that_stopped_keeps_its_accuracy(embedded):
    method = METHODS["tim-adm"].with_settings({"tolerance": 0.01})
    curve = convergence_curve(embedded, method, TaskSpec(n_shot=5), n_tasks=10)
    assert curve.accuracy.isfinite().all()
    assert torch.equal(curve.accuracy[:, -1], curve.accuracy[:, -2])


@pytest.mark.parametrize(
    ("protocol", "kind", "message"),
    [
        (Protocol(spec=TaskSpec(), n_tasks=0), InvalidArgumentError, "n_tasks must be a whole"),
        (Protocol(spec=TaskSpec(n_way=21)), DataError, "n_way must be at most 20"),
        (Protocol(spec=TaskSpec(n_query=600)), DataError, r"\(it has 600 samples\); got 1 \+ 600"),
        (Protocol(spec=TaskSpec(), n_threads=0), InvalidArgumentError, "n_threads must be a whole"),
    ],
)
def test_impossible_protocols_are_refused_before_any_work(embedded, protocol, kind, message):
    with pytest.raises(kind, match=message):
        score_cell(embedded, METHODS["tim-adm"], protocol)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_reported(embedded):
    with pytest.raises(InvalidArgumentError, match="device 'cuda' is not available"):
        score_cell(embedded, METHODS["tim-adm"], Protocol(spec=TaskSpec(), device="cuda"))
