"""Systems in a whole report: rows, stored results, statuses, tables and the figure."""

import dataclasses
import re
import shutil

import pytest
import torch
from typer.testing import CliRunner

from infoshot import DataError, InvalidArgumentError, reproduce
from infoshot.backbones import Encoder
from infoshot.backbones.backbone import StoredSystem, weights_digest
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.cli.app import app
from infoshot.features import write_features
from infoshot.features.extract import Extraction, extract_split
from infoshot.images import open_dataset
from infoshot.report.page import Strong
from infoshot.reproduction import measurements
from infoshot.reproduction.coverage import cover
from infoshot.reproduction.paper import ACCURACY_TABLES, published_rows, recipe_cells
from infoshot.reproduction.paper_systems import SYSTEMS_OF_PAPER, has_own_training
from infoshot.reproduction.paper_tables import paper_table
from infoshot.reproduction.report_cells import Plan
from infoshot.reproduction.report_files import Report
from infoshot.reproduction.report_sources import read_sources
from infoshot.reproduction.table_formats import as_page_table, paper_table_to_latex
from infoshot.solvers import METHODS
from infoshot.training.episodic.registry import SYSTEMS, make_head
from tests.image_folders import make_folders
from tests.reproduction.small_systems import MINI, Images, make_network, make_system
from tests.reproduction.synthetic_results import make_results, source, system_run

FEW = {"only": "table1", "tasks": 3, "gradient_tasks": 1, "network_tasks": 2}


@pytest.fixture(autouse=True)
def _methods_of_recipes(monkeypatch):
    """Let every recipe have its method."""
    for system in SYSTEMS_OF_PAPER:
        if system.method:
            stand_in = dataclasses.replace(METHODS["prototype"], name=system.method)
            monkeypatch.setitem(METHODS, system.method, METHODS.get(system.method, stand_in))


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("mini"), 20, (24, 26), MINI)


@pytest.fixture(scope="module")
def plain(mini, tmp_path_factory):
    """Features of a network of plain base training."""
    backbone = make_network(1)
    encoder = Encoder("conv4", backbone, weights_digest(backbone), config={"dataset": "folder"})
    split = open_dataset("mini-imagenet", mini).split("test")
    table = extract_split("mini-imagenet", split, encoder, Extraction())
    provenance = {**table.provenance, "trained_on": "mini-imagenet"}
    table = dataclasses.replace(table, base_mean=torch.zeros(64), provenance=provenance)
    path = tmp_path_factory.mktemp("features") / "plain.safetensors"
    write_features(path, table)
    return path


@pytest.fixture(scope="module")
def report(mini, plain, tmp_path_factory):
    """A report with plain features and three systems."""
    folder = tmp_path_factory.mktemp("report") / "r"
    systems = [make_system("feat"), make_system("protonet", shots=1), make_system("mtl", Images)]
    return reproduce(folder, features=plain, systems=systems, root=mini, **FEW)


def _line(folder, caption, start):
    """Return the cells of a line in a table of the report."""
    _, _, text = (folder / "tables.md").read_text().partition(f"**{caption}")
    line = next(line for line in text.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


def test_systems_are_rows_beside_the_published_numbers(report):
    rows = {(row.method, row.shots): row for row in report.rows}
    assert {name for name, _ in rows} >= {"prototype", "feat", "protonet", "protonet+t", "mtl"}
    line = _line(report.folder, "Comparison to the state of the art", "FEAT")
    assert line[:4] == ["FEAT", "WRN28-10", f"{_shown(rows['feat', 1])} Conv-4", "65.1"]
    line = _line(report.folder, "Systems with their own training", "ProtoNet")
    assert line[1:6] == [
        "mini-ImageNet", "Conv-4", "episodes, 1-shot", "3", _shown(rows["protonet", 1]),
    ]  # fmt: skip
    assert line[6] == "54.2 ResNet-18"
    assert rows["mtl", 5].tasks == 2
    counts = report.coverage.count()
    # FEAT, ProtoNet, ProtoNet + T and MTL at 1 and 5 shots; SimpleShot to TIM-GD of Conv-4.
    assert counts["another backbone"] == 8 + 10
    assert counts["measured"] == 0
    found = [item for item in report.findings if item.table == "systems"]
    assert {item.group for item in found} == {"mini-ImageNet"}
    assert "1-shot: ProtoNet is above prototypes of base training" in {f.statement for f in found}


def _shown(row):
    return f"{row.mean:.2f} ± {row.ci95:.2f}"


def test_page_has_the_figure_with_what_it_can_say(report):
    page = report.report.read_text()
    assert "our images are smaller than those of the authors" in page
    assert re.search(r"<h2[^>]*>Systems</h2>", page)
    svg = (report.folder / "systems.svg").read_text()
    for name in ("FEAT, Conv-4", "ProtoNet + T, Conv-4", "TIM-ADM, Conv-4", "transductive, pub"):
        assert f"<!-- {name}" in svg
    assert (report.folder / "systems.png").read_bytes().startswith(b"\x89PNG")


def test_later_report_shows_stored_systems_without_images(report, plain, tmp_path, monkeypatch):
    shutil.copytree(report.folder, tmp_path / "r")

    def fail(*_, **__):
        raise AssertionError("computed")

    monkeypatch.setattr(measurements, "_run_in_parts", fail)
    later = reproduce(tmp_path / "r", features=plain, **FEW)
    assert [(row.method, row.mean) for row in later.rows] == [
        (row.method, row.mean) for row in report.rows
    ]
    name = "tables.md"
    assert (later.folder / name).read_text() == (report.folder / name).read_text()
    again = reproduce(tmp_path / "r", features=plain, systems=make_system("feat"), **FEW)
    assert again.coverage == report.coverage
    with pytest.raises(InvalidArgumentError, match=r"holds no results of tpn\.$"):
        reproduce(tmp_path / "r", features=plain, systems=make_system("tpn"), **FEW)


def test_run_on_disk_and_its_backbone(mini, plain, tmp_path):
    backbone = make_network()
    config = {"dataset": "mini-imagenet", "system": "protonet", "n_shot": 5}
    stored = StoredSystem("protonet", {}, make_head("protonet", 64, 5).state_dict())
    save_checkpoint(
        tmp_path / "run" / "best", "conv4", backbone.state_dict(), config=config,
        class_names=tuple(MINI["train"]), system=stored,
    )  # fmt: skip
    arguments = [
        "reproduce", "--system", tmp_path / "run", "--root", mini, "--features", plain,
        "--out", tmp_path / "r", "--only", "table1", "--tasks", 2, "--gradient-tasks", 1,
    ]  # fmt: skip
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert "14 more with another backbone" in result.stdout.splitlines()[-1]
    line = _line(tmp_path / "r", "Systems with their own training", "ProtoNet + T")
    assert line[3:5] == ["episodes, 5-shot", "2"]
    missing = [*arguments[:2], tmp_path / "none", *arguments[3:]]
    result = CliRunner().invoke(app, list(map(str, missing)))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    result = CliRunner().invoke(app, ["reproduce", "--root", str(mini), "--out", "r"])
    assert "--root must be given together with --checkpoint DIR or --system" in result.stderr


@pytest.mark.parametrize(
    ("name", "config", "difference"),
    [
        ("feat", {"backbone_rate": 0.0, "init_sha256": "0"}, "frozen backbone"),
        ("tpn", {"backbone_rate": 1.0, "init_sha256": "0"}, "from a base network"),
        ("feat", {"backbone_rate": 0.1, "init_sha256": "0"}, ""),
        ("sib", {"backbone_rate": 0.0, "init_sha256": "0"}, ""),
    ],
)
def test_training_that_differs_from_the_system_is_a_variant(
    name, config, difference, mini, plain, tmp_path
):
    system = make_system(name, shots=1)
    encoder = dataclasses.replace(system.encoder, config={**system.encoder.config, **config})
    system = dataclasses.replace(system, encoder=encoder)
    report = reproduce(tmp_path / "r", features=plain, systems=system, root=mini, **FEW)
    line = _line(report.folder, "Systems with their own training", SYSTEMS[name].title)
    assert line[3].partition("shot, ")[2] == difference
    line = _line(report.folder, "Comparison to the state of the art", SYSTEMS[name].title)
    assert line[2].endswith("Conv-4 variant" if difference else "Conv-4")
    entries = [e for e in report.coverage.entries if e.published.method == SYSTEMS[name].title]
    remarks = {e.reason for e in entries if e.status == "another backbone"}
    assert all((difference in remark) for remark in remarks)
    assert remarks


def test_wrong_images_are_one_sentence(plain, tmp_path):
    (tmp_path / "empty").mkdir()
    arguments = {"features": plain, "systems": make_system(), **FEW}
    with pytest.raises(DataError, match="no images found; a data set may be class folders"):
        reproduce(tmp_path / "r", root=tmp_path / "empty", **arguments)
    folder = tmp_path / "base"
    save_checkpoint(folder, "conv4", make_network().state_dict())
    with pytest.raises(DataError, match="not a few-shot system"):
        reproduce(tmp_path / "r", root=tmp_path, features=plain, systems=folder, **FEW)
    assert not (tmp_path / "r").exists()


def _choose(cell):
    return "needs images" if cell.over_network else [50.0, 60.0]


RECIPES = {
    "distilled": ("Distill", "resnet12"),
    "cosine fixed, margin -0.02": ("Neg-cosine", "resnet18"),
    "cosine learned": ("BD-CSPN", "wrn28-10"),
    "cosine per-class": ("Baseline++", "resnet18"),
    "not smoothed": ("Baseline", "resnet18"),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_fills_the_rows_of_its_system_only(recipe, tmp_path):
    name, backbone = RECIPES[recipe]
    files = [source("mini-imagenet"), source("mini-imagenet", backbone, recipe=recipe)]
    results = make_results(tmp_path, dict.fromkeys(files, _choose))
    assert [group.recipe for group in results.groups] == [""]
    assert [group.recipe for group in results.systems] == [recipe]
    ran = {item.cell.name for item in results.planned if item.source.recipe}
    assert ran == {name}
    entries = cover(results, ACCURACY_TABLES).entries
    measured = {e.published.method for e in entries if e.status == "measured"}
    assert name in measured
    alone = make_results(tmp_path, {files[0]: _choose})
    assert name not in {
        e.published.method for e in cover(alone, ACCURACY_TABLES).entries if e.status == "measured"
    }


def test_unlabelled_images_are_missing_in_a_variant(tmp_path):
    one = source("mini-imagenet", "wrn28-10", recipe="cosine learned, rotation")
    entries = cover(make_results(tmp_path, {one: _choose}), ACCURACY_TABLES).entries
    texts = {e.text for e in entries if e.published.method == "CC+rot+unlabeled"}
    assert texts == {"variant: without unlabelled images", "no data"}


def test_networks_of_another_recipe_do_not_join_the_plain_ones(tmp_path):
    recipe = "rotation, mixup"  # that of no system: all methods run
    files = [source("cub"), source("cub", number=1), source("cub", recipe=recipe)]
    results = make_results(tmp_path, dict.fromkeys(files, _choose))
    assert [(group.about, len(group.sources)) for group in results.groups] == [
        ("CUB, ResNet-18, 2 networks", 2), (f"CUB, ResNet-18, {recipe}", 1),
    ]  # fmt: skip
    table = as_page_table(paper_table("table1", results, cover(results, ACCURACY_TABLES)))
    names = [row[1] for row in table.rows if row[0] == "TIM-ADM"]
    assert names == ["ResNet-18", f"ResNet-18\n{recipe}", "WRN28-10"]
    alone = make_results(tmp_path, {files[2]: _choose})
    coverage = cover(alone, ACCURACY_TABLES)
    assert coverage.count("table1")["variant"] == 8
    rows = as_page_table(paper_table("table1", alone, coverage)).rows
    assert next(row[10] for row in rows if row[0] == "TIM-GD") == f"see {recipe}"


def test_features_record_the_recipe_of_their_network(mini, tmp_path):
    configs = {
        "": {},
        "not smoothed": {"label_smoothing": 0.0},
        "distilled": {"label_smoothing": 0.0, "teacher_sha256": "0"},
        "cosine per-class": {"classifier": "cosine", "classifier_scaling": "per-class"},
        "cosine fixed, margin -0.02": {
            "classifier": "cosine", "classifier_scaling": "fixed", "margin": -0.02,
        },
        "cosine learned, rotation": {"classifier": "cosine", "rotation_weight": 1.0},
        "episodes of tpn": {"system": "tpn", "rotation_weight": 1.0},
    }  # fmt: skip
    backbone = make_network()
    split = open_dataset("mini-imagenet", mini).split("test")
    for recipe, config in configs.items():
        encoder = Encoder("conv4", backbone, "0", config=config)
        assert encoder.recipe == recipe
        assert has_own_training(recipe) == bool(recipe)
    table = extract_split("mini-imagenet", split, encoder, Extraction())
    write_features(tmp_path / "f.safetensors", table)
    ((one, _),) = read_sources([tmp_path / "f.safetensors"], (), ())
    assert (one.recipe, one.images) == (recipe, split.digest())
    assert not recipe_cells("table1", recipe)


def test_every_printed_system_says_what_fills_it():
    shared = {"SimpleShot", "LaplacianShot", "TIM-ADM", "TIM-GD", "Ent-min"}
    printed = {row.method for row in published_rows() if row.table in ACCURACY_TABLES} - shared
    assert printed == {name for system in SYSTEMS_OF_PAPER for name in system.printed}
    for system in SYSTEMS_OF_PAPER:
        ways = (system.run, system.recipe and system.method, system.missing)
        assert sum(map(bool, ways)) == 1, system


def test_runs_of_a_system_are_in_its_row_with_their_backbone(tmp_path):
    runs = [
        system_run("protonet", "mini-imagenet", "resnet18", 1, adds_queries=True),
        system_run("protonet", "mini-imagenet", "resnet18", 5, adds_queries=True),
        system_run("matchnet", "mini-imagenet", "resnet12", 5),
        system_run("can", "mini-imagenet", "resnet12", adds_queries=True),
    ]
    results = make_results(tmp_path, dict.fromkeys([source("mini-imagenet"), *runs], _choose))
    coverage = cover(results, ACCURACY_TABLES)
    table = paper_table("table1", results, coverage)
    rows = {tuple(row[:2]): row for row in as_page_table(table).rows}
    ours = "55.00 ± 9.80"
    assert rows["ProtoNet", "ResNet-18"][2:6] == [ours, "54.2", ours, "73.4"]
    assert rows["ProtoNet + T", "ResNet-12"][2:4] == [f"{ours}\nResNet-18", "55.2"]
    assert rows["MatchNet", "ResNet-18"][2:4] == [f"{ours}\nResNet-12", "52.9"]
    assert rows["MatchNet", "WRN28-10"][2:4] == ["own training", "64.0"]
    assert rows["CAN+T", "ResNet-12"][2:4] == [ours, "67.2"]
    assert rows["can", "ResNet-12"][2:4] == [ours, "-"]
    assert isinstance(rows["ProtoNet", "ResNet-18"][2], Strong)  # all are equal here
    assert not isinstance(rows["MatchNet", "ResNet-18"][2], Strong)
    status = {
        (e.published.method, e.published.backbone): e.text
        for e in coverage.entries
        if e.published.table == "table1" and e.published.dataset == "mini-imagenet"
    }
    assert status["ProtoNet", "resnet18"] == "measured"
    assert status["ProtoNet + T", "resnet12"] == "another backbone: ResNet-18"
    assert status["MatchNet", "wrn28-10"] == "needs its own training"
    assert status["TEAM", "resnet18"] == "published only: no public code is known"
    text = paper_table_to_latex(table)
    assert r"$55.00 \pm 9.80$ {\tiny (ResNet-18)} & 55.2" in text
    assert table.caption.endswith("ResNet-18; systems with their own training (3)")


def test_figure_shows_everything_that_ran_on_a_column(tmp_path):
    runs = [system_run("feat", "cub", "resnet12"), system_run("can", "cub", adds_queries=True)]
    results = make_results(tmp_path, dict.fromkeys([source("cub"), *runs], _choose), ["table1"])
    coverage = cover(results, ["table1"])
    table = paper_table("table1", results, coverage)
    marks = {
        mark.label: mark
        for column in table.columns
        if (column.dataset, column.shots) == ("cub", 5)
        for mark in table.marks(column)
    }
    assert list(marks) == [
        "SimpleShot, ResNet-18", "Prototype, ResNet-18", "can, ResNet-12", "CAN+T, ResNet-12",
        "LaplacianShot, ResNet-18", "TIM-ADM, ResNet-18", "TIM-GD, ResNet-18",
        "BD-CSPN, ResNet-18", "tim-auto (ours), ResNet-18", "FEAT, ResNet-12",
    ]  # fmt: skip
    assert marks["TIM-ADM, ResNet-18"].published == 90.7
    assert marks["FEAT, ResNet-12"].published is None
    assert [marks[name].transductive for name in ("can, ResNet-12", "CAN+T, ResNet-12")] == [
        False,
        True,
    ]
    plan = Plan(experiments=["table1"])
    Report(plan, results._store, results, (), coverage).write()
    assert "CUB, 5-shot: SimpleShot, ResNet-18 is best" in (tmp_path / "report.html").read_text()
