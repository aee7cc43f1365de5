"""Labels of a shard: a file of the same name, with a row for each of its rows."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from infoshot.core.atomic import write_atomically
from infoshot.solvers.sharded.passes import Classifier, best_classes
from infoshot.solvers.sharded.rows import Rows

FOLDER = "labels"


def labels_path(out: Path, name: str) -> Path:
    """Where the labels of a shard go."""
    return out / FOLDER / f"{name}.safetensors"


def known_counts(path: Path, key: str, n_classes: int) -> Tensor | None:
    """How many rows of a shard got each class, if it has been labelled by this very solve."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("labels", "{}"))
            if facts.get("solve") != key:
                return None
            labels: Tensor = file.get_tensor("labels")
    except (OSError, SafetensorError, ValueError):
        return None
    return labels.long().bincount(minlength=n_classes)


def label_shard(
    path: Path,
    rows: Rows,
    classifier: Classifier,
    key: str,
    names: Sequence[str],
    on_rows: Callable[[int], None],
) -> Tensor:
    """Write label, confidence and margin of every row; return how many got each class."""
    n_rows, n_classes = len(rows), len(classifier.bias)
    labels = torch.empty(n_rows, dtype=torch.int32)
    confidence, margin = torch.empty(n_rows), torch.empty(n_rows)
    done = 0
    for n_new, (label, first, ahead) in rows.map(partial(best_classes, classifier=classifier)):
        some = slice(done, done + n_new)
        labels[some], confidence[some], margin[some] = label, first, ahead
        done += n_new
        on_rows(n_new)
    tensors = {"labels": labels, "confidence": confidence, "margin": margin}
    # A single entry, since safetensors writes several in any order.
    facts = json.dumps({"solve": key, "class_names": list(names)})
    write_atomically(path, save(tensors, metadata={"labels": facts}))
    return labels.long().bincount(minlength=n_classes)
