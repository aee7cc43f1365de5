"""``infoshot.reproduction.api.reproduce``: methods of the user, resuming, old reports, messages."""

import dataclasses
import re
import shutil
import statistics
import sys
from pathlib import Path

import pytest
import torch

from infoshot import DataError, FeatureTable, InvalidArgumentError, Prototype
from infoshot.features import default_features_path, write_features
from infoshot.metrics import mean_interval
from infoshot.reproduction import measurements
from infoshot.reproduction.api import reproduce
from infoshot.reproduction.report_sources import read_sources
from infoshot.solvers import METHODS, Method

COMMITTED = Path(__file__).parents[2] / "results" / "reproduce"
SMALL = {"tasks": 20, "gradient_tasks": 1}
OWN = '''
from dataclasses import dataclass

from infoshot.solvers import Method, Solver, State
from infoshot.solvers.objective import class_means, log_posterior


@dataclass(eq=False, kw_only=True)
class Means(State):
    weights: object


@dataclass(frozen=True, kw_only=True)
class NearestMean(Solver):
    """The nearest class mean, written outside of the package."""

    temperature: float = TEMPERATURE

    def init(self, task):
        weights = class_means(task.z_sup, task.y_sup, task.n_way)
        return Means(posterior=weights.new_empty(len(task), 0, 0), weights=weights)

    def log_posterior(self, task, state):
        return log_posterior(task.z_qry, state.weights, self.temperature)

    def prototypes(self, task, state):
        return state.weights


CENTRED = Method(name="centred-mean", solver=NearestMean(), preparation="centred-l2")
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module outside of the package with a solver and a method."""
    (tmp_path / "own_methods.py").write_text(OWN.replace("TEMPERATURE", "15.0"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "own_methods.py"
    sys.modules.pop("own_methods", None)


@pytest.fixture
def no_work(monkeypatch):
    """Fail if a cell is computed."""

    def fail(*_, **__):
        raise AssertionError("computed")

    monkeypatch.setattr(measurements, "score_cell", fail)


@pytest.fixture
def features(tmp_path):
    """Random features of 20 classes, quick to solve, without a base mean."""
    return _write_random(tmp_path / "random.safetensors")


def _write_random(path, base_mean=None):
    rows = torch.rand(20 * 22, 8, generator=torch.Generator().manual_seed(0)) + 0.1
    write_features(path, FeatureTable(rows, torch.arange(20).repeat_interleave(22), base_mean))
    return path


def _line(folder, label):
    """Return the line of a method in the table of its features, with assumptions and tasks."""
    _, _, text = (folder / "tables.md").read_text().partition("| method | assumes | tasks |")
    line = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_solver_of_the_user_is_a_row_beside_the_published_ones(own, tmp_path):
    names = ["own_methods:NearestMean", "own_methods:CENTRED"]
    features = _write_random(tmp_path / "random.safetensors", torch.full((8,), 0.3))
    more = {"features": features, "dataset": "mini-imagenet", "backbone": "resnet18", **SMALL}
    result = reproduce(tmp_path / "r", only=["table1", "table3"], methods=names, **more)
    added = list(dict.fromkeys(row.method for row in result.rows if row.ways == 5))[-2:]
    by_cell = {(row.method, row.ways, row.shots): row for row in result.rows}
    # A nearest class mean is what "prototype" is, and the centred one what "simpleshot" is.
    for ours, theirs in zip(added, ("prototype", "simpleshot"), strict=True):
        for shots in (1, 5):
            assert by_cell[ours, 5, shots].mean == by_cell[theirs, 5, shots].mean
        assert by_cell[ours, 20, 1].tasks == SMALL["tasks"]
    label, assumes, tasks, one, published, difference, *_ = _line(result.folder, added[0])
    assert (label, assumes, tasks) == (added[0], "nothing", "20")
    assert one == _line(result.folder, "Prototype")[3]
    assert published == difference == ""
    assert _line(result.folder, "TIM-ADM")[4] == "73.6"
    assert f"{added[0]} 20-way" in result.report.read_text()


def test_methods_may_be_objects_or_names(tmp_path, features):
    own = Method(name="sharp", solver=Prototype(temperature=50.0))
    methods = ["pt-map", own, dataclasses.replace(own, name="again")]
    arguments = {"features": features, "only": "table1", **SMALL}
    result = reproduce(tmp_path / "r", methods=methods, **arguments)
    names = list(dict.fromkeys(row.method for row in result.rows))
    assert names[-3:] == ["pt-map", "sharp", "again"]
    single = reproduce(tmp_path / "r", methods=own, **arguments)
    assert single.rows[-1].method == "sharp"


def test_a_method_without_what_it_needs_shows_the_reason(own, tmp_path, features):
    result = reproduce(
        tmp_path / "r",
        features=features,
        only="table1",
        methods=["own_methods:CENTRED", "own_methods:NearestMean"],
        **SMALL,
    )
    assert _line(result.folder, "centred-mean")[3] == "not run"
    reason = "Not run, the feature file has no base_mean: SimpleShot; LaplacianShot; centred-mean."
    assert reason in (result.folder / "tables.md").read_text()
    assert "centred-mean" not in {row.method for row in result.rows}
    assert len(result.rows) == len(result.accuracies) == 2 * 6


def test_results_of_an_edited_solver_are_not_reused(own, tmp_path, features, monkeypatch):
    methods = "own_methods:NearestMean"
    arguments = {"features": features, "only": "table1", "methods": methods, **SMALL}
    first = reproduce(tmp_path / "r", **arguments)
    calls, score = [], measurements.score_cell

    def count(table, method, *more, **options):
        calls.append(method.name)
        return score(table, method, *more, **options)

    monkeypatch.setattr(measurements, "score_cell", count)
    reproduce(tmp_path / "r", **arguments)
    assert not calls
    edited = own.read_text().replace("task.z_qry, state.weights", "-task.z_qry, state.weights")
    own.write_text(edited)
    del sys.modules["own_methods"]
    second = reproduce(tmp_path / "r", **arguments)
    assert calls == [first.rows[-1].method] * 2
    assert second.rows[-1].mean != first.rows[-1].mean


def test_the_result_has_rows_accuracies_and_findings(tmp_path):
    seen = []
    result = reproduce(
        str(tmp_path / "r"),
        only=("table1", "table4"),
        progress=lambda *now: seen.append(now),
        **SMALL,
    )
    assert result.folder == tmp_path / "r"
    assert result.report.is_file()
    for row, accuracies in zip(result.rows, result.accuracies, strict=True):
        mean, half_width = mean_interval(accuracies.double())
        assert accuracies.shape == (row.tasks,)
        assert (100 * mean, 100 * half_width) == pytest.approx(
            (row.mean, row.ci95), rel=1e-5, nan_ok=True
        )
    assert {finding.features for finding in result.findings} == {default_features_path().name}
    verdicts = {finding.statement: finding.verdict for finding in result.findings}
    assert verdicts["5-shot: TIM-ADM is above SimpleShot and LaplacianShot"] in (
        "holds", "does not hold", "undecided",
    )  # fmt: skip
    assert verdicts["TIM-ADM is at least 10 times faster than TIM-GD on a single task"] == "not run"
    assert re.fullmatch(r"Reproduction\('.*report\.html', 26 rows; findings: .*\)", repr(result))
    phases = list(dict.fromkeys(phase for phase, _, _ in seen))
    assert phases[0] == "table1 Prototype 5-way 1-shot (1 of 26)"
    assert len(phases) == 26
    assert ("table1 Prototype 5-way 1-shot (1 of 26)", 20, 20) in seen


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results/ is not part of the installed package")
def test_the_committed_report_is_made_again_from_the_committed_features(tmp_path, no_work):
    """Most of its numbers were computed on a GPU; they are found without one."""
    shutil.copytree(COMMITTED, tmp_path / "r")
    arguments = {"tasks": 2000, "gradient_tasks": 300}
    result = reproduce(tmp_path / "r", features=_committed_features(), **arguments)
    for name in ("tables.md", "tables.tex", "report.html"):
        assert (result.folder / name).read_text() == (COMMITTED / name).read_text()
    assert f"measured {result.coverage.count()['measured']} of the 223" in (
        (COMMITTED / "README.md").read_text()
    )


def _committed_features():
    """Return the feature files that the README of the committed report names."""
    text = (COMMITTED / "README.md").read_text()
    return [COMMITTED.parents[1] / name for name in re.findall(r"--features (\S+)", text)]


MESSAGES = {
    "tasks must be a whole number of at least 1; got 0.": {"tasks": 0},
    "gradient_tasks must be a whole number of at least 1; got 0.": {"gradient_tasks": 0},
    "network_tasks must be a whole number of at least 1; got -3.": {"network_tasks": -3},
    "Unknown experiment 'table9'. Did you mean 'table5'?": {"only": "table9"},
    "Unknown dataset 'mini-imagent'. Did you mean 'mini-imagenet'?": {"dataset": "mini-imagent"},
    "Unknown backbone 'resnet81'. Did you mean 'resnet18'?": {"backbone": ["resnet81"]},
    "dataset must have one name for each feature file; got 2 for 1.": {"dataset": ["cub", "cub"]},
    "methods must have different names, also from those of the paper; got 'TIM-ADM' twice.": {
        "methods": [dataclasses.replace(METHODS["tim-adm"], name="TIM-ADM")]
    },
    "device 'cuda:99' is not available here; use 'cpu'.": {"device": "cuda:99"},
}


@pytest.mark.parametrize("message", MESSAGES)
def test_wrong_arguments_raise_before_any_work(message, tmp_path, no_work):
    with pytest.raises(InvalidArgumentError) as caught:
        reproduce(tmp_path / "r", **MESSAGES[message])
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "not the results of a report, so it is not overwritten; pass out=DIR for"),
        ("no json", "not the results of a report, so it is not overwritten; pass out=DIR"),
        (
            '{"format": "infoshot.reproduce/2", "features": [], "rows": [], "extra": {}}',
            "not the results of a report, so it is not overwritten; pass out=DIR for",
        ),
    ],
)
def test_other_results_are_not_overwritten(content, message, tmp_path, no_work):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(DataError) as caught:
        reproduce(tmp_path, only="table1")
    assert message in str(caught.value)
    assert str(caught.value).endswith("pass out=DIR for another folder.")
    assert (tmp_path / "results.json").read_text() == content


def test_names_in_tables_are_escaped(tmp_path, features):
    name = r"<b>50%_of\{it}</b> $x^2$ | ~"
    own = Method(name=name, solver=Prototype())
    result = reproduce(tmp_path / "r", features=features, only="table1", methods=own, **SMALL)
    page = result.report.read_text()
    assert "<b>50%" not in page
    assert "&lt;b&gt;50%_of\\{it}&lt;/b&gt; $x^2$ | ~" in page
    assert r"<b>50%_of\{it}</b> $x^2$ \| ~" in (tmp_path / "r" / "tables.md").read_text()
    tex = (tmp_path / "r" / "tables.tex").read_text()
    assert (
        r"$<$b$>$50\%\_of\textbackslash{}\{it\}$<$/b$>$ \$x\textasciicircum{}2\$ $\mid$ "
        r"\textasciitilde{}" in tex
    )


def _networks(folder, count, **provenance):
    """Write features of some networks: the same classes with other noise."""
    paths = []
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        labels = torch.arange(6).repeat_interleave(22)
        rows = torch.eye(8)[labels] + 0.5 * torch.rand(len(labels), 8, generator=generator)
        path = folder / f"{provenance['dataset']}-{number}.safetensors"
        table = FeatureTable(rows, labels, torch.full((8,), 0.3), provenance=provenance)
        write_features(path, table)
        paths.append(path)
    return paths


def test_files_of_one_data_set_and_backbone_are_averaged(tmp_path):
    paths = _networks(tmp_path, 3, dataset="cub", backbone="resnet18")
    result = reproduce(tmp_path / "r", features=paths, only="table1", **SMALL)
    means = [
        row.mean for row in result.rows if (row.method, row.shots) == ("tim-adm", 5)
    ]  # fmt: skip
    assert len(means) == 3
    text = (result.folder / "tables.md").read_text()
    expected = f"{statistics.fmean(means):.2f} ± "
    line = next(line for line in text.splitlines() if line.startswith("| TIM-ADM | ResNet-18 |"))
    cub = line.split("|")[13]
    assert cub.strip(" *").startswith(expected)
    assert f"s {statistics.stdev(means):.2f}" in cub
    each = text[text.index("each network (CUB, ResNet-18)") :]
    line = next(line for line in each.splitlines() if line.startswith("| TIM-ADM |"))
    assert [cell.split(" ±")[0].strip() for cell in line.split("|")[3:8:2]] == [
        f"{mean:.2f}" for mean in means
    ]
    assert "network 2: cub-1.safetensors" in each
    assert {item.group for item in result.findings} == {"CUB, ResNet-18", ""}
    assert all("3 networks" in item.numbers for item in result.findings if item.numbers)


def test_numbers_that_the_paper_has_run_first(tmp_path):
    """Table 3 on CUB takes most of the time, and the paper has no numbers to compare with."""
    path = _write_random(tmp_path / "random.safetensors", torch.full((8,), 0.3))
    seen = []
    reproduce(
        tmp_path / "r",
        features=path,
        dataset="cub",
        backbone="resnet18",
        only=("table3", "table1"),
        tasks=1,
        gradient_tasks=1,
        progress=lambda phase, *_: seen.append(phase.split()[0]),
    )
    tables = [name for name in seen if name.startswith("table")]
    assert tables == sorted(tables)
    assert set(tables) == {"table1", "table3"}


def test_a_report_can_be_extended_by_more_files(tmp_path, monkeypatch):
    first, second = _networks(tmp_path, 2, dataset="cub", backbone="resnet18")
    before = reproduce(tmp_path / "r", features=first, only="table1", **SMALL)
    calls, score = [], measurements.score_cell

    def count(*arguments, **options):
        calls.append(options["features_name"])
        return score(*arguments, **options)

    monkeypatch.setattr(measurements, "score_cell", count)
    after = reproduce(tmp_path / "r", features=[second, first], only="table1", **SMALL)
    assert set(calls) == {second.name}
    kept = after.rows[len(before.rows) :]
    assert [(row.method, row.mean) for row in kept] == [
        (row.method, row.mean) for row in before.rows
    ]
    assert len(after.rows) == 2 * len(before.rows)
    renamed = first.rename(tmp_path / "other-name.safetensors")
    calls.clear()
    reproduce(tmp_path / "r", features=[renamed, second], only="table1", **SMALL)
    assert not calls  # the content identifies a file


def test_a_file_counts_once(tmp_path, features, no_work):
    copy = shutil.copy(features, tmp_path / "copy.safetensors")
    with pytest.raises(InvalidArgumentError) as caught:
        reproduce(tmp_path / "r", features=[features, copy])
    assert str(caught.value) == (
        "features must be different files; got 'random.safetensors' and 'copy.safetensors' with "
        "the same content."
    )
    assert not (tmp_path / "r").exists()


def test_folders_distinguish_files_of_the_same_name(tmp_path):
    paths = []
    for number, name in enumerate(("seed0/test", "seed1/test", "other/wrn")):
        (path,) = _networks(tmp_path, 1, dataset=f"cub-{number}", backbone="resnet18")
        folder = tmp_path / name.partition("/")[0]
        folder.mkdir()
        paths.append(path.rename(tmp_path / f"{name}.safetensors"))
    names = [source.name for source, _ in read_sources(paths, (), ())]
    assert names == ["seed0/test.safetensors", "seed1/test.safetensors", "other/wrn.safetensors"]
    (single,) = read_sources(paths[:1], (), ())
    assert single[0].name == "test.safetensors"
    assert read_sources([], (), ()) == []
