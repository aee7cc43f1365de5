"""A training between two epochs, on disk: all it needs to go on, and its two checkpoints.

``last/`` is replaced in one move: weights, classifier, momentum and the records of all epochs.
``best/`` follows; if it did not come to that, it is written when the training goes on.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from infoshot.backbones.checkpoints import (
    DESCRIPTION_NAME,
    TrainingState,
    load_checkpoint,
    load_training,
    save_checkpoint,
)
from infoshot.core.errors import DataError
from infoshot.distributed import Ranks
from infoshot.training.records import EpochRecord, best_epoch, write_log

BEST, LAST, LOG_NAME = "best", "last", "log.jsonl"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a training is after an epoch.

    ``about`` is the whole configuration, with the digests of the images; ``weights`` are the
    backbone's, ``tensors`` the classifier's and the momentum.
    """

    backbone_name: str
    about: Mapping[str, Any]
    class_names: tuple[str, ...]
    weights: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]
    records: tuple[EpochRecord, ...]

    def write(self, out: Path, ranks: Ranks) -> None:
        """Replace what is in the folder of the run."""
        facts = {"epochs": [dataclasses.asdict(record) for record in self.records]}
        self._write_checkpoint(out / LAST, TrainingState(facts, self.tensors))
        self.write_best(out)
        write_log(out / LOG_NAME, self.records, self.about, ranks)

    def write_best(self, out: Path) -> None:
        """Replace the best checkpoint, if this is it."""
        if best_epoch(self.records) == len(self.records):
            self._write_checkpoint(out / BEST, None)

    def _write_checkpoint(self, folder: Path, training: TrainingState | None) -> None:
        save_checkpoint(
            folder,
            self.backbone_name,
            self.weights,
            class_names=self.class_names,
            config=self.about,
            training=training,
        )


def read_snapshot(out: Path, about: Mapping[str, Any]) -> Snapshot | None:
    """Read where the training with this configuration was interrupted; ``None`` if nowhere.

    Raises
    ------
    DataError
        If the folder holds another training, or is damaged.
    """
    folder = out / LAST
    if not (folder / DESCRIPTION_NAME).exists():
        return None
    try:
        checkpoint, state = load_checkpoint(folder), load_training(folder)
    except DataError as error:
        raise DataError(f"{error} Remove {out} to start anew.") from error
    differences = [
        _difference(name, checkpoint.config.get(name), about.get(name))
        for name in sorted(checkpoint.config.keys() | about.keys())
        if checkpoint.config.get(name) != about.get(name)
    ]
    if differences:
        raise DataError(
            f"{out}: holds another training ({'; '.join(differences)}); choose another folder, or "
            "remove this one to start anew."
        )
    return Snapshot(
        checkpoint.backbone_name,
        checkpoint.config,
        checkpoint.class_names,
        checkpoint.backbone.state_dict(),
        state.tensors,
        tuple(EpochRecord(**record) for record in state.facts["epochs"]),
    )


def _difference(name: str, there: object, here: object) -> str:
    split = name.removesuffix("_sha256")
    if split != name:
        return f"its {split} images are not the same"
    return f"{name} {there} there, {here} here"
