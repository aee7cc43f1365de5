"""A trained head as a method: the head of a trained system classifies tasks of features.

``system_method("runs/protonet")`` can be used wherever methods are; benchmarks also accept the name
``system:runs/protonet``. Only heads that read feature vectors can be used this way, and the
features must come from the backbone that the head was trained with.
"""

import copy
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.solvers import Method, Solver, State
from infoshot.training.episodic.head import Head
from infoshot.training.episodic.registry import resolve_system
from infoshot.training.episodic.trained_system import TrainedSystem, load_system

PREFIX = "system:"


@final
@dataclass(frozen=True, kw_only=True)
class TrainedHead(Solver[State]):
    """The head of a trained system, applied to features of its backbone.

    Parameters
    ----------
    folder
        The checkpoint, or the training run, of the system.
    digest
        Digest of the system, see ``TrainedSystem``; a system that has changed since is refused.
    """

    folder: str
    digest: str

    inductive = False  # a head need not classify by class weights

    def settings(self) -> dict[str, Any]:
        """Return no hyperparameters: the training has fixed them."""
        return {}

    def provenance(self) -> dict[str, Any]:
        """Name and digest of the system, and the settings of its head as ``head.NAME``."""
        system = open_system(self.folder, self.digest)
        stored = system.encoder.system
        assert stored is not None
        head = {f"head.{name}": value for name, value in stored.settings.items()}
        return {"system": system.name, "system_digest": self.digest, **head}

    def validate(self, n_way: int | None = None) -> None:
        """Raise if the system cannot be read, has changed, or cannot classify so many classes."""
        super().validate(n_way)
        system = open_system(self.folder, self.digest)
        only = getattr(system.head, "n_way", n_way)
        if n_way is not None and n_way != only:
            raise InvalidArgumentError(
                f"{self.folder}: this {system.name} classifies tasks of {only} classes only; "
                f"got {n_way}."
            )

    def check_features(self, table: FeatureTable) -> None:
        """Raise ``DataError`` if features come from other weights than those of the system."""
        system = open_system(self.folder, self.digest)
        own, width = system.backbone_digests, system.encoder.backbone.feature_dim
        found = table.provenance.get("weights_sha256")
        if found is not None and found not in own:
            raise DataError(
                f"the features come from weights {found[:16]}, but the system in {self.folder} has "
                f"{own[0][:16]}; extract the features with its checkpoint."
            )
        if table.features.shape[1] != width:
            raise DataError(
                f"the system in {self.folder} needs features of {width} numbers; "
                f"got {table.features.shape[1]}."
            )

    def log_posterior(self, task: TaskBatch, state: State) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        with torch.inference_mode(False), torch.no_grad():
            z_sup, y_sup, z_qry = (x.clone() for x in (task.z_sup, task.y_sup, task.z_qry))
            return self._head(z_sup).log_posterior(z_sup, y_sup, z_qry, task.n_way)

    def prototypes(self, task: TaskBatch, state: State) -> Tensor:
        """Class weights that the head names, shape ``(task, class, dim)``."""
        with torch.inference_mode(False), torch.no_grad():
            z_sup, y_sup = task.z_sup.clone(), task.y_sup.clone()
            return self._head(z_sup).prototypes(z_sup, y_sup, task.n_way)

    def _head(self, like: Tensor) -> Head:
        return _open_head(self.folder, self.digest, str(like.device), like.dtype)


def system_method(folder: str | os.PathLike[str]) -> Method:
    """Return the method that classifies with the head of a trained system.

    Parameters
    ----------
    folder
        The checkpoint, or the training run, of the system.

    Raises
    ------
    DataError
        If the checkpoint is missing, damaged, or holds no system.
    InvalidArgumentError
        If its head does not read feature vectors.

    Examples
    --------
    >>> from infoshot import bench
    >>> bench("features.safetensors", [system_method("runs/protonet")])  # doctest: +SKIP
    """
    system = load_system(folder)
    if system.head.reads != "vectors":
        raise InvalidArgumentError(
            f"{folder}: {system.name} reads {system.head.reads}, not features; evaluate it with "
            f"infoshot.reproduce and system={folder}."
        )
    solver = TrainedHead(folder=os.fspath(folder), digest=system.digest)
    return Method(
        name=f"{PREFIX}{folder}",
        solver=solver,
        preparation="none",
        transductive=system.head.transductive,
        assumes=system.head.assumes,
        summary=resolve_system(system.name).summary,
        cost="that of the head",
    )


@lru_cache(maxsize=16)
def open_system(folder: str, digest: str) -> TrainedSystem:
    """Read a system once.

    Raises
    ------
    DataError
        If it cannot be read, or has another digest.
    """
    system = load_system(Path(folder))
    if digest != system.digest:
        raise DataError(f"{folder}: this system has changed since it was opened.")
    return system


@lru_cache(maxsize=16)
def _open_head(folder: str, digest: str, device: str, dtype: torch.dtype) -> Head:
    head = copy.deepcopy(open_system(folder, digest).head)
    return head.to(device=device, dtype=dtype)
