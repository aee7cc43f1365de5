import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from infoshot.cli.app import app


@pytest.fixture
def root(tmp_path):
    """Two classes of three images, one of them broken."""
    for class_name in ("cats", "dogs"):
        for number in range(3):
            path = tmp_path / "pets" / class_name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((4, 4, 3), number, dtype=np.uint8)).save(path)
    (tmp_path / "pets" / "dogs" / "[bold]1.png").write_bytes(b"")
    return tmp_path / "pets"


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_help_has_an_example():
    assert "Example: infoshot data inspect" in " ".join(run("inspect", "--help").output.split())


def test_inspect_prints_the_content(root, tmp_path):
    out = tmp_path / "report.json"
    result = run("inspect", "--dataset", "folder", "--root", root, "--json", out)
    assert result.exit_code == 0, result.output
    assert "Layout: class folders" in result.output
    assert "Images that cannot be decoded: 1" in result.output
    assert "[bold]1.png: the file is empty." in result.output
    assert "The data set is not complete, see above." in result.output
    report = json.loads(out.read_text())
    assert report["splits"] == [
        {
            "split": "test",
            "classes": 2,
            "images": 7,
            "published_classes": 0,
            "published_images": 0,
        }
    ]
    assert len(report["broken"]) == 1


def test_inspect_without_decoding(root):
    result = run("inspect", "--dataset", "folder", "--root", root, "--no-decode")
    assert "(images were not decoded)." in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "pets", "--root", "."], "Unknown dataset 'pets'."),
        (["--dataset", "folder", "--root", "nowhere"], "nowhere: there is no such folder."),
        (["--dataset", "folder", "--root", ".", "--json", "no/x.json"], "cannot be written"),
        (["--dataset", "folder", "--root", ".", "--json", "c/a.png"], "would replace an input"),
        (["--dataset", "folder", "--root", "c/a.png"], "a file, not a folder."),
    ],
)
def test_bad_input_gives_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.png").touch()
    result = run("inspect", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
