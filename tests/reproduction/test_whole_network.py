"""``infoshot reproduce`` with images: the ablation over the whole network."""

import dataclasses
import json

import pytest
import torch
from typer.testing import CliRunner

from infoshot import InvalidArgumentError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.cli.app import app
from infoshot.features import default_features_path, write_features
from infoshot.reproduction.api import reproduce
from infoshot.reproduction.ent_min import EntMin
from infoshot.reproduction.finetune import FineTuning
from infoshot.reproduction.paper import LOSSES, WHOLE_NETWORK, cells
from tests.image_folders import make_folders


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Five test classes of small images, and a network without training."""
    folder = tmp_path_factory.mktemp("network")
    root = make_folders(folder / "data", 20, splits={"train": "ab", "val": "cd", "test": "efghi"})
    torch.manual_seed(0)
    backbone = make_backbone("conv4")
    head = torch.nn.Linear(backbone.feature_dim, 2).state_dict()
    save_checkpoint(folder / "weights", "conv4", backbone.state_dict(), classifier=head)
    return ("--checkpoint", folder / "weights", "--root", root, "--dataset", "folder")


SMALL = ("--tasks", 4, "--gradient-tasks", 1, "--network-tasks", 1)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """Take two steps instead of 25; other tests check what the steps compute."""
    for adaptation in (FineTuning, EntMin):
        monkeypatch.setitem(adaptation.__init__.__kwdefaults__, "n_steps", 2)


def test_images_fill_the_rows_over_the_whole_network(given, tmp_path):
    arguments = (*given, "--out", tmp_path / "r", "--only", "table4", *SMALL)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "r" / "results.json").read_text())["rows"]
    over = [row for row in rows if row["method"].endswith("whole network")]
    assert len(over) == sum(cell.parameters == WHOLE_NETWORK for cell in cells("table4")) == 8
    assert all(row["tasks"] == 1 and 0 <= row["mean"] <= 100 for row in over)
    text = (tmp_path / "r" / "tables.md").read_text()
    assert all(f"TIM-GD {{phi+W}}: {loss}".replace("|", "\\|") in text for loss in LOSSES)
    before = (tmp_path / "r" / "tables.md").read_bytes()
    assert run(*arguments).exit_code == 0  # resumes: nothing is left to do
    assert (tmp_path / "r" / "tables.md").read_bytes() == before


def test_figure_and_run_times_include_the_network(given, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.reproduction.measurements._CURVE_TASKS", {"cpu": 2})
    monkeypatch.setattr("infoshot.reproduction.measurements._SINGLE_TASKS", 1)
    monkeypatch.setattr("infoshot.reproduction.measurements._BATCH", {"cpu": 2})
    result = run(*given, "--out", tmp_path / "r", "--only", "table5,figure1", *SMALL)
    assert result.exit_code == 0, result.output
    extra = json.loads((tmp_path / "r" / "results.json").read_text())["extra"]
    (curve,) = extra["figure1_network"]
    assert curve["n_tasks"] == 2
    assert len(curve["milliseconds_alone"]) == len(curve["accuracy"]) == 3  # start and two steps
    for entry in (curve, *extra["figure1"]):
        assert entry["milliseconds_alone"] == sorted(entry["milliseconds_alone"])
        assert entry["device"] == "cpu"
        assert (entry["milliseconds_batched"] is None) == (entry is curve)
    times = {entry["method"]: entry["alone_s"] for entry in extra["run_times"]}
    assert times["Ent-min {phi+W}"] > 0
    assert times["TIM-GD {phi+W}"] > 0


def test_without_images_the_rows_are_not_run(tmp_path):
    result = run("--out", tmp_path / "r", "--only", "table4", "--tasks", 4, "--gradient-tasks", 1)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "r" / "tables.md").read_text()
    assert "Not run, needs images (checkpoint and root): TIM-GD {phi+W}: CE; " in text
    lines = [line for line in text.splitlines() if "{phi+W}: CE" in line and "not run" in line]
    assert sum(line.count("| not run |") for line in lines) == 8


def test_too_few_images_raise_before_any_work(given, tmp_path, embedded):
    few = make_folders(tmp_path / "few", 8, splits={"train": "ab", "val": "cd", "test": "efghi"})
    features = tmp_path / "of-unknown-network.safetensors"
    write_features(features, dataclasses.replace(embedded, provenance={}))
    arguments = (*given[:2], "--root", few, *given[4:], "--features", features)
    result = run(*arguments, "--out", tmp_path / "r", "--only", "table4", *SMALL)
    assert result.exit_code == 2
    assert f"{few}, split 'test': 1-shot tasks of the paper need 16 images of" in result.stderr
    assert not (tmp_path / "r").exists()


def test_nothing_is_extracted_from_too_few_images(given, tmp_path, monkeypatch):
    few = make_folders(tmp_path / "few", 8, splits={"train": "ab", "val": "cd", "test": "efghi"})

    def fail(*_, **__):
        raise AssertionError("extracted")

    monkeypatch.setattr("infoshot.reproduction.whole_network.extract_split", fail)
    arguments = (*given[:2], "--root", few, *given[4:], "--only", "table1")
    result = run(*arguments, "--out", tmp_path / "r", *SMALL)
    assert result.exit_code == 2
    assert f"{few}, split 'test': 1-shot tasks of the paper need 16 images of" in result.stderr
    assert not (tmp_path / "r").exists()


def test_features_of_another_network_raise(given, tmp_path):
    result = run(*given, "--features", default_features_path(), "--out", tmp_path / "r", *SMALL)
    assert result.exit_code == 2
    assert "features must be those of the network in checkpoint" in result.stderr
    assert not (tmp_path / "r").exists()


def test_a_network_needs_images_and_images_a_network(given, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"^checkpoint must be given .* root=DIR\.$"):
        reproduce(tmp_path / "r", checkpoint=given[1])
    with pytest.raises(
        InvalidArgumentError, match=r"^root must be given .* checkpoint=DIR or systems=DIR\.$"
    ):
        reproduce(tmp_path / "r", root=given[3])
    result = run(*given[:2], "--out", tmp_path / "r")
    assert result.exit_code == 2
    assert not (tmp_path / "r").exists()


def test_two_data_sets_for_one_network_raise_before_anything_is_extracted(given, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"dataset must have one name .* got 2 for 1"):
        reproduce(tmp_path / "r", checkpoint=given[1], root=given[3], dataset=["folder", "folder"])
    assert not (tmp_path / "r").exists()
