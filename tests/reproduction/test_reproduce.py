"""``infoshot reproduce``: files, numbers, going on after a stop, bad input."""

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
from infoshot.reproduction.experiments import EXPERIMENTS, LOSSES, cells
from infoshot.reproduction.orderings import orderings
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
    """A report of two tables and the run-times on the embedded features."""
    out = tmp_path_factory.mktemp("reproduce") / "report"
    result = run("--out", out, "--only", "table1,table4", *SMALL)
    assert result.exit_code == 0, result.output
    return out


def test_numbers_are_those_of_bench(report, embedded):
    rows = json.loads((report / "results.json").read_text())["rows"]
    row = next(row for row in rows if row["method"] == "tim-adm" and row["shots"] == 5)
    protocol = Protocol(spec=TaskSpec(n_shot=5), n_tasks=40)
    assert row["mean"] == pytest.approx(score_cell(embedded, METHODS["tim-adm"], protocol)[0].mean)
    accuracies = load_file(report / "accuracies.safetensors")[row["key"]]
    assert 100 * accuracies.mean() == pytest.approx(row["mean"])
    assert len(accuracies) == 40


def test_tables_show_ours_published_and_the_difference(report):
    text = (report / "tables.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| TIM-ADM |"))
    _, name, assumes, tasks, one, published, difference, *_ = (c.strip() for c in line.split("|"))
    assert (name, assumes, tasks, published) == ("TIM-ADM", "balance", "40", "73.6")
    ours = float(one.split(" ± ")[0])
    assert float(difference.split(" ± ")[0]) == pytest.approx(ours - 73.6, abs=0.011)
    assert "published" in text
    assert "none of them was run here" in text
    comment, _, tex = (report / "tables.tex").read_text().partition("\n")
    assert comment == r"% needs \usepackage{booktabs}"
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 5
    assert not re.search(r"(?<!\\)[%&_#](?!.*\\\\)", tex.replace(" & ", " "))


def test_page_holds_everything(report):
    page = (report / "report.html").read_text()
    for part in ("Table 1", "Table 4", "TIM-ADM {W}: CE-H(Y)", "Environment", "published"):
        assert part in page
    assert "http" not in re.sub(r"http-equiv", "", page)


@pytest.mark.parametrize("width", [360, 1400])
def test_report_is_readable_in_a_browser(report, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    troubles = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((report / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    captions = page.locator("figure.table figcaption").all_inner_texts()
    assert any("Ablation of the loss, run here" in caption for caption in captions)
    assert any("state of the art, published" in caption for caption in captions)
    assert page.get_by_text("TIM-GD {W}: CE-H(Y)").first.is_visible()
    assert not troubles
    page.close()


def test_the_same_command_again_computes_nothing_and_changes_nothing(report, monkeypatch):
    before = {name: (report / name).read_bytes() for name in ("tables.md", "results.json")}

    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr("infoshot.reproduction.plan.score_cell", fail)
    assert run("--out", report, "--only", "table1,table4", *SMALL).exit_code == 0
    assert {name: (report / name).read_bytes() for name in before} == before


def test_a_run_that_was_cut_off_ends_like_one_that_was_not(report, tmp_path, monkeypatch):
    from infoshot.reproduction import run as module

    calls, score = [], module.score_cell

    def stop_at_the_ninth(*arguments, **options):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return score(*arguments, **options)

    monkeypatch.setattr(module, "score_cell", stop_at_the_ninth)
    arguments = ("--out", tmp_path / "r", "--only", "table1,table4", *SMALL)
    assert run(*arguments).exit_code == 130
    assert len(_numbers(tmp_path / "r" / "results.json")) == 8
    assert run(*arguments).exit_code == 0
    assert len(calls) == 9 + len(_numbers(report / "results.json")) - 8
    assert _numbers(tmp_path / "r" / "results.json") == _numbers(report / "results.json")
    tables = [(folder / "tables.md").read_bytes() for folder in (tmp_path / "r", report)]
    assert tables[0] == tables[1]


def test_run_times_and_figure(tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.reproduction.extras._CURVE_TASKS", 2)
    monkeypatch.setattr("infoshot.reproduction.run_times._ALONE", 1)
    monkeypatch.setattr("infoshot.reproduction.run_times._BATCH", {"cpu": 2})
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


def test_features_of_ones_own_are_evaluated_as_far_as_they_go(tmp_path):
    path = _table_of(tmp_path / "own.safetensors", 10)
    result = run(
        "--features", path, "--out", tmp_path / "r", "--only", "table1,table2,table3", *SMALL
    )
    assert result.exit_code == 0, result.output
    text = (tmp_path / "r" / "tables.md").read_text()
    assert "not run: the feature file has no base_mean" in text
    assert "not run: 20 classes are needed, there are 10" in text
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Not run: features of this data set were not given." in page


def test_several_files_stand_side_by_side(tmp_path):
    paths = [_table_of(tmp_path / f"{name}.safetensors", 6 + i) for i, name in enumerate("ab")]
    files = [part for path in paths for part in ("--features", path)]
    names = ("--dataset", "cub", "--dataset", "mini-to-cub")
    result = run(*files, *names, "--out", tmp_path / "r", "--only", "table1,table2", *SMALL)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "r" / "tables.md").read_text()
    assert "Comparison to the state of the art, run here on a.safetensors (CUB" in text
    assert "Domain shift: from mini-ImageNet to CUB, run here on b.safetensors" in text


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
    (tmp_path / "file").touch()
    nan = tmp_path / "nan.npz"
    np.savez(nan, features=np.full((40, 4), np.nan), labels=np.repeat(np.arange(5), 8))
    return {
        "four classes": (("--features", _table_of(tmp_path / "four.safetensors", 4)), "four.safetensors: the paper's tasks have 5 classes; got 4."),
        "few images": (("--features", _table_of(tmp_path / "few.safetensors", 6, 12)), "few.safetensors: 1-shot tasks of the paper need 16 rows of every class; '0' has 12."),
        "not finite": (("--features", nan), "nan"),
        "other features": (("--out", taken), "holds results of other features (own.safetensors)"),
        "no folder": (("--out", tmp_path / "file"), "cannot be made a folder"),
        "no tasks": (("--gradient-tasks", "0"), "--gradient-tasks must be a whole number of at least 1; got 0"),
        "unknown table": (("--only", "table9"), "Unknown experiment 'table9'"),
        "unknown data set": (("--dataset", "mini-imagent"), "mini-imagenet"),
        "unknown network": (("--backbone", "resnet81"), "resnet18"),
        "no network tasks": (("--network-tasks", "0"), "--network-tasks must be a whole number"),
        "too many data sets": (("--dataset", "cub", "--dataset", "cub"), "once for each feature file; got 2 for 1"),
    }  # fmt: skip


def test_bad_input_gets_one_sentence_before_any_work(tmp_path, monkeypatch):
    cases = _bad(tmp_path)
    before = (tmp_path / "taken" / "results.json").read_bytes()

    def fail(*_, **__):
        raise AssertionError("worked")

    monkeypatch.setattr("infoshot.reproduction.plan.score_cell", fail)
    for name, (arguments, sentence) in cases.items():
        out = () if "--out" in arguments else ("--out", tmp_path / "new")
        result = run(*arguments, *out)
        assert result.exit_code == 2, (name, result.output)
        assert sentence in result.stderr, name
        assert result.stderr.count("\n") == 1, name
        assert not (tmp_path / "new").exists(), name
    assert (tmp_path / "taken" / "results.json").read_bytes() == before


def test_published_numbers_belong_to_the_cells():
    found = {
        (cell.paper_method, cell.ways, cell.shots, cell.parameters, cell.loss): cell.published(
            "mini-imagenet", "resnet18"
        )
        for name in EXPERIMENTS
        for cell in cells(name)
    }
    assert found["TIM-ADM", 5, 1, "", ""] == 73.6
    assert found["SimpleShot", 20, 5, "", ""] == 55.4
    assert found["TIM-GD", 5, 1, "W", "CE+H(Y|X)"] == 35.3
    assert found["TIM-ADM", 5, 5, "W", "CE"] == 79.6
    assert all(found["TIM-ADM", 5, shots, "W", loss] for shots in (1, 5) for loss in LOSSES)


def _found(accuracies, times=()):
    return {item.statement: item for item in orderings(accuracies, times)}


ORDER = "TIM-ADM over W, 1-shot: CE-H(Y)+H(Y|X) > CE-H(Y) > CE > CE+H(Y|X)"


def test_orderings_hold_fail_or_cannot_be_decided():
    noise = 0.1 * torch.randn(400, generator=torch.Generator().manual_seed(0))
    means = dict(
        zip(("CE-H(Y)+H(Y|X)", "CE-H(Y)", "CE", "CE+H(Y|X)"), (70, 65, 60, 40), strict=True)
    )

    def judged(**changed):
        tasks = {("TIM-ADM", "W", loss, 1): mean / 100 + noise.roll(k)
                 for k, (loss, mean) in enumerate({**means, **changed}.items())}  # fmt: skip
        return _found(tasks)[ORDER]

    assert judged().verdict == "holds"
    assert judged(CE=66).verdict == "undecided"
    assert judged(CE=64.5).verdict == "undecided"  # above in the mean, perhaps by chance
    assert judged(CE=70).verdict == "does not hold"
    assert "(400 tasks; difference 5.00 ± 1." in judged().numbers
    assert _found({})[ORDER].verdict == "not run"


def test_speed_is_compared_too():
    times = [
        {"method": "TIM-ADM", "alone_s": 1.0, "batched_s": 0.1},
        {"method": "TIM-GD", "alone_s": 9.0, "batched_s": 2.0},
    ]
    item = _found({}, times)["TIM-ADM is at least 10 times faster than TIM-GD, a task alone"]
    assert (item.verdict, item.numbers) == ("does not hold", "9.0 times; in a batch 20.0")


def test_same_tasks_are_compared_where_one_has_more():
    many, few = torch.zeros(100), torch.full((40,), 0.3)
    many[40:] = 1.0
    tasks = {
        ("TIM-GD", "W", "CE-H(Y)+H(Y|X)", 5): many,
        ("TIM-GD", "phi+W", "CE-H(Y)+H(Y|X)", 5): few,
    }
    item = _found(tasks)["Fine-tuning the whole network does not beat W alone, 5-shot"]
    assert item.verdict == "does not hold"
    assert item.numbers == "0.00, 30.00 (40 tasks; difference -30.00 ± 0.00)"
