"""What one user sees: methods on single pools of images, in 60 kinds of pools.

infoshot extract --dataset cub --root CUB --split val
    --checkpoint results/training/resnet18/checkpoint --out FOLDER/cub_val_resnet18.safetensors
infoshot extract --dataset cub --root CUB --split val --backbone efficientnet-lite0
    --out FOLDER/cub_val_lite0.safetensors
infoshot extract --dataset mini-imagenet --root MINI --split val --backbone efficientnet-lite0
    --out FOLDER/mini_val_lite0.safetensors
python scripts/pools.py FOLDER --out results/pools.json
python scripts/pools.py --tables results/pools.json

A pool is a set of unlabelled images, with a few examples of each class. The classes of every data
set are divided into two halves by their position: constants may be chosen on the *choosing* classes
(0, 2, 4, ...), claims are checked on the *confirmation* classes (1, 3, 5, ...). Test classes are in
neither. Pool i of a cell depends only on the seed, the cell, the half and i.

Each row is a method in a cell: the gain in accuracy over shrunken prototypes (mean over pools, 5 %
quantile, worst), the share of pools that lose more than 2 points, the difference of mean confidence
and accuracy (mean, and mean of its absolute value over pools) and the expected calibration error
over the images of all pools. All numbers are percent or points. Out-of-class images count for
nothing in these numbers. Slow methods (a thousand gradient steps) run in a subset of the cells.
"""

import argparse
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot import FeatureTable, TaskBatch, read_features, solve
from infoshot.core.atomic import write_atomically
from infoshot.core.environment import environment
from infoshot.features import prepare, unit_length
from infoshot.metrics import accuracy, calibration_bins, expected_calibration_error
from infoshot.solvers import METHODS
from infoshot.tasks.regimes import even_counts, move_excess

RESULTS = Path(__file__).parents[1] / "results"
MINI_RESNET18 = RESULTS / "training/resnet18/mini_val_resnet18.safetensors"
HALVES = ("choosing", "confirmation")
BASELINE = "shrunken-prototype"
FAST = (BASELINE, "prototype", "baseline", "baseline++", "soft-kmeans", "label-propagation",
        "tim-adm", "tim-auto")  # fmt: skip
SLOW = ("ent-min", "alpha-tim", "tim-gd")
TAIL = 0.6  # size of a class relative to the next larger one, in a long tail
OUT_OF_CLASS = 0.2
WEAK_DIM, WEAK_NOISE = 64, 0.5  # of the weakened encoder
_AT_A_TIME = 20  # pools that are solved together
_MOST_SLOW = 100  # pools of a cell that slow methods solve


@dataclass(frozen=True)
class Cell:
    """A kind of pool.

    ``shots`` repeats over the classes; ``mix`` says how many images each class has. ``slow`` cells
    also run the slow methods.
    """

    source: str
    ways: int
    shots: tuple[int, ...]
    images: int
    mix: str
    slow: bool = False

    def __str__(self) -> str:
        return f"{self.source}, {self.ways}-way, {self.images} images, {self.mix}"

    @property
    def n_shots(self) -> str:
        """Examples per class, as text."""
        return "-".join(str(n) for n in sorted({min(self.shots), max(self.shots)}))


ONE, TWO, FIVE, TEN, UNEQUAL = (1,), (2,), (5,), (10,), (1, 2, 3, 4, 5)
_BALANCED, _DIRICHLET, _TAIL = "balanced", "dirichlet:2", "long tail"
_TWO_CLASSES, _ONE_CLASS, _OPEN = "two classes", "one class", "20 % out-of-class"
CELLS = (
    *(  # encoder, data and balance
        Cell(*what, shots, n, mix, slow=mix == _TAIL)
        for *what, n in (
            ("mini-resnet18", 5, 250),
            ("mini-lite0", 5, 250),
            ("cub-resnet18", 10, 120),
            ("cub-lite0", 10, 120),
        )
        for shots in (ONE, FIVE)
        for mix in (_BALANCED, _DIRICHLET, _TAIL)
    ),
    # ways
    Cell("mini-resnet18", 2, ONE, 100, _TAIL),
    Cell("mini-resnet18", 2, FIVE, 100, _TAIL),
    Cell("mini-lite0", 8, FIVE, 400, _DIRICHLET),
    Cell("cub-resnet18", 20, ONE, 500, _BALANCED),
    Cell("cub-resnet18", 20, FIVE, 500, _DIRICHLET),
    Cell("cub-lite0", 20, ONE, 500, _DIRICHLET),
    Cell("cub-lite0", 20, FIVE, 500, _BALANCED),
    # shots
    Cell("mini-resnet18", 5, TWO, 250, _DIRICHLET),
    Cell("cub-lite0", 10, TWO, 120, _BALANCED),
    Cell("mini-resnet18", 5, TEN, 250, _DIRICHLET),
    Cell("mini-lite0", 5, TEN, 250, _TAIL),
    Cell("mini-resnet18", 5, UNEQUAL, 250, _BALANCED),
    Cell("mini-resnet18", 5, UNEQUAL, 250, _DIRICHLET),
    Cell("mini-lite0", 5, UNEQUAL, 250, _TAIL),
    # number of images
    Cell("mini-resnet18", 5, ONE, 50, _DIRICHLET),
    Cell("mini-resnet18", 5, FIVE, 50, _BALANCED),
    Cell("mini-resnet18", 5, FIVE, 50, _DIRICHLET),
    Cell("mini-lite0", 5, FIVE, 1000, _TAIL),
    Cell("mini-resnet18", 5, ONE, 2000, _DIRICHLET),
    Cell("mini-resnet18", 5, FIVE, 2000, _TAIL),
    # classes that do not occur
    Cell("mini-resnet18", 5, ONE, 250, _TWO_CLASSES),
    Cell("mini-resnet18", 5, FIVE, 250, _TWO_CLASSES),
    Cell("cub-lite0", 10, FIVE, 100, _TWO_CLASSES),
    Cell("mini-lite0", 5, ONE, 250, _ONE_CLASS),
    Cell("mini-lite0", 5, FIVE, 250, _ONE_CLASS),
    # images of other classes
    Cell("mini-resnet18", 5, ONE, 250, _OPEN),
    Cell("mini-resnet18", 5, FIVE, 250, _OPEN),
    Cell("cub-lite0", 10, FIVE, 120, _OPEN),
    # weak features, and no network
    *(
        Cell(source, 5, shots, 250, mix)
        for source in ("mini-weak", "digits")
        for shots in (ONE, FIVE)
        for mix in (_BALANCED, _TAIL)
    ),
)


def read_sources(folder: Path) -> dict[str, FeatureTable]:
    """Features of every source, as the networks give them."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    tables = {"mini-resnet18": read_features(MINI_RESNET18)}
    for name in ("mini-lite0", "cub-resnet18", "cub-lite0"):
        data, encoder = name.split("-")
        tables[name] = read_features(folder / f"{data}_val_{encoder}.safetensors")
    digits = load_digits()
    tables["digits"] = FeatureTable(
        torch.from_numpy(digits.data).float(), torch.from_numpy(digits.target).long()
    )
    strong = tables["mini-resnet18"]
    weak = FeatureTable(weaken(prepare(strong, "l2")), strong.labels)
    return tables | {"mini-weak": weak}


def weaken(features: Tensor) -> Tensor:
    """Imitate a weak encoder: project at random on few dimensions and add noise."""
    generator = torch.Generator().manual_seed(0)
    n, dim = features.shape
    projection = torch.randn(dim, WEAK_DIM, generator=generator)
    noise = WEAK_NOISE * torch.randn(n, WEAK_DIM, generator=generator)
    return unit_length(features @ projection + noise)


def draw_pools(
    table: FeatureTable, cell: Cell, half: str, seed: int, pools: range
) -> tuple[TaskBatch, Tensor]:
    """Draw some pools of a cell, and the true classes of their images (-1: none of them)."""
    labels = table.labels.unique()[HALVES.index(half) :: 2]
    rows = [(table.labels == label).nonzero().flatten() for label in labels]
    drawn = []
    for number in pools:
        text = f"{seed}/{cell}/{cell.n_shots}/{half}/{number}"
        generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
        drawn.append(_draw_pool(rows, cell, generator))
    support, y_sup, query, y_qry = map(torch.stack, zip(*drawn, strict=True))
    z = table.features
    return TaskBatch(z[support], y_sup, z[query], cell.ways), y_qry


def _draw_pool(
    rows: Sequence[Tensor], cell: Cell, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows and classes of the examples, rows and classes of the images."""
    order = torch.randperm(len(rows), generator=generator).tolist()
    shuffled = [rows[i][torch.randperm(len(rows[i]), generator=generator)] for i in order]
    known, others = shuffled[: cell.ways], shuffled[cell.ways :]
    n_other = round(OUT_OF_CLASS * cell.images) if cell.mix == _OPEN else 0
    shots = [cell.shots[k % len(cell.shots)] for k in range(cell.ways)]
    counts = _draw_counts(cell, cell.images - n_other, generator)
    limits = torch.tensor([len(own) - n for own, n in zip(known, shots, strict=True)])
    shares = counts.double()  # what a class has too few images for goes to the others of the pool
    counts = move_excess(counts.unsqueeze(0), shares.unsqueeze(0), limits.unsqueeze(0))[0]
    parts = list(zip(known, shots, counts.tolist(), strict=True))
    query = [own[n : n + count] for own, n, count in parts]
    y_qry = torch.arange(cell.ways).repeat_interleave(counts)
    if n_other:
        mixed = torch.cat(others)
        query.append(mixed[torch.randperm(len(mixed), generator=generator)[:n_other]])
        y_qry = torch.cat((y_qry, y_qry.new_full((n_other,), -1)))
    y_sup = torch.arange(cell.ways).repeat_interleave(torch.tensor(shots))
    return torch.cat([own[:n] for own, n, _ in parts]), y_sup, torch.cat(query), y_qry


def _draw_counts(cell: Cell, total: int, generator: torch.Generator) -> Tensor:
    """Images of each class; classes are in random order already."""
    if cell.mix == _DIRICHLET:  # a gamma variate of shape 2 is the sum of two exponential ones
        uniform = torch.rand(2, cell.ways, generator=generator, dtype=torch.float64)
        drawn = torch.multinomial(-uniform.log().sum(0), total, True, generator=generator)
        return drawn.bincount(minlength=cell.ways)
    if cell.mix == _TAIL:
        edges = (TAIL ** torch.arange(cell.ways, dtype=torch.float64)).cumsum(0)
        return (edges / edges[-1] * total).round().long().diff(prepend=torch.tensor([0]))
    n_present = {_TWO_CLASSES: 2, _ONE_CLASS: 1}.get(cell.mix, cell.ways)
    absent = torch.zeros(cell.ways - n_present, dtype=torch.int64)
    return torch.cat((even_counts(total, n_present), absent))


def score_cell(
    table: FeatureTable, cell: Cell, methods: Sequence[str], half: str, seed: int, n_pools: int
) -> Iterator[dict[str, Any]]:
    """Rows of methods in one cell."""
    scores: dict[str, list[Tensor]] = {}
    bins: dict[str, list[Tensor]] = {}
    prepared = {
        name: replace(table, features=prepare(table, METHODS[name].preparation))
        for name in dict.fromkeys((BASELINE, *methods))
    }
    for start in range(0, n_pools, _AT_A_TIME):
        pools = range(start, min(start + _AT_A_TIME, n_pools))
        for name, own in prepared.items():
            tasks, labels = draw_pools(own, cell, half, seed, pools)
            known = labels >= 0
            p = solve(METHODS[name].solver, tasks, validate=False).probabilities
            confidence = (p.amax(-1) * known).sum(-1).double() / known.sum(-1)
            scores.setdefault(name, []).append(torch.stack((accuracy(p, labels), confidence)))
            bins.setdefault(name, []).append(calibration_bins(p, labels))
    base = torch.cat(scores[BASELINE], dim=1)[0]
    for name in methods:
        right, confidence = torch.cat(scores[name], dim=1)
        ece = expected_calibration_error(torch.stack(bins[name]).sum(0))
        yield {
            "half": half, "source": cell.source, "ways": cell.ways, "shots": cell.n_shots,
            "images": cell.images, "mix": cell.mix, "method": name, "pools": n_pools,
            **summarise(100 * right, 100 * base, 100 * confidence), "ece": round(100 * ece, 2),
        }  # fmt: skip


def summarise(right: Tensor, base: Tensor, confidence: Tensor) -> dict[str, float]:
    """Numbers of a row, from the accuracies and mean confidences of the pools."""
    gain, difference = right - base, confidence - right
    numbers = {
        "accuracy": right.mean(),
        "gain": gain.mean(),
        "gain_q05": gain.quantile(0.05),
        "worst": gain.min(),
        "losing": 100 * (gain < -2).double().mean(),
        "overconfidence": difference.mean(),
        "confidence_error": difference.abs().mean(),
    }
    return {name: round(float(number), 2) for name, number in numbers.items()}


def print_tables(path: Path) -> None:
    """Print tables: methods over all cells, and tim-auto in every cell."""
    rows = json.loads(path.read_text())["rows"]
    halves = dict.fromkeys(row["half"] for row in rows)
    for half in halves:
        print(f"\n### All methods, {half} classes\n")
        _print_methods([row for row in rows if row["half"] == half])
    for half in halves:
        print(f"\n### tim-auto in every cell, {half} classes\n")
        _print_cells([row for row in rows if row["half"] == half and row["method"] == "tim-auto"])


def _print_methods(rows: list[dict[str, Any]]) -> None:
    header = ("method", "cells", "gain, 1 shot", "5 or more", "cells with a mean loss",
              "losing pools, 1 shot", "5 or more", "largest", "confidence error")  # fmt: skip
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        one = [row for row in own if row["shots"] == "1"]
        many = [row for row in own if row["shots"] in ("5", "10")]
        numbers = (
            *(f"{_mean(part, 'gain'):+.1f}" for part in (one, many)),
            str(sum(row["gain"] < 0 for row in own)),
            *(f"{_mean(part, 'losing'):.0f} %" for part in (one, many)),
            f"{max(row['losing'] for row in own):.0f} %",
            f"{_mean(own, 'confidence_error'):.1f}",
        )
        print(f"| `{name}` | {len(own)} | " + " | ".join(numbers) + " |")


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    return sum(float(row[name]) for row in rows) / len(rows)


def _print_cells(rows: list[dict[str, Any]]) -> None:
    header = ("encoder and data", "ways", "images", "mix", "shots", "accuracy", "gain", "5 %",
              "worst", "losing", "confidence - accuracy", "absolute", "ECE")  # fmt: skip
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for row in rows:
        what = [str(row[name]) for name in ("source", "ways", "images", "mix", "shots")]
        signed = [f"{row[name]:+.1f}" for name in ("gain", "gain_q05", "worst")]
        numbers = (f"{row['accuracy']:.1f}", *signed, f"{row['losing']:.0f} %",
                   f"{row['overconfidence']:+.1f}", f"{row['confidence_error']:.1f}",
                   f"{row['ece']:.1f}")  # fmt: skip
        print("| " + " | ".join((*what, *numbers)) + " |")


def main() -> None:
    """Run the cells and write the file, or print the tables of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder of the feature files")
    parser.add_argument("--tables", type=Path, help="print the tables of this file instead")
    parser.add_argument("--out", type=Path, default=RESULTS / "pools.json")
    parser.add_argument("--halves", nargs="+", choices=HALVES, default=HALVES)
    parser.add_argument("--methods", nargs="+", help="default: all; slow ones in some cells")
    parser.add_argument("--cells", default="", help="regular expression; default: all cells")
    parser.add_argument(
        "--pools", type=int, default=200, help="pools per cell; slow methods: at most 100"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.tables:
        print_tables(given.tables)
        return
    if given.folder is None:
        parser.error("the folder of the feature files is needed.")
    torch.set_num_threads(1)
    sources = read_sources(given.folder)
    rows: list[dict[str, Any]] = []
    about = {"seed": given.seed, "pools": given.pools, "environment": environment()}
    for half in given.halves:
        for cell in CELLS:
            if not re.search(given.cells, f"{cell}, {cell.n_shots} shots"):
                continue
            names = given.methods or FAST + SLOW * cell.slow
            groups = (
                ([name for name in names if name not in SLOW], given.pools),
                ([name for name in names if name in SLOW], min(given.pools, _MOST_SLOW)),
            )
            for group, n_pools in groups:
                table = sources[cell.source]
                rows += score_cell(table, cell, group, half, given.seed, n_pools) if group else ()
            text = ",\n".join(json.dumps(row) for row in rows)
            text = json.dumps(about)[:-1] + f', "rows": [\n{text}\n]}}\n'
            write_atomically(given.out, text)


if __name__ == "__main__":
    main()
