"""The second part of ``infoshot demo``: a pile of handwritten digits as image files, labelled."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from infoshot.cli._console import complain, print_table, stdout
from infoshot.cli.label_request import label_request, watched
from infoshot.core.atomic import make_folder
from infoshot.labelling.api import Finished, Workplace, label_folder

_EXAMPLES, _PHOTOS, _SIDE = 2, 60, 96


def label_digits(out: Path) -> None:
    """Write scikit-learn's digits as PNG files, label them, and compare with the truth."""
    truth = _write_digits(out)
    found = {}
    for name in ("prototype", "tim-auto"):
        found[name] = _labelled(out, name)
    rows = []
    for name, done in found.items():
        right = [photo.label == truth[photo.file.name] for photo in done.outcome.photos]
        rows.append([name, f"{100 * np.mean(right):.1f}"])
    n_photos = len(truth)
    title = (
        f"{n_photos} images of handwritten digits as files, labelled from {_EXAMPLES} examples of "
        "each, by a network that has seen photographs only"
    )
    print_table(["method", "right (%)"], rows, title)
    run = out / "run-tim-auto"
    for sentence in found["tim-auto"].warnings:
        complain("Warning", sentence)
    stdout().print(
        f"Labels and confidences: {run / 'labels.csv'}\nOpen in a browser: {run / 'report.html'}",
        soft_wrap=True,
    )


def _labelled(out: Path, method: str) -> Finished:
    request = label_request(
        out / "examples",
        out / "photos",
        backbone="efficientnet-lite0",
        method=method,
        settings=[],
        threshold=0.5,
        reject_outliers=False,
        prior=None,
    )
    place = Workplace(out=out / f"run-{method}", cache=out / "features")
    with watched() as watcher:
        return label_folder(request, place, force=True, watcher=watcher)


def _write_digits(out: Path) -> dict[str, str]:
    """Examples in class folders, photos in one; the truth by file name."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    seen = dict.fromkeys(range(10), 0)
    truth = {}
    for number in order:
        label = int(digits.target[number])
        seen[label] += 1
        if seen[label] > _EXAMPLES + _PHOTOS:
            continue
        pixels = (255 - digits.images[number] * 255 / 16).astype(np.uint8)
        image = Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
        is_example = seen[label] <= _EXAMPLES
        folder = out / "examples" / str(label) if is_example else out / "photos"
        make_folder(folder)
        path = folder / f"digit-{number:04d}.png"
        image.save(path)
        if not is_example:
            truth[path.name] = str(label)
    with (out / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("name", "digit"), *sorted(truth.items())])
    return truth
