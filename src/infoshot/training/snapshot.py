"""The state of a training run after an epoch, on disk: what resuming needs, and two checkpoints.

``last/`` is replaced in one move: weights, classifier, momentum and the records of all epochs.
``best/`` and the logs follow; if the run is interrupted before, they are written on resuming.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from infoshot.backbones.backbone import StoredSystem
from infoshot.backbones.checkpoint_description import BEST, DESCRIPTION_NAME, LAST
from infoshot.backbones.checkpoints import (
    TrainingState,
    load_checkpoint,
    load_training,
    save_checkpoint,
)
from infoshot.core.errors import DataError
from infoshot.core.setting_text import format_setting
from infoshot.distributed import Ranks
from infoshot.training.records import (
    CSV_NAME,
    LOG_NAME,
    EpochRecord,
    best_epoch,
    is_complete,
    write_csv,
    write_log,
)

_HEAD = "head."  # prefix of classifier or head among the tensors of a snapshot


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a training run after an epoch.

    ``about`` holds the whole configuration and the digests of the images, ``weights`` those of the
    backbone, ``tensors`` the classifier or head and the state of the optimizer, ``system`` name and
    head settings of a few-shot system.
    """

    backbone_name: str
    about: Mapping[str, Any]
    class_names: tuple[str, ...]
    weights: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]
    records: tuple[EpochRecord, ...]
    system: tuple[str, Mapping[str, Any]] | None = None

    def write(self, out: Path, ranks: Ranks) -> None:
        """Replace the checkpoints and logs in the folder of the run."""
        facts = {"epochs": [dataclasses.asdict(record) for record in self.records]}
        self._write_checkpoint(out, LAST, TrainingState(facts, self.tensors))
        self._write_best(out)
        write_log(out / LOG_NAME, self.records, self.about, ranks)
        write_csv(out / CSV_NAME, self.records)

    def complete(self, out: Path, ranks: Ranks) -> None:
        """Write what an interrupted run may lack after ``last``: the best checkpoint, the logs."""
        n_epochs = len(self.records)
        self._write_best(out)
        if not is_complete(out / LOG_NAME, n_epochs):
            write_log(out / LOG_NAME, self.records, self.about, ranks)
        if not is_complete(out / CSV_NAME, n_epochs):
            write_csv(out / CSV_NAME, self.records)

    def head(self) -> dict[str, Tensor]:
        """Return the tensors of the classifier over the features, or of the system's head."""
        return {
            name.removeprefix(_HEAD): value
            for name, value in self.tensors.items()
            if name.startswith(_HEAD)
        }

    def _write_best(self, out: Path) -> None:
        if best_epoch(self.records) == len(self.records):
            self._write_checkpoint(out, BEST, None)

    def _write_checkpoint(self, out: Path, name: str, training: TrainingState | None) -> None:
        save_checkpoint(
            out / name,
            self.backbone_name,
            self.weights,
            class_names=self.class_names,
            config=self.about,
            epoch=len(self.records),
            chosen_as=name,
            training=training,
            classifier=None if self.system else self.head(),
            system=StoredSystem(*self.system, self.head()) if self.system else None,
        )


def read_snapshot(
    out: Path, about: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Snapshot | None:
    """Read the state of an interrupted run with this configuration.

    Settings that the stored configuration lacks, because an older version wrote it, count as having
    their values in ``defaults``.

    Returns
    -------
    ``None`` if the folder holds no finished epoch.

    Raises
    ------
    DataError
        If the folder holds a different run, or is damaged.
    """
    folder = out / LAST
    if not (folder / DESCRIPTION_NAME).exists():
        return None
    try:
        checkpoint, state = load_checkpoint(folder), load_training(folder)
    except DataError as error:
        raise DataError(f"{error} Delete {out} to start over.") from error
    if differences := _differences({**defaults, **checkpoint.config}, checkpoint.config, about):
        raise DataError(
            f"{out}: holds a different training run ({'; '.join(differences)}); choose another "
            "folder, or delete this one to start over."
        )
    try:
        epochs = tuple(EpochRecord(**record) for record in state.facts["epochs"])
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: its records of epochs are damaged. Delete {out} to start over."
        ) from error
    return Snapshot(
        checkpoint.backbone_name,
        about,
        checkpoint.class_names,
        checkpoint.backbone.state_dict(),
        state.tensors,
        epochs,
    )


def _differences(
    stored: Mapping[str, Any], recorded: Mapping[str, Any], about: Mapping[str, Any]
) -> list[str]:
    """List what differs between a stored run, completed by defaults, and the one asked for."""
    kinds = [values.get("system", "base training") for values in (recorded, about)]
    if kinds[0] != kinds[1]:  # all other settings differ too
        return [f"{kinds[0]} there, {kinds[1]} here"]
    return [
        _difference(name, stored.get(name), about.get(name))
        for name in sorted(stored.keys() | about.keys())
        if stored.get(name) != about.get(name)
    ]


def _difference(name: str, stored: object, given: object) -> str:
    if name in ("teacher_sha256", "init_sha256"):
        return f"its {name.removesuffix('_sha256')} differs"
    split = name.removesuffix("_sha256")
    if split != name:
        return f"its {split} images differ"
    there, here = format_setting(stored), format_setting(given)
    if there == here:  # they differ in later digits
        there, here = str(stored), str(given)
    return f"{name} {there} there, {here} here"
