"""Count how often the prediction sets and the target of ``infoshot label`` hold what they promise.

python scripts/label_promises.py FOLDER --out results/label_promises.json
python scripts/label_promises.py --tables results/label_promises.json

FOLDER has the feature files that ``scripts/pools.py`` describes. Pools with five examples per class
are drawn as there and labelled by the code of ``infoshot label`` with ``coverage=0.9`` and
``target=0.95``. Constants were chosen on the *choosing* classes only. Rows of halves that are not
given stay in the file, if its settings are the same.

Each row is a kind of pool. In percent of its images that belong to a class, averaged over pools:
``accuracy`` of all labels, ``coverage`` of the prediction sets, and ``labelled``, the images that
reach the target. ``mean_size`` is the mean size of the sets. ``gap`` is the absolute difference of
mean confidence and accuracy in points, ``gap_uncalibrated`` that of the probabilities of the
solver, averaged over pools, and ``estimate_error`` that of the estimated and the true
accuracy. In percent of the pools: ``estimate_holds``, the accuracy is in the interval of its
estimate; ``kept``, at
least 95 % of the images that are marked as labelled are correct, or none is marked; ``nothing``,
none is marked; ``kept_strictly``, as ``kept`` with out-of-class images counted as errors. In some
cells the pools are labelled again with 50 random images whose class an audit has shown.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pools import _TAIL, CELLS, FIVE, HALVES, RESULTS, Cell, draw_pools, read_sources
from torch import Tensor

from infoshot import FeatureTable, TaskBatch
from infoshot.core.atomic import write_atomically
from infoshot.core.environment import environment
from infoshot.features.extract import Encoded
from infoshot.images.folders import ImageFile
from infoshot.labelling.decide import CORRECTED, Decision, Example, Request, decide_labels
from infoshot.labelling.promises import add_promises

COVERAGE, TARGET = 0.9, 0.95
AUDITED, LEAST_IMAGES = 50, 250  # of the cells with a long tail
_ROUNDING = 1e-9


def make_request(method: str) -> Request:
    """Ask for both options."""
    return Request(
        examples="", photos="", backbone="", method=method, settings={}, threshold=0.5,
        reject_outliers=False, prior=None, coverage=COVERAGE, target=TARGET,
    )  # fmt: skip


def label_pool(
    request: Request, tasks: TaskBatch, encoder: Mapping[str, str], fixed: Mapping[str, str]
) -> Decision:
    """Label one pool with the code of ``infoshot label``. Names of classes are their numbers."""
    examples = [
        Example(_name(label), _image(f"e{number}"), f"e{number}")
        for number, label in enumerate(tasks.y_sup[0].tolist())
    ]
    digests = [f"p{number}" for number in range(tasks.z_qry.shape[1])]
    images = [_image(digest) for digest in digests]
    encoded = Encoded(tasks.z_qry[0], digests, [""] * len(digests))
    decision = decide_labels(request, examples, tasks.z_sup[0], images, encoded, encoder, fixed)
    return add_promises(decision, fixed)


def _image(name: str) -> ImageFile:
    return ImageFile(name, Path(name))


def _name(label: int) -> str:
    return f"{label:03d}"


def draw_audit(truth: Tensor, number: int) -> dict[str, str]:
    """Answers about random images of a pool that belong to a class."""
    order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(number))[:AUDITED]
    return {f"p{i}": _name(int(truth[i])) for i in order.tolist() if truth[i] >= 0}


def score_pool(decision: Decision, truth: Tensor) -> dict[str, float]:
    """Compare a decision with the truth; images whose class a person gave do not count."""
    names = [_name(label) for label in truth.tolist()]
    sets, raw = decision.list_sets() or [], decision.uncalibrated.amax(-1).tolist()
    rows = [
        (label.label == name, name in own, len(own), label.status == "labelled", known,
         label.confidence, before)
        for label, name, own, known, before in zip(
            decision.labels, names, sets, (truth >= 0).tolist(), raw, strict=True
        )
        if label.reason != CORRECTED
    ]  # fmt: skip
    table = torch.tensor(rows, dtype=torch.float64).T
    correct, covered, size, sure, known, confidence, before = table
    n_sure, is_known = float((sure * known).sum()), known > 0
    n_correct = float((sure * known * correct).sum())
    accuracy, estimate = float(correct[is_known].mean()), decision.held_out.estimate()
    assert estimate is not None
    return {
        "accuracy": accuracy,
        "estimate_error": abs(estimate.accuracy - accuracy),
        "estimate_holds": float(estimate.low <= accuracy <= estimate.high),
        "coverage": float(covered[is_known].mean()),
        "mean_size": float(size[is_known].mean()),
        "labelled": float(sure[is_known].mean()),
        "kept": float(n_correct >= TARGET * n_sure - _ROUNDING),
        "kept_strictly": float(n_correct >= TARGET * float(sure.sum()) - _ROUNDING),
        "nothing": float(n_sure == 0),
        "gap": float((confidence - correct)[is_known].mean().abs()),
        "gap_uncalibrated": float((before - correct)[is_known].mean().abs()),
        "correct_of_labelled": n_correct / n_sure if n_sure else float("nan"),
    }


def score_cell(
    table: FeatureTable, cell: Cell, half: str, seed: int, n_pools: int, n_audited: int, method: str
) -> dict[str, Any]:
    """Row of a cell."""
    request, scores = make_request(method), []
    encoder = {
        name: table.provenance.get(name, "") for name in ("weights_sha256", "transform", "infoshot")
    }
    for number in range(n_pools):
        tasks, labels = draw_pools(table, cell, half, seed, range(number, number + 1))
        fixed = draw_audit(labels[0], number) if n_audited else {}
        scores.append(score_pool(label_pool(request, tasks, encoder, fixed), labels[0]))
    return {
        "half": half, "source": cell.source, "ways": cell.ways, "images": cell.images,
        "mix": cell.mix, "method": method, "audited": n_audited, "pools": n_pools,
        **summarise(scores),
    }  # fmt: skip


def summarise(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average the numbers of the pools; all but sizes in percent."""
    means = {}
    for name in scores[0]:
        values = torch.tensor([score[name] for score in scores], dtype=torch.float64)
        mean = float(values.nanmean())
        means[name] = round(mean if name == "mean_size" else 100 * mean, 2)
    return {name: mean for name, mean in means.items() if mean == mean}


def print_tables(path: Path) -> None:
    """Print the table of docs/label.md, and all cells."""
    rows = json.loads(path.read_text())["rows"]
    _print_groups([row for row in rows if not row["audited"]])
    for n_audited in dict.fromkeys(row["audited"] for row in rows):
        for half in HALVES:
            own = [row for row in rows if (row["half"], row["audited"]) == (half, n_audited)]
            if own:
                print(f"\n### {half} classes, {n_audited} audited images\n")
                _print_rows(own)


def _print_groups(rows: Sequence[Mapping[str, Any]]) -> None:
    header = ("encoder and data", "half", "correct labels", "coverage", "classes in a set",
              "labelled", "pools that keep the target", "of those with any")  # fmt: skip
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    every = [
        (source, half) for source in dict.fromkeys(r["source"] for r in rows) for half in HALVES
    ]
    for source, half in (*every, *(("all", half) for half in HALVES)):
        own = [r for r in rows if r["half"] == half and source in (r["source"], "all")]
        if not own:
            continue
        kept, nothing = _mean(own, "kept"), _mean(own, "nothing")
        of_any = f"{100 * (kept - nothing) / (100 - nothing):.0f} %" if nothing < 100 else ""
        numbers = (
            f"{_mean(own, 'accuracy'):.0f} %", f"{_mean(own, 'coverage'):.1f} %",
            f"{_mean(own, 'mean_size'):.2f}", f"{_mean(own, 'labelled'):.0f} %", f"{kept:.0f} %",
            of_any,
        )  # fmt: skip
        print("| " + " | ".join((source, half, *numbers)) + " |")


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    header = ("encoder and data", "ways", "images", "mix", "correct labels", "coverage",
              "classes in a set", "labelled", "of these correct", "pools that keep the target",
              "with outliers as errors", "pools without any")  # fmt: skip
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for row in rows:
        what = [str(row[name]) for name in ("source", "ways", "images", "mix")]
        right = row.get("correct_of_labelled")
        numbers = (
            f"{row['accuracy']:.1f} %", f"{row['coverage']:.1f} %", f"{row['mean_size']:.2f}",
            f"{row['labelled']:.0f} %", "" if right is None else f"{right:.1f} %",
            f"{row['kept']:.0f} %", f"{row['kept_strictly']:.0f} %", f"{row['nothing']:.0f} %",
        )  # fmt: skip
        print("| " + " | ".join((*what, *numbers)) + " |")
    means = {name: _mean(rows, name) for name in ("accuracy", "coverage", "mean_size", "labelled",
             "kept", "kept_strictly", "nothing", "gap", "gap_uncalibrated", "estimate_error",
             "estimate_holds")}  # fmt: skip
    print("\nMean of all cells:", ", ".join(f"{name} {x:.2f}" for name, x in means.items()))


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(float(row[name]) for row in rows) / len(rows)


def _earlier_rows(path: Path, about: Mapping[str, Any], halves: Sequence[str]) -> list[Any]:
    """Rows of other halves that an earlier run with the same settings wrote."""
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    if any(before.get(name) != about[name] for name in ("seed", "pools", "coverage", "target")):
        return []
    return [row for row in before["rows"] if row["half"] not in halves]


def main() -> None:
    """Run the cells and write the file, or print the tables of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder of the feature files")
    parser.add_argument("--tables", type=Path, help="print the tables of this file instead")
    parser.add_argument("--out", type=Path, default=RESULTS / "label_promises.json")
    parser.add_argument("--halves", nargs="+", choices=HALVES, default=HALVES)
    parser.add_argument("--method", default="tim-auto")
    parser.add_argument("--pools", type=int, default=50, help="pools per cell and half")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.tables:
        print_tables(given.tables)
        return
    if given.folder is None:
        parser.error("the folder of the feature files is needed.")
    torch.set_num_threads(1)
    sources, start = read_sources(given.folder), time.perf_counter()
    about = {"seed": given.seed, "pools": given.pools, "coverage": COVERAGE, "target": TARGET,
             "environment": environment()}  # fmt: skip
    rows = _earlier_rows(given.out, about, given.halves)
    for half in given.halves:
        for cell in CELLS:
            if cell.shots != FIVE:
                continue
            audits = (0, AUDITED) if cell.mix == _TAIL and cell.images >= LEAST_IMAGES else (0,)
            for n_audited in audits:
                table = sources[cell.source]
                row = score_cell(
                    table, cell, half, given.seed, given.pools, n_audited, given.method
                )
                rows.append(row)
                print(f"{time.perf_counter() - start:5.0f} s", json.dumps(row), flush=True)
    text = ",\n".join(json.dumps(row) for row in rows)
    write_atomically(given.out, json.dumps(about)[:-1] + f', "rows": [\n{text}\n]}}\n')
    print_tables(given.out)


if __name__ == "__main__":
    main()
