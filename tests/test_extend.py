"""docs/extend.md is true: its plugin runs through every command and function that it names."""

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from infoshot.cli.app import app
from tests.image_folders import make_folders

PAGE = (Path(__file__).parents[1] / "docs" / "extend.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^infoshot (.*?)(?: +#.*)?$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images, features and the plugin of the page, in a folder outside the repository."""
    folder = tmp_path_factory.mktemp("extend")
    (folder / "my_plugin.py").write_text("\n".join([PYTHON[0], PYTHON[3]]))
    names = ("cat", "dog", "eel")
    make_folders(folder / "photos", 6, size=(40, 40), splits={"test": names})
    make_folders(folder / "examples", 4, size=(44, 40), splits={"": names})
    splits = {"train": ("a", "b"), "val": ("c", "d"), "test": names}
    make_folders(folder / "data/mini-imagenet", 20, size=(40, 40), splits=splits)
    x = np.random.default_rng(0).random((40, 8)).astype(np.float32)
    np.savez(folder / "mine.npz", features=x, labels=np.repeat([0, 1, -1, -1], 10))
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("INFOSHOT_CACHE", str(folder / "cache"))


def shorten(command):
    """Add what keeps a command short, and use the images of the test."""
    words = shlex.split(command.replace("--dataset mini-imagenet", "--dataset folder"))
    more = {"bench": ["--tasks", "20"], "reproduce": ["--tasks", "4", "--only", "table1"]}
    more["train"] = ["--epochs", "1", "--set", "val_tasks=5", "--device", "cpu"]
    return words + more.get(words[0], [])


def test_page_names_all_actions():
    actions = {command.split()[0] for command in COMMANDS}
    assert actions == {"bench", "solve", "label", "reproduce", "train", "extract"}
    assert len(COMMANDS) >= 9


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_page_runs(command, folder):
    result = CliRunner().invoke(app, shorten(command))
    assert result.exit_code == 0, result.output
    if command.startswith("bench --methods tim-adm"):
        assert "my_plugin:MySolver" in result.stdout
        assert "Difference to tim-adm on the same tasks" in result.stdout
    if command.startswith("reproduce"):
        assert "my_plugin:MySolver" in (folder / "report" / "tables.md").read_text()
    if command.startswith("solve"):
        with Path("labels.csv").open() as file:
            assert len(list(csv.DictReader(file))) == 20


def test_python_of_the_page_runs(folder):
    names = {}
    exec(PYTHON[1], names)  # check_solver
    short = (
        PYTHON[2]
        .replace("tasks=1000", "tasks=20")
        .replace('out="report")', 'out="report-python", tasks=4, only="table1")')
    )
    exec(short, names)
    assert [row.method for row in names["result"].rows][-1].startswith("my-solver")
    assert names["result"].differences
    assert (names["clf"].transduction_ >= 0).all()


def test_networks_from_python(folder):
    import my_plugin
    import torch

    import infoshot

    torch.manual_seed(0)
    network = my_plugin.make_net()
    by_name = infoshot.extract("folder", "photos", backbone=network, dtype="float32")
    assert by_name.features.shape == (18, 64)
    result = infoshot.label(
        "examples", "photos", "run-python", backbone=network, method=my_plugin.MySolver()
    )
    assert set(result.labels.values()) <= {"cat", "dog", "eel"}
    assert len(result.images) == 18


def test_checkpoint_of_an_own_network_needs_its_module(folder):
    """The checkpoint of the page records its class, which another process can import."""
    if not Path("runs/mine/best").exists():
        pytest.skip("the training of the page did not run")
    code = "import infoshot; print(infoshot.open_encoder('runs/mine/best').backbone_name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "my_plugin:make_net"
