"""Small intact inputs that several kinds share, always the same bytes."""

import hashlib
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image

from infoshot import FeatureTable, labelling
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import TrainingState, save_checkpoint
from infoshot.features import write_features

CLASSES = ("cat", "dog", "eel", "fox", "gnu")  # photos have the first three
DIM = 8
_TIME = 1_700_000_000  # seconds; some files record when others were changed


def make_rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw features ``(n, DIM)`` in float32 of five separate classes, and their classes."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(len(CLASSES), DIM))
    y = np.arange(n) % len(CLASSES)
    return (centres[y] + 0.2 * generator.normal(size=(n, DIM))).astype(np.float32), y


def make_image(number: int, kind: str = "PNG", size: tuple[int, int] = (20, 24), **more) -> bytes:
    """Return a small image of the class ``number % 3``."""
    generator = np.random.default_rng(number)
    pattern = np.random.default_rng(number % 3).integers(0, 200, (4, 4, 3))
    pixels = (pattern + generator.integers(0, 55, (4, 4, 3))).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(stream, kind, **more)
    return stream.getvalue()


def write(path: Path, content: bytes | str) -> Path:
    """Write a file and its folder, with a fixed time of change."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(path, (_TIME, _TIME))
    return path


def make_support(path: Path) -> None:
    """Write a feature file of ten labelled rows."""
    z, y = make_rows(10)
    write_features(path, FeatureTable(torch.from_numpy(z), torch.from_numpy(y), None, CLASSES))


def make_weights(folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    """Write a checkpoint of random weights, with the state of a training."""
    torch.manual_seed(0)
    state = TrainingState({"epochs": [{"epoch": 1}], "seed": 0}, {"momentum": torch.ones(4)})
    weights = make_backbone("conv4").state_dict()
    save_checkpoint(folder, "conv4", weights, class_names=CLASSES, training=state, dtype=dtype)
    return folder


def make_photos(folder: Path) -> None:
    """Write examples of three classes in folders, and photos in one folder."""
    for number in range(6):
        write(folder / "examples" / CLASSES[number % 3] / f"{number}.png", make_image(number))
    for number in range(6, 12):
        write(folder / "photos" / f"{number}.png", make_image(number))


def make_run(folder: Path) -> None:
    """Label the photos; the run, its cache and the sheets of a person are in the folder."""
    make_photos(folder)
    make_weights(folder / "weights")
    run = folder / "run"
    labelling.label(
        folder / "examples", folder / "photos", run, backbone=folder / "weights",
        cache=folder / "cache", export="imagefolder", progress=False,
    )  # fmt: skip
    photos = [str(folder / "photos" / f"{number}.png") for number in range(6, 12)]
    write(folder / "given.csv", f"path,label\n{photos[0]},cat\n{photos[1]},dog\n")
    labelling.add_labels(run, folder / "given.csv", progress=False)
    write(folder / "more.csv", f"path,label\n{photos[2]},eel\n{photos[3]},cat\n{photos[4]},\n")
    answers = "".join(
        f"{photo},cat,{name}\n"
        for photo, name in zip(photos[2:], ["cat", "dog", "eel", "cat"], strict=False)
    )
    write(folder / "answers.csv", "path,label,truth\n" + answers)
    examples = sorted((folder / "examples").rglob("*.png"))
    rows = "".join(f"{path.relative_to(folder)},{path.parent.name}\n" for path in examples)
    write(folder / "examples.csv", "path,label\n" + rows)
    write(folder / "photos.csv", "path\n" + "".join(f"photos/{Path(p).name}\n" for p in photos))
    write(folder / "photos.txt", "".join(f"{photo}\n" for photo in photos))
    write(folder / "prior.json", '{"cat": 0.5, "dog": 0.3, "eel": 0.2}\n')
    _forget_machine(run / "run.json")


def _forget_machine(path: Path) -> None:
    """Take what differs from machine to machine out of the description of a run."""
    facts = json.loads(path.read_text())
    facts["environment"] = {"python": "3", "load_1min": 0.0}
    replace_file(path, (json.dumps(facts, indent=1) + "\n").encode())


RUN = ("run", "cache", "weights", "examples", "photos", "given.csv", "more.csv", "answers.csv")
SHEETS = ("examples.csv", "photos.csv", "photos.txt", "prior.json")


def replace_file(path: Path, content: bytes, *, folders: Sequence[Path] = ()) -> Path:
    """Replace a file, and its digest wherever names or JSON files in these folders contain it."""
    old, new = (hashlib.sha256(data).hexdigest() for data in (path.read_bytes(), content))
    path.write_bytes(content)
    for folder in (path.parent, *folders):
        for other in sorted(folder.glob("*.json")):
            text = other.read_text(errors="surrogateescape")
            if old in text and other != path:
                other.write_text(text.replace(old, new), errors="surrogateescape")
    for length in (64, 32, 16):
        if old[:length] in path.name:
            return path.rename(path.with_name(path.name.replace(old[:length], new[:length])))
    return path


def put(random: Random, path: Path, content: bytes) -> str:
    """Write damaged content; half of the time so that recorded digests match it."""
    if random.random() < 0.5:
        replace_file(path, content)
        return "digest as recorded"
    path.write_bytes(content)
    return "digest as before"
