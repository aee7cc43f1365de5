"""Trained systems in a report: what it stores about each run, and the cells that a run fills.

A run stands for a system and the test images of one data set. Their digests identify it, so that a
report shows stored results later without the run and the images.
"""

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infoshot.reproduction.paper import SHIFTED, system_cells
from infoshot.reproduction.paper_systems import SystemForm
from infoshot.reproduction.report_cells import (
    NEEDS_IMAGES_OF_SYSTEM,
    Plan,
    PlannedCell,
    system_key,
)
from infoshot.reproduction.report_sources import Source


@dataclass(frozen=True)
class SystemRun:
    """A trained system and the images it is evaluated on.

    Attributes
    ----------
    source
        Name of the run, data set, backbone and recipe; its digest identifies system and images.
    system, system_digest
        Name of the system, and the digest of its weights and settings.
    shots
        Examples per class in the episodes of its training; 0 if unknown.
    n_classes
        Number of test classes.
    n_way
        Number of classes of the tasks that it can classify; 0 if it is any.
    forms
        The rows it fills.
    """

    source: Source
    system: str
    system_digest: str
    shots: int
    n_classes: int
    n_way: int
    forms: tuple[SystemForm, ...]

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "SystemRun":
        """Read what ``dataclasses.asdict`` wrote; raises ``TypeError`` or ``KeyError``."""
        forms = tuple(
            SystemForm(**{**form, "assumes": tuple(form["assumes"])}) for form in entry["forms"]
        )
        return cls(**{**entry, "source": Source(**entry["source"]), "forms": forms})


def run_digest(system_digest: str, images: str, sizes: Sequence[int]) -> str:
    """Return the digest of a system, the images and the sizes to which they are cut."""
    facts = json.dumps([system_digest, images, list(sizes)])
    return hashlib.sha256(facts.encode()).hexdigest()


def serves(run: SystemRun, shots: int, runs: Sequence[SystemRun]) -> bool:
    """Whether a run fills the numbers of tasks with so many shots.

    A single run serves all. If runs of the system were trained with different numbers of shots,
    those with the nearest number do.
    """
    alike = [
        other.shots
        for other in runs
        if other.shots
        and (other.source.dataset, other.source.backbone, other.source.recipe)
        == (run.source.dataset, run.source.backbone, run.source.recipe)
    ]
    if not run.shots or not alike:
        return True
    return run.shots == min(alike, key=lambda trained: (abs(trained - shots), -trained))


def plan_systems(
    plan: Plan, runs: Sequence[SystemRun], at_hand: Container[str]
) -> list[PlannedCell]:
    """Plan the cells of all runs, each with a reason where it cannot run.

    Parameters
    ----------
    runs
        All runs of the report, also those whose results are stored.
    at_hand
        Digests of the sources whose system and images are at hand.
    """
    planned = []
    for run in runs:
        for experiment in plan.experiments:
            if (experiment == "table2") != (run.source.dataset == SHIFTED):
                continue
            for cell in system_cells(experiment, run.forms):
                if not serves(run, cell.shots, runs):
                    continue
                protocol = plan.protocol(cell)
                reason = _reason(run, cell.ways, is_at_hand=run.source.digest in at_hand)
                key = system_key(protocol, run.source, cell.run.name)
                planned.append(PlannedCell(cell, run.source, protocol, key, reason))
    return planned


def _reason(run: SystemRun, ways: int, *, is_at_hand: bool) -> str:
    """Return why a run cannot fill a cell; empty if it can."""
    if run.n_way not in (0, ways):
        return f"the system classifies tasks of {run.n_way} classes only"
    if ways > max(5, run.n_classes):
        return f"{ways} classes are needed, there are {run.n_classes}"
    return "" if is_at_hand else NEEDS_IMAGES_OF_SYSTEM


def merge_runs(stored: Sequence[SystemRun], given: Sequence[SystemRun]) -> list[SystemRun]:
    """Return stored and given runs, each once, under the names that were given last."""
    by_digest = {run.source.digest: run for run in (*stored, *given)}
    return list(by_digest.values())
