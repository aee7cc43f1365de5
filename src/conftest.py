"""The folder in which the examples of docstrings run.

It has labelled images (``examples``), images to label (``photos``, ``new_photos``), a data set
(``data``), and what an example names: ``run``, the result of ``label``, with the answers of an
audit (``answers.csv``), and trained networks (``runs``).
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from infoshot import label, train

_CLASSES = {"cat": (200, 120, 40), "dog": (40, 120, 200)}


@pytest.fixture(autouse=True)
def _work_in_a_folder(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let an example that names a folder work in a copy of what it needs."""
    test = getattr(request.node, "dtest", None)
    if test is None:
        return
    torch.set_num_threads(1)
    monkeypatch.setenv("INFOSHOT_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-examples"))
    for name in ("images", "run", "runs"):
        starts = ('"data', '"photos', '"run') if name == "images" else (f'"{name}"', f'"{name}/')
        if any(start in test.docstring for start in starts):
            folder = request.getfixturevalue(f"_{name}_of_examples")
            shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
            monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def _images_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for name, colour in _CLASSES.items():
        for number in range(5):
            _draw(folder / "examples" / name / f"{number}.png", colour, generator)
    colours = list(_CLASSES.values())
    for number in range(8):
        _draw(folder / "photos" / f"{number + 1}.png", colours[number % 2], generator)
    for number in range(2):
        _draw(folder / "new_photos" / f"{number + 1}.png", colours[number], generator)
    for split, classes in {"train": "abc", "val": "de"}.items():
        for name in classes:
            colour = generator.integers(0, 256, 3).tolist()
            for number in range(6):
                _draw(folder / "data" / split / name / f"{number}.png", colour, generator)
    return folder


@pytest.fixture(scope="session")
def _run_of_examples(_images_of_examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(_images_of_examples)
        label("examples", "photos", folder / "run", progress=False)
    answers = ["path,truth", "photos/1.png,cat", "photos/2.png,cat"]
    (folder / "answers.csv").write_text("\n".join(answers) + "\n")
    return folder


@pytest.fixture(scope="session")
def _runs_of_examples(_images_of_examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data, settings = _images_of_examples / "data", {"n_way": 2, "n_query": 2}
    train("folder", data, "conv4", folder / "runs/conv4", epochs=1)
    train(
        "folder", data, "conv4", folder / "runs/protonet",
        system="protonet", epochs=1, settings={**settings, "episodes_per_epoch": 2},
    )  # fmt: skip
    return folder


def _draw(path: Path, colour: Sequence[int], generator: np.random.Generator) -> None:
    """Write a noisy picture of one colour."""
    noise = generator.integers(-40, 40, (84, 84, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(path)
