"""``bench`` from Python: rows, per-task accuracies, paired differences and files."""

import csv
import dataclasses
import io
import json
import math
import re

import numpy as np
import pytest
import torch

from infoshot import DataError, FeatureTable, InvalidArgumentError, TimAdm
from infoshot.benchmark import (
    BenchResult,
    Protocol,
    bench,
    read_accuracies,
    rows_from_json,
    score_cell,
)
from infoshot.benchmark.latex import latex_table
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec
from infoshot.tasks.regimes import Regime, parse_regime


@pytest.fixture(scope="module")
def small(embedded):
    """Six classes with 48 samples each, without the base mean."""
    rows = torch.cat([(embedded.labels == k).nonzero().flatten()[:48] for k in range(6)])
    return FeatureTable(embedded.features[rows], embedded.labels[rows])


@pytest.fixture(scope="module")
def result(small):
    with pytest.warns(UserWarning, match="the method 'simpleshot' is skipped: .*base_mean"):
        return bench(
            small, ["prototype", "simpleshot", "tim-adm", ("tim-adm", {"temperature": 10})],
            tasks=30, queries=5, regimes=["balanced", Regime("effective", 2)], against="prototype",
        )  # fmt: skip


def test_rows_and_accuracies_are_those_of_each_cell(small, result):
    names = ["prototype", "tim-adm", "tim-adm (temperature=10)"]
    assert [(row.regime, row.method, row.shots) for row in result.rows] == [
        (regime, name, shots)
        for regime in ("balanced", "effective:2")
        for name in names
        for shots in (1, 5)
    ]
    assert list(result.skipped) == ["simpleshot"]
    assert "base_mean" in result.skipped["simpleshot"]
    for row in result.rows:
        spec = TaskSpec(n_shot=row.shots, n_query=5, regime=parse_regime(row.regime))
        name, _, _ = row.method.partition(" ")
        solver = {"tim-adm (temperature=10)": TimAdm(temperature=10)}.get(row.method)
        method = (
            METHODS[name] if solver is None else dataclasses.replace(METHODS[name], solver=solver)
        )
        expected, accuracies = score_cell(small, method, Protocol(spec=spec, n_tasks=30))
        assert row.mean == expected.mean
        assert row.accuracies_key == f"{row.method}/5-way/{row.shots}-shot/{row.regime}"
        assert torch.equal(result.accuracies[row.accuracies_key], accuracies)


def test_paired_differences_equal_numpy(result):
    assert len(result.differences) == 8
    for item in result.differences:
        where = f"{item.ways}-way/{item.shots}-shot/{item.regime}"
        ours = result.accuracies[f"{item.method}/{where}"].numpy()
        reference = result.accuracies[f"prototype/{where}"].numpy()
        values = 100 * (ours - reference)
        assert (item.against, item.tasks) == ("prototype", 30)
        assert item.mean == pytest.approx(values.mean())
        assert item.ci95 == pytest.approx(1.96 * values.std(ddof=1) / np.sqrt(30))
    header, cells = result.difference_table()
    assert header[-1] == "difference"
    first = result.differences[0]
    assert cells[0][-1] == f"{first.mean:+.2f} ± {first.ci95:.2f}"


def test_the_method_to_compare_with_is_added(small):
    chosen = bench(small, "tim-adm", shots=5, tasks=2, queries=5, against="tim-adm(n_steps=3)",
                   settings={"tim-adm.temperature": 9})  # fmt: skip
    assert [row.method for row in chosen.rows] == ["tim-adm (n_steps=3)", "tim-adm"]
    assert [row.settings["temperature"] for row in chosen.rows] == [9, 9]
    assert [(item.method, item.against) for item in chosen.differences] == [
        ("tim-adm", "tim-adm (n_steps=3)")
    ]


def test_files_hold_the_result(result, tmp_path):
    result.write(json=tmp_path / "rows.json", csv=tmp_path / "r.csv", latex=tmp_path / "r.tex")
    text = (tmp_path / "rows.json").read_text()
    assert rows_from_json(text)[3].mean == result.rows[3].mean
    entries = json.loads(text)
    accuracies = read_accuracies(tmp_path / "rows.accuracies.safetensors")
    for entry in entries:
        assert 100 * accuracies[entry["accuracies_key"]].mean() == pytest.approx(entry["mean"])
    assert "against" not in entries[0]
    first = result.differences[0]
    assert entries[2]["against"] == "prototype"
    assert entries[2]["difference"] == first.mean
    lines = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert [float(line["mean"]) for line in lines] == [row.mean for row in result.rows]
    assert float(lines[2]["difference_ci95"]) == first.ci95
    assert lines[0]["difference"] == lines[0]["auroc"] == ""
    assert json.loads(lines[4]["settings"])["temperature"] == 10
    assert (tmp_path / "r.tex").read_text() == result.to_latex()


def _cells(line):
    return [cell.strip() for cell in line.removesuffix(r" \\").split("&")]


def test_latex_has_a_column_per_kind_of_task_and_the_best_in_bold(result):
    lines = result.to_latex().splitlines()
    assert lines[1] == r"\begin{tabular}{lrrrr}"
    assert (lines[2], lines[-2], lines[-1]) == (r"\toprule", r"\bottomrule", r"\end{tabular}")
    assert _cells(lines[3]) == [
        "", r"\multicolumn{2}{c}{5-way, balanced}", r"\multicolumn{2}{c}{5-way, effective:2}",
    ]  # fmt: skip
    assert lines[4] == r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}"
    assert _cells(lines[5]) == ["method", "1-shot", "5-shot", "1-shot", "5-shot"]
    body = [_cells(line) for line in lines[7:-2]]
    assert [line[0] for line in body] == [
        "prototype", "tim-adm", "tim-adm (temperature=10)", "simpleshot",
    ]  # fmt: skip
    assert body[3][1:] == ["--"] * 4
    columns = [(regime, shots) for regime in ("balanced", "effective:2") for shots in (1, 5)]
    for number, column in enumerate(columns, start=1):
        means = {row.method: row.mean for row in result.rows if (row.regime, row.shots) == column}
        best = f"{max(means.values()):.2f}"
        for line in body[:3]:
            bold = re.match(r"\$\\mathbf\{(.*)\} \\pm", line[number])
            assert bool(bold) == (f"{means[line[0]]:.2f}" == best)
            assert f"{means[line[0]]:.2f}" in line[number]


def test_latex_escapes_names_and_omits_unknown_intervals(result):
    row = dataclasses.replace(result.rows[0], method="a_b (x=50%)", ci95=math.nan, note="a note")
    text = latex_table([row])
    assert rf"a\_b (x=50\%) & $\mathbf{{{row.mean:.2f}}}$ \\" in text
    assert "% a note" in text


def test_print_shows_the_table(result):
    header, cells = result.table()
    lines = str(result).splitlines()
    assert len(lines) == 1 + len(cells)
    assert lines[0].split() == header
    assert cells[0][5] in lines[1]


def test_result_so_far_is_given_after_each_cell(small):
    seen = []
    phases = {}
    final = bench(
        small, "prototype", tasks=3, queries=5, on_cell=seen.append,
        progress=lambda phase, done, total: phases.update({phase: (done, total)}),
    )  # fmt: skip
    assert [len(partial.rows) for partial in seen] == [1, 2]
    assert all(isinstance(partial, BenchResult) for partial in seen)
    assert seen[-1].rows == final.rows
    assert phases == {
        "prototype 5-way 1-shot balanced": (3, 3), "prototype 5-way 5-shot balanced": (3, 3),
    }  # fmt: skip


def test_few_images_are_used_and_reported_once(small):
    """5 shots and 75 queries of classes with 48 samples, as in CUB."""
    with pytest.warns(UserWarning, match="too few samples") as caught:
        few = bench(small, "prototype,tim-adm(n_steps=2)", shots=5, tasks=40, regimes="dirichlet:1")
    note = few.rows[0].note
    counts = re.fullmatch(
        r"([\d,]+) of 3,000 queries, in (\d+) of 40 tasks, come from other classes of the task "
        r"because their class has too few samples\.",
        note,
    )
    assert counts
    assert 0 < int(counts[2]) < 40
    assert few.rows[1].note == note
    assert [str(warning.message) for warning in caught] == [f"5-way 5-shot dirichlet:1: {note}"]
    assert few.notes() == [f"5-way 5-shot dirichlet:1: {note}"]
    assert note in str(few)
    assert f"% {note}" in few.to_latex()


def test_enough_images_leave_no_note(result):
    assert {row.note for row in result.rows} == {""}


def test_default_features_are_the_embedded_ones():
    row = bench(methods="prototype", shots=1, tasks=2, dtype="float64").rows[0]
    assert row.features == "mini_test_resnet18.safetensors"
    assert len(row.features_digest) == 64
    assert row.dtype == "float64"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"tasks": 0}, InvalidArgumentError, "tasks must be a whole number of at least 1; got 0"),
        ({"queries": 0}, InvalidArgumentError, "queries must be a whole number of at least 1"),
        ({"ways": 1}, InvalidArgumentError, "ways must be a whole number of at least 2; got 1"),
        ({"ways": []}, InvalidArgumentError, "ways must hold at least one number; got none"),
        ({"shots": (1, 0)}, InvalidArgumentError, "shots must be a whole number of at least 1"),
        ({"threads": 0}, InvalidArgumentError, "threads must be a whole number of at least 1"),
        ({"seed": -1}, InvalidArgumentError, "seed must be a whole number of at least 0; got -1"),
        ({"regimes": ()}, InvalidArgumentError, "regimes must hold at least one regime; got none"),
        ({"regimes": "skewed"}, InvalidArgumentError, "regime must be balanced, dirichlet:A"),
        ({"dtype": "float31"}, InvalidArgumentError, "Unknown dtype 'float31'"),
        ({"against": "all"}, InvalidArgumentError, "against must be one method; got 'all'"),
        ({"methods": "simpleshot"}, DataError, "'simpleshot' cannot run on these features: "),
        ({"against": "simpleshot"}, DataError, "'simpleshot' cannot run on these features: "),
        ({"queries": 48}, DataError, r"n_shot \+ n_query must be at most 48"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(small, arguments, kind, message):
    with pytest.raises(kind, match=message):
        bench(small, **arguments)
