"""Text that people write: sheets of labels, lists of images and classes, class shares."""

import json
import shutil
from pathlib import Path

from infoshot import inspect_dataset
from tests.fuzz.kinds.made import RUN, SHEETS, make_image, make_run, write
from tests.fuzz.kinds.runs import use_run
from tests.fuzz.mutations import damage_json, damage_text
from tests.fuzz.runner import Case, Kind, run_command


class Sheets(Kind):
    """A sheet of examples, corrections or answers, or a list of photos."""

    name, made = "sheet", "run"

    def prepare(self, intact: Path) -> None:
        make_run(intact)

    def check(self, case: Case) -> None:
        for arguments in _USES.values():
            case.copy(*RUN, *SHEETS)
            run_command(*arguments)
            for path in case.work.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def attempt(self, case: Case) -> None:
        case.copy(*RUN, *SHEETS)
        name = case.random.choice(list(_USES))
        path = case.work / name
        change = damage_json if name.endswith(".json") else damage_text
        content, done = change(case.random, path.read_text())
        path.write_bytes(content)
        case.note(f"{name}: {done}")
        use_run(case, lambda _: run_command(*_USES[name]))
        for out in case.work.glob("*.out.csv"):
            out.read_bytes().decode("utf-8", "surrogateescape")


_LABEL = ("--out", "new", "--backbone", "weights", "--cache", "cache")
_USES = {
    "examples.csv": ("label", "examples.csv", "photos", *_LABEL),
    "photos.csv": ("label", "examples", "photos.csv", *_LABEL),
    "photos.txt": ("predict", "run", "photos.txt", "--out", "new.out.csv"),
    "more.csv": ("label", "--add", "more.csv", "run"),
    "answers.csv": ("audit", "run", "--answers", "answers.csv", "--json", "audit.json"),
    "prior.json": ("label", "examples", "photos", *_LABEL, "--prior", "prior.json"),
}


class Lists(Kind):
    """The lists of a data set: CSV files per split, CUB's tables, a file of splits."""

    name, fast = "dataset-list", True

    def prepare(self, intact: Path) -> None:
        for layout in ("lists", "cub", "folders"):
            for number in range(4):
                folder = "ab"[number % 2] if layout != "lists" else ""
                write(intact / layout / "images" / folder / f"{number}.png", make_image(number))
        for split, rows in (("train", "0.png,a\n2.png,a\n"), ("test", "1.png,b\n3.png,b\n")):
            write(intact / "lists" / f"{split}.csv", "filename,label\n" + rows)
        write(intact / "cub" / "images.txt", "1 a/0.png\n2 b/1.png\n3 a/2.png\n4 b/3.png\n")
        write(intact / "cub" / "image_class_labels.txt", "1 1\n2 2\n3 1\n4 2\n")
        write(intact / "folders" / "splits.json", json.dumps({"train": ["a"], "test": ["b"]}))

    def check(self, case: Case) -> None:
        for layout, dataset in (("lists", "folder"), ("cub", "cub"), ("folders", "folder")):
            splits = case.intact / layout / "splits.json" if layout == "folders" else None
            found = inspect_dataset(dataset, case.intact / layout, splits=splits, progress=False)
            assert not found.broken

    def attempt(self, case: Case) -> None:
        layout, file = case.random.choice(
            (
                ("lists", "train.csv"),
                ("lists", "test.csv"),
                ("cub", "images.txt"),
                ("cub", "image_class_labels.txt"),
                ("folders", "splits.json"),
            )
        )
        case.copy(layout)
        path = case.work / layout / file
        change = damage_json if file.endswith(".json") else damage_text
        content, done = change(case.random, path.read_text())
        path.write_bytes(content)
        case.note(f"{file}: {done}")
        dataset = "cub" if layout == "cub" else "folder"
        splits = path if layout == "folders" else None
        if case.random.random() < 0.3:
            more = ("--splits", splits) if splits else ()
            run_command(
                "data", "inspect", "--dataset", dataset, "--root", layout, *more, "--json", "a.json"
            )
            json.loads((case.work / "a.json").read_text())
            return
        inspect_dataset(dataset, case.work / layout, splits=splits, progress=False)


KINDS = (Sheets(), Lists())
