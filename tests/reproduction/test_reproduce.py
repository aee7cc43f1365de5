"""``infoshot reproduce``: files, numbers, resuming an interrupted run, bad input."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from infoshot import FeatureTable
from infoshot.benchmark import Protocol, score_cell
from infoshot.cli.app import app
from infoshot.features import write_features
from infoshot.reproduction import measurements
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec

SMALL = ("--tasks", "40", "--gradient-tasks", "4")


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def _numbers(path):
    """Everything in results.json but times, memory and the machine."""
    document = json.loads(path.read_text())
    aside = {"seconds", "per_task_ms", "memory_mb", "environment"}
    return [
        {name: value for name, value in row.items() if name not in aside}
        for row in document["rows"]
    ]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of two tables on the embedded features."""
    out = tmp_path_factory.mktemp("reproduce") / "report"
    result = run("--out", out, "--only", "table1,table4", *SMALL)
    assert result.exit_code == 0, result.output
    return out


def test_numbers_equal_those_of_bench(report, embedded):
    rows = json.loads((report / "results.json").read_text())["rows"]
    row = next(row for row in rows if row["method"] == "tim-adm" and row["shots"] == 5)
    protocol = Protocol(spec=TaskSpec(n_shot=5), n_tasks=40)
    assert row["mean"] == pytest.approx(score_cell(embedded, METHODS["tim-adm"], protocol)[0].mean)
    correct = load_file(report / "accuracies.safetensors")[row["key"]]
    assert 100 * correct.double().mean() / (5 * 15) == pytest.approx(row["mean"])
    assert len(correct) == 40


def test_tables_show_ours_published_and_the_difference(report):
    text = (report / "tables.md").read_text()
    _, _, detailed = text.partition("| method | assumes | tasks |")
    line = next(line for line in detailed.splitlines() if line.startswith("| TIM-ADM |"))
    _, name, assumes, tasks, one, published, difference, *_ = (c.strip() for c in line.split("|"))
    assert (name, assumes, tasks, published) == ("TIM-ADM", "balance", "40", "73.6")
    ours = float(one.split(" ± ")[0])
    assert float(difference.split(" ± ")[0]) == pytest.approx(ours - 73.6, abs=0.011)
    line = next(line for line in text.splitlines() if line.startswith("| TIM-ADM | ResNet-18 |"))
    assert [cell.strip(" *") for cell in line.split("|")[3:5]] == [one, "73.6"]
    comment, _, tex = (report / "tables.tex").read_text().partition("\n")
    assert comment == r"% needs \usepackage{booktabs}"
    # Two tables of the paper and two of these features, verdicts, their numbers, two of coverage.
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 8
    assert not re.search(r"(?<!\\)[%&_#](?!.*\\\\)", tex.replace(" & ", " "))


def test_page_holds_everything(report):
    page = (report / "report.html").read_text()
    for part in ("Table 1", "Table 4", "TIM-ADM {W}: CE-H(Y)", "Environment", "published"):
        assert part in page
    counts = re.search(r"(\d+) of 34 findings of the paper were checked \((.*?)\)", page)
    assert counts[1] == "18"  # neither the whole network nor more classes
    assert sum(map(int, re.findall(r"\d+", counts[2]))) == 18
    assert "Measured 24 of the 223 numbers of Tables 1 to 4" in page
    assert "http" not in re.sub(r"http-equiv", "", page)


@pytest.mark.parametrize("width", [360, 1400])
def test_report_is_readable_in_a_browser(report, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    troubles = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((report / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    captions = page.locator("figure.table figcaption").all_text_contents()
    assert any("Ablation of the loss, run here" in caption for caption in captions)
    assert any("state of the art (Table 1 of the paper)" in caption for caption in captions)
    assert page.get_by_text("TIM-GD, {W}, ResNet-18").first.is_visible()
    assert not page.get_by_text("TIM-GD {W}: CE-H(Y)").first.is_visible()
    page.locator("summary").last.click()
    assert page.get_by_text("TIM-GD {W}: CE-H(Y)").first.is_visible()
    assert not troubles
    page.close()


def test_a_second_run_computes_nothing_and_changes_nothing(report, monkeypatch):
    before = {name: (report / name).read_bytes() for name in ("tables.md", "results.json")}

    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(measurements, "score_cell", fail)
    assert run("--out", report, "--only", "table1,table4", *SMALL).exit_code == 0
    assert {name: (report / name).read_bytes() for name in before} == before


def test_an_interrupted_run_resumes_with_the_same_result(report, tmp_path, monkeypatch):
    calls, score = [], measurements.score_cell

    def stop_at_the_ninth(*arguments, **options):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return score(*arguments, **options)

    monkeypatch.setattr(measurements, "score_cell", stop_at_the_ninth)
    arguments = ("--out", tmp_path / "r", "--only", "table1,table4", *SMALL)
    assert run(*arguments).exit_code == 130
    assert len(_numbers(tmp_path / "r" / "results.json")) == 8
    assert run(*arguments).exit_code == 0
    assert len(calls) == 9 + len(_numbers(report / "results.json")) - 8
    assert _numbers(tmp_path / "r" / "results.json") == _numbers(report / "results.json")
    tables = [(folder / "tables.md").read_bytes() for folder in (tmp_path / "r", report)]
    assert tables[0] == tables[1]


def test_run_times_and_figure(tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.reproduction.measurements._CURVE_TASKS", {"cpu": 2})
    monkeypatch.setattr("infoshot.reproduction.measurements._SINGLE_TASKS", 1)
    monkeypatch.setattr("infoshot.reproduction.measurements._BATCH", {"cpu": 2})
    result = run("--out", tmp_path / "r", "--only", "table5,figure1", *SMALL)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "r" / "results.json").read_text())
    assert {entry["method"] for entry in document["extra"]["run_times"]} == {
        "SimpleShot", "TIM-ADM", "TIM-GD",
    }  # fmt: skip
    assert all(entry["alone_s"] > 0 for entry in document["extra"]["run_times"])
    assert (tmp_path / "r" / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "r" / "figure1.svg").read_text()
    assert "TIM-ADM is at least 10 times faster" in (tmp_path / "r" / "report.html").read_text()
    assert "faster" not in (tmp_path / "r" / "tables.md").read_text()


def _table_of(path, n_classes, n_each=30, **more):
    features = torch.rand(n_classes * n_each, 8, generator=torch.Generator().manual_seed(0)) + 0.1
    labels = torch.arange(n_classes).repeat_interleave(n_each)
    write_features(path, FeatureTable(features, labels, **more))
    return path


def test_own_features_are_evaluated_where_they_allow_it(tmp_path):
    path = _table_of(tmp_path / "own.safetensors", 10)
    result = run(
        "--features", path, "--out", tmp_path / "r", "--only", "table1,table2,table3", *SMALL
    )
    assert result.exit_code == 0, result.output
    text = (tmp_path / "r" / "tables.md").read_text()
    assert "Not run, the feature file has no base_mean: SimpleShot; LaplacianShot." in text
    assert "Not run, 20 classes are needed, there are 10: Baseline: linear probe (Adam) 20" in text
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Not run: there are no features of this data set." in page


def test_several_feature_files_get_a_table_each(tmp_path):
    paths = [_table_of(tmp_path / f"{name}.safetensors", 6 + i) for i, name in enumerate("ab")]
    files = [part for path in paths for part in ("--features", path)]
    names = ("--dataset", "cub", "--dataset", "mini-to-cub")
    result = run(*files, *names, "--out", tmp_path / "r", "--only", "table1,table2", *SMALL)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "r" / "tables.md").read_text()
    assert "Comparison to the state of the art, run here on a.safetensors (CUB" in text
    assert "Domain shift: from mini-ImageNet to CUB, run here on b.safetensors" in text


@pytest.fixture(scope="module")
def large_report(tmp_path_factory):
    """A report of every kind of table, with several networks."""
    folder = tmp_path_factory.mktemp("large")
    files = []
    for dataset, backbone, count in (
        ("mini-imagenet", "resnet18", 3), ("mini-imagenet", "wrn28-10", 1), ("cub", "resnet18", 2),
        ("mini-to-cub", "resnet18", 3),
    ):  # fmt: skip
        for number in range(count):
            path = folder / f"{dataset}_{backbone}_seed{number}.safetensors"
            labels = torch.arange(20).repeat_interleave(20)
            generator = torch.Generator().manual_seed(len(files))
            rows = torch.eye(24)[labels] + torch.rand(len(labels), 24, generator=generator)
            provenance = {"dataset": dataset, "backbone": backbone}
            mean = torch.full((24,), 0.5)
            write_features(path, FeatureTable(rows, labels, mean, provenance=provenance))
            files += ["--features", path]
    only = ("--only", "table1,table2,table3,table4")
    result = run(*files, *only, "--out", folder / "r", "--tasks", "3", "--gradient-tasks", "2")
    assert result.exit_code == 0, result.output
    return folder / "r", result


def test_the_last_line_counts_the_numbers_of_the_paper(large_report):
    _, result = large_report
    assert result.stdout.splitlines()[-1] == (
        "Measured 72 of the 223 numbers of Tables 1 to 4, 7 more with a variant of the system; 60 "
        "have no data here (tiered-ImageNet), 60 need their own training, 4 are published only "
        "(TEAM, vFSL), 20 were not run (the report says why)."
    )


def test_no_table_of_a_large_report_is_cut_off(large_report, browser):
    """At 1200 pixels every table fits, those that a reader opens too."""
    folder, _ = large_report
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.goto((folder / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    boxes = page.evaluate(
        "[...document.querySelectorAll('.box')].map((box) =>"
        " [box.getAttribute('aria-label'), box.scrollWidth - box.clientWidth])"
    )
    assert len(boxes) > 20
    assert [name for name, hidden in boxes if hidden > 0] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    page.close()


def test_findings_are_a_table_of_statements_by_data_set(large_report):
    folder, _ = large_report
    text = (folder / "tables.md").read_text()
    _, _, matrix = text.partition("**Findings of the paper by data set and backbone**")
    header, _, *lines = matrix.split("\n\n")[1].splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        "finding of the paper", "mini-ImageNet ResNet-18", "mini-ImageNet WRN28-10",
        "CUB ResNet-18", "mini-ImageNet to CUB ResNet-18",
    ]  # fmt: skip
    assert len(lines) == 38 + 4
    shift = [line for line in lines if "SimpleShot, Baseline and LaplacianShot" in line]
    assert len(shift) == 4
    assert all(line.split("|")[2:5] == [" - "] * 3 for line in shift)


def _bad(tmp_path):
    taken = tmp_path / "taken"
    run(
        "--features",
        _table_of(tmp_path / "own.safetensors", 6),
        "--out",
        taken,
        "--only",
        "table1",
        *SMALL,
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "file").touch()
    nan = tmp_path / "nan.npz"
    np.savez(nan, features=np.full((40, 4), np.nan), labels=np.repeat(np.arange(5), 8))
    return {
        "four classes": (("--features", _table_of(tmp_path / "four.safetensors", 4)), "four.safetensors: the paper's tasks have 5 classes; got 4."),
        "few images": (("--features", _table_of(tmp_path / "few.safetensors", 6, 12)), "few.safetensors: 1-shot tasks of the paper need 16 rows of every class; '0' has 12."),
        "not finite": (("--features", nan), "nan"),
        "maybe the same network": (("--features", _table_of(tmp_path / "other" / "own.safetensors", 7), "--out", taken), "holds results of another own.safetensors, which may be of the same network as own.safetensors, because one of them does not record its weights; pass both files, or --out DIR for another report."),
        "a name without a file": (("--out", taken, "--dataset", "cub"), "dataset must have one name for each feature file; got 1 for 0."),
        "no folder": (("--out", tmp_path / "file"), "this folder cannot be created"),
        "no tasks": (("--gradient-tasks", "0"), "tasks must be a whole number of at least 1; got 0"),
        "unknown method": (("--methods", "tim-adn"), "Unknown method 'tim-adn'. Did you mean 'tim-adm'?"),
        "no such module": (("--methods", "no_such_module:Solver"), "'no_such_module:Solver'"),
        "a name of the paper": (("--methods", "paddle,paddle"), "methods must differ from each other; got 'paddle' twice."),
        "unknown table": (("--only", "table9"), "Unknown experiment 'table9'"),
        "unknown data set": (("--dataset", "mini-imagent"), "mini-imagenet"),
        "unknown network": (("--backbone", "resnet81"), "resnet18"),
        "no network tasks": (("--network-tasks", "0"), "tasks must be a whole number"),
        "too many data sets": (("--dataset", "cub", "--dataset", "cub"), "dataset must have one name for each feature file; got 2 for 1."),
    }  # fmt: skip


def test_bad_input_gets_one_sentence_before_any_work(tmp_path, monkeypatch):
    cases = _bad(tmp_path)
    before = (tmp_path / "taken" / "results.json").read_bytes()

    def fail(*_, **__):
        raise AssertionError("work has begun")

    monkeypatch.setattr(measurements, "score_cell", fail)
    for name, (arguments, sentence) in cases.items():
        out = () if "--out" in arguments else ("--out", tmp_path / "new")
        result = run(*arguments, *out)
        assert result.exit_code == 2, (name, result.output)
        assert sentence in result.stderr, name
        assert result.stderr.count("\n") == 1, name
        assert not (tmp_path / "new").exists(), name
    assert (tmp_path / "taken" / "results.json").read_bytes() == before
