"""The files that a solve over shards writes: its state, labels and summary.

``state.safetensors`` holds the class weights after the last finished iteration and everything they
depend on. The main process replaces it after every iteration, so that a killed solve can resume.
``labels/NAME.safetensors`` has one row for each row of the shard NAME, ``labels/NAME.parquet`` for
each row of a Parquet shard; ``decoded`` has their embeddings until the solve is finished.
``run.json`` is written last: a folder that has it holds a finished solve.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.embedding_column import SUFFIX
from infoshot.core.errors import DataError
from infoshot.core.parquet_file import read_facts
from infoshot.core.regular_file import read_regular
from infoshot.core.tensor_file import read_tensor_file, write_tensor_file

STATE_NAME, LABELS_NAME, SUMMARY_NAME = "state.safetensors", "labels", "run.json"
COPIES_NAME = "decoded"
_STATE_FORMAT, _SUMMARY_FORMAT = "infoshot.shards/1", "infoshot.solve-shards/1"
_STATE_KIND, _LABELS_KIND, _SUMMARY_KIND = "progress", "labels", "infoshot.solve-shards/"


@dataclass(frozen=True, eq=False)
class ResumeState:
    """Class weights, ``(class, dim)`` in float64, after ``n_steps`` iterations.

    ``provenance`` is everything the solve depends on. Queries are averaged with the ``centres``,
    ``(centre, dim)`` in float32, if there are any. ``beta`` is the weight of the marginal entropy,
    and ``note`` says how it was chosen.
    """

    provenance: Mapping[str, Any]
    weights: Tensor
    centres: Tensor
    n_steps: int
    beta: float
    note: str = ""
    converged: bool = False


@dataclass(frozen=True)
class OutputFolder:
    """The folder of one solve."""

    path: Path

    @property
    def labels_path(self) -> Path:
        """Folder of the label files."""
        return self.path / LABELS_NAME

    def make(self) -> None:
        """Make the folder unless it exists.

        Raises
        ------
        DataError
            If it cannot be made.
        """
        make_folder(self.labels_path)

    def write_state(self, state: ResumeState) -> None:
        """Replace the stored state."""
        facts = {
            "format": _STATE_FORMAT,
            "facts": state.provenance,
            "n_steps": state.n_steps,
            "beta": state.beta,
            "note": state.note,
            "ended": state.converged,
        }
        tensors = {"weights": state.weights, "centres": state.centres}
        write_tensor_file(self.path / STATE_NAME, tensors, facts, kind=_STATE_KIND)

    def read_state(
        self, provenance: Mapping[str, Any], shape: tuple[int, ...], n_centres: int
    ) -> ResumeState | None:
        """Read the state of the solve of this provenance; ``None`` if the folder has no state.

        ``shape`` is that of the class weights, ``n_centres`` the number of centres.

        Raises
        ------
        DataError
            If the state is damaged or belongs to another solve.
        """
        path = self.path / STATE_NAME
        if not path.exists():
            return None
        tensors, facts = read_tensor_file(path, kind=_STATE_KIND)
        if facts.get("format") != _STATE_FORMAT:
            raise DataError(
                f"{path}: another version of infoshot wrote it; pass force=True to replace it."
            )
        if facts.get("facts") != provenance:
            difference = _first_difference(facts.get("facts"), provenance)
            raise DataError(
                f"{path}: belongs to another solve ({difference}); pass force=True to replace it."
            )
        state = ResumeState(
            provenance=provenance,
            weights=tensors.get("weights", torch.empty(0)),
            centres=tensors.get("centres", torch.empty(0)),
            n_steps=facts.get("n_steps", -1),
            beta=facts.get("beta", -1),
            note=facts.get("note", ""),
            converged=facts.get("ended", False),
        )
        if not _is_sound(state, shape, n_centres):
            raise DataError(
                f"{path}: damaged, or not a {_STATE_KIND} file; pass force=True to replace it."
            )
        return state

    def check_kind(self) -> None:
        """Raise ``DataError`` if the folder holds the results of another command."""
        summary, state = self.path / SUMMARY_NAME, self.path / STATE_NAME
        if summary.exists() and not (state.exists() and _is_summary(summary)):
            raise DataError(f"{summary}: belongs to another command; choose another folder.")

    def clear(self) -> None:
        """Remove the files of an earlier solve, so that none is taken for a result of this one.

        Raises
        ------
        DataError
            If there is no sign that a solve wrote the state.
        """
        summary, state = self.path / SUMMARY_NAME, self.path / STATE_NAME
        if state.exists() and not _is_summary(summary):
            read_tensor_file(state, kind=_STATE_KIND, only=())
        for path in (summary, state):
            path.unlink(missing_ok=True)
        for suffix in (".safetensors", SUFFIX):
            for path in self.labels_path.glob(f"*{suffix}"):
                if _is_labels(path):
                    path.unlink()

    def write_labels(
        self, shard: str, rows: Mapping[str, Tensor], *, solve: str, class_names: Sequence[str]
    ) -> None:
        """Write the labels of a shard, the key of their solve, and the names of the classes."""
        facts = {"solve": solve, "class_names": list(class_names)}
        write_tensor_file(self._labels_file(shard), rows, facts, kind=_LABELS_KIND)

    def read_counts(self, shard: str, *, solve: str, n_rows: int, n_classes: int) -> Tensor | None:
        """Count the labels of a shard, ``(class,)``; ``None`` unless the same solve wrote them."""
        try:
            tensors, facts = read_tensor_file(
                self._labels_file(shard), kind=_LABELS_KIND, only=("labels",)
            )
        except DataError:
            return None
        labels = tensors["labels"]
        if facts.get("solve") != solve or labels.dtype != torch.int32 or labels.shape != (n_rows,):
            return None
        if not bool(((labels >= 0) & (labels < n_classes)).all()):
            return None
        return labels.long().bincount(minlength=n_classes)

    def parquet_file(self, shard: str) -> Path:
        """Return the file for the labels of a Parquet shard."""
        return self.labels_path / f"{shard}{SUFFIX}"

    def has_summary(self) -> bool:
        """Whether the solve is finished."""
        return (self.path / SUMMARY_NAME).exists()

    def write_summary(self, facts: Mapping[str, Any]) -> None:
        """Write ``run.json``."""
        text = json.dumps({"format": _SUMMARY_FORMAT, **facts}, indent=1)
        write_atomically(self.path / SUMMARY_NAME, text + "\n")

    def _labels_file(self, shard: str) -> Path:
        return self.labels_path / f"{shard}.safetensors"


def _is_summary(path: Path) -> bool:
    """Whether a solve over shards wrote this file."""
    try:
        facts = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(facts, dict) and str(facts.get("format")).startswith(_SUMMARY_KIND)


def _is_labels(path: Path) -> bool:
    """Whether a solve over shards wrote this file of labels."""
    try:
        if path.suffix == SUFFIX:
            facts, _ = read_facts(path, _LABELS_KIND)
        else:
            _, facts = read_tensor_file(path, kind=_LABELS_KIND, only=())
    except DataError:
        return False
    return "solve" in facts


def _is_sound(state: ResumeState, shape: tuple[int, ...], n_centres: int) -> bool:
    """Whether values that a file claims to be a state can be one."""
    weights, centres, n_steps, beta = state.weights, state.centres, state.n_steps, state.beta
    return (
        weights.shape == shape
        and weights.dtype == torch.float64
        and bool(weights.isfinite().all())
        and centres.shape == (n_centres, shape[1])
        and centres.dtype == torch.float32
        and bool(centres.isfinite().all())
        and type(n_steps) is int
        and n_steps >= 0
        and isinstance(beta, (int, float))
        and 0 <= beta < math.inf
        and isinstance(state.note, str)
        and isinstance(state.converged, bool)
    )


def _first_difference(earlier: Any, now: Mapping[str, Any]) -> str:  # noqa: ANN401 - from a file
    """Say what differs first between the provenances of two solves."""
    known = isinstance(earlier, dict) and now.keys() <= earlier.keys()
    if not known or not isinstance(earlier["shards"], list):
        return "it does not say which"
    if earlier["method"] != now["method"]:
        return f"the method was {earlier['method']!s:.60}"
    for names, difference in (
        (["support_sha256"], "the support differs"),
        (["preparation"], "its features were prepared differently"),
        (["settings", "centres"], "the settings differ"),
    ):
        if any(earlier[name] != now[name] for name in names):
            return difference
    changed = sorted({str(shard) for shard in earlier["shards"]} ^ set(now["shards"]))
    return f"shards have changed: {changed[0].split(':')[0]}" if changed else "the shards differ"
