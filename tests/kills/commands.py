"""Every command that writes something, as a small call, with its inputs and its outputs."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from infoshot import FeatureTable, labelling, write_features
from infoshot.core.errors import DataError
from tests.encoders import save_conv4
from tests.image_folders import make_folders
from tests.shards.made_shards import make_shards

_IN = Path("../inputs")


@dataclass(frozen=True)
class Command:
    """A call of a command in a folder of its own, beside the folder ``inputs``.

    Parameters
    ----------
    name, arguments
        What to run, in the folder.
    make
        Writes the inputs.
    loose
        Names of outputs that show times or the machine.
    start
        Names of inputs that are copied into the folder, because the command changes them.
    look
        Returns what a reader of the outputs sees, or raises ``DataError``; after a signal it must
        be what it was before or what it is at the end.
    before
        Makes the command smaller; runs in its process.
    new_interpreter
        Start Python anew, so that signals also arrive while it imports.
    """

    name: str
    arguments: tuple[object, ...]
    make: Callable[[Path], None]
    loose: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    look: Callable[[Path], object] | None = None
    before: Callable[[], None] | None = None
    new_interpreter: bool = False

    def enter(self, folder: Path) -> None:
        """Make the folder of a run."""
        folder.mkdir()
        for name in self.start:
            shutil.copytree(folder / _IN / name, folder / name)


def _make_sets(inputs: Path) -> None:
    make_folders(inputs / "data", 8, size=(40, 40))
    save_conv4(inputs / "weights")


def _make_many(inputs: Path) -> None:
    make_folders(inputs / "data", 40, size=(60, 60), splits={"train": "ab", "test": "cd"})
    save_conv4(inputs / "weights")


def _make_photos(inputs: Path) -> None:
    make_folders(inputs, 40, size=(60, 60), splits={"all": "abc"})
    for path in sorted((inputs / "all").glob("*/*.png")):
        example = inputs / "examples" / path.parent.name / path.name
        photo = inputs / "photos" / f"{path.parent.name}{path.name}"
        target = example if int(path.stem) < 6 else photo
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    save_conv4(inputs / "weights")


def _make_run(inputs: Path) -> None:
    """Make a finished run, a sheet of corrections and a sheet of answers."""
    _make_photos(inputs)
    labelling.label(
        inputs / "examples", inputs / "photos", inputs / "run", backbone=inputs / "weights",
        cache=inputs / "cache", progress=False,
    )  # fmt: skip
    photos = sorted((inputs / "photos").iterdir())
    lines = "".join(f"{path},{path.name[0]}\n" for path in photos[::9])
    (inputs / "given.csv").write_text(f"path,label\n{lines}{photos[5]},new\n")
    lines = "".join(f"{path},a,{path.name[0]}\n" for path in photos[1::9])
    (inputs / "answers.csv").write_text(f"path,label,truth\n{lines}{photos[7]},a,new\n")


def _make_features(inputs: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(20).repeat(40)
    z = torch.randn(20, 64, generator=generator)[y] + torch.randn(800, 64, generator=generator)
    names = tuple(f"class {number}" for number in range(20))
    facts = {"dataset": "mini-imagenet", "backbone": "resnet18"}
    whole = FeatureTable(z, y, z.mean(0), names, facts)
    write_features(inputs / "features.safetensors", whole)
    some = torch.where(torch.arange(800) < 100, y, -1)
    write_features(inputs / "some.safetensors", FeatureTable(z, some, None, names))


def _make_shards(inputs: Path) -> None:
    make_shards(inputs, sizes=(9000, 1, 0, 7000, 4000))


def _shrink_demo() -> None:
    from infoshot.cli import demo

    demo._TASKS = {"prototype": 40, "tim-adm": 20, "tim-gd": 2}
    demo._IMBALANCED_TASKS = demo._CURVE_TASKS = 4
    demo._EXAMPLES, demo._PHOTOS = 2, 2


def _look_at_run(folder: Path) -> object:
    """Return what other commands see of a run: its labels, their accuracy, and its classes."""
    sheet, answers = folder / "look.csv", folder / _IN / "answers.csv"
    sample = labelling.draw_audit(folder / "run", n=10**6, out=sheet)
    sheet.unlink()
    images = [(image.path, image.label, image.confidence, image.reason) for image in sample.images]
    if not answers.exists():
        return images
    result = labelling.audit(folder / "run", answers)
    return images, [vars(line) for line in result.lines], result.unknown_classes


def look(command: Command, folder: Path) -> object:
    """Look at the outputs as a reader; ``None`` if there is nothing to see, or it is refused."""
    try:
        return command.look(folder) if command.look else None
    except DataError:
        return None


_DATA = ("--dataset", "folder", "--root", _IN / "data", "--device", "cpu")
_RUN = ("run", "--device", "cpu")

COMMANDS = (
    Command(
        "train", ("train", *_DATA, "--backbone", "conv4", "--epochs", 3, "--batch-size", 8,
                  "--lr", 0.02, "--out", "out"),
        _make_sets, loose=("curve.png",),
    ),
    Command(
        "train, a system", ("train", *_DATA, "--backbone", "conv4", "--system", "protonet",
                            "--epochs", 3, "--batch-size", 2, "--set", "episodes_per_epoch=6",
                            "--set", "n_way=3", "--set", "n_query=3", "--set", "val_tasks=50",
                            "--out", "out"),
        _make_sets, loose=("curve.png",),
    ),
    Command(
        "extract", ("extract", *_DATA, "--checkpoint", _IN / "weights", "--base-mean", "--cache",
                    "cache", "--out", "f.safetensors"),
        _make_many,
    ),
    Command(
        "extract-shards", ("extract-shards", _IN / "photos", "--backbone", _IN / "weights",
                           "--shard-size", 20, "--out", "out", "--device", "cpu"),
        _make_photos,
    ),
    Command(
        "label", ("label", _IN / "examples", _IN / "photos", "--out", "run", "--backbone",
                  _IN / "weights", "--cache", "cache", "--export", "imagefolder",
                  "--device", "cpu"),
        _make_photos, look=_look_at_run,
    ),
    Command(
        "label --add", ("label", "--add", _IN / "given.csv", *_RUN),
        _make_run, start=("run",), look=_look_at_run,
    ),
    Command("audit", ("audit", "run", "--n", 20), _make_run, start=("run",)),
    Command(
        "audit --answers", ("audit", "run", "--answers", _IN / "answers.csv", "--json", "a.json"),
        _make_run, start=("run",),
    ),
    Command("suggest", ("suggest", "run", "--n", 9), _make_run, start=("run",)),
    Command(
        "predict", ("predict", _IN / "run", _IN / "photos", "--out", "new.csv", "--cache", "cache",
                    "--device", "cpu"),
        _make_run,
    ),
    Command(
        "solve", ("solve", "--features", _IN / "some.safetensors", "--out", "labels.csv", "--json",
                  "all.json"),
        _make_features,
    ),
    Command(
        "solve-shards", ("solve-shards", "--support", _IN / "support.safetensors", "--queries",
                         _IN / "queries", "--out", "out", "--set", "n_steps=25", "--device", "cpu"),
        _make_shards,
    ),
    Command(
        "bench", ("bench", "--features", _IN / "features.safetensors", "--methods",
                  "prototype,tim-adm,tim-auto", "--tasks", 60, "--json", "rows.json", "--csv",
                  "rows.csv", "--latex", "rows.tex"),
        _make_features,
        loose=("rows.csv", "rows.tex"),
    ),
    Command(
        "reproduce", ("reproduce", "--features", _IN / "features.safetensors", "--only", "table1",
                      "--tasks", 6, "--gradient-tasks", 1, "--out", "out"),
        _make_features, loose=("report.html",),
    ),
    Command(
        "data inspect", ("data", "inspect", "--dataset", "folder", "--root", _IN / "data", "--json",
                         "all.json"),
        _make_many,
    ),
    Command(
        "demo", ("demo", "--out", "out"), lambda inputs: None,
        loose=("results.json", "convergence.png", "report.html"), before=_shrink_demo,
    ),
    Command(
        "solve, from the start", ("solve", "--features", _IN / "some.safetensors", "--out",
                                  "labels.csv", "--json", "all.json"),
        _make_features, new_interpreter=True,
    ),
)  # fmt: skip
