"""Opens trained systems and the test images on which a report evaluates them.

Every folder of images serves all systems that it can: those trained on its data set, and those
trained on mini-ImageNet if it is CUB (the domain shift). Published data sets are recognised by
their class names; other images count as those of the data set that a system was trained on.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.progress import SILENT, Progress
from infoshot.features.extract import Extraction
from infoshot.images import ImageSplit, open_dataset
from infoshot.images.datasets import recognise_dataset
from infoshot.images.in_memory import load_crops
from infoshot.reproduction.paper import OWN_IMAGES, comparable_dataset
from infoshot.reproduction.paper_systems import (
    SystemForm,
    printed_names,
    recipe_of_run,
    with_queries,
)
from infoshot.reproduction.report_cells import Plan, check_split
from infoshot.reproduction.report_sources import Source, short_names
from infoshot.reproduction.report_store import stored_systems
from infoshot.reproduction.reported_runs import SystemRun, plan_systems, run_digest
from infoshot.training.episodic.registry import SYSTEMS
from infoshot.training.episodic.trained_system import TrainedSystem, load_system
from infoshot.training.episodic.with_confident_queries import ConfidentQueries

SystemLike = str | os.PathLike[str] | TrainedSystem
Named = tuple[str, TrainedSystem]
"""A system with the name of its run."""


@dataclass(frozen=True, eq=False)
class EvaluationImages:
    """The test images of a data set, decoded once for all systems that see them at one size."""

    dataset: str
    root: Path
    split: ImageSplit

    @cached_property
    def digest(self) -> str:
        """The sha256 of classes and contents."""
        return self.split.digest()

    @cached_property
    def _crops(self) -> dict[tuple[int, int], Tensor]:
        return {}

    def crops(self, sizes: tuple[int, int], progress: Progress = SILENT) -> Tensor:
        """Return all crops, uint8, for these pixels of the shorter side and of the crop."""
        if sizes not in self._crops:
            progress.start("decoding images", len(self.split.records), "images")
            self._crops[sizes] = load_crops(
                self.split.records,
                *sizes,
                n_workers=Extraction().n_workers,
                on_progress=progress.advance,
            )
        return self._crops[sizes]


@dataclass(frozen=True, eq=False)
class Trial:
    """A trained system, in all its forms by name, with the images to evaluate it on."""

    run: SystemRun
    forms: Mapping[str, TrainedSystem]
    images: EvaluationImages
    how: Extraction

    @property
    def system(self) -> TrainedSystem:
        """The system as it was trained."""
        return self.forms[self.run.system]


def open_systems(given: Sequence[SystemLike]) -> list[Named]:
    """Read trained systems from the folders of their runs, or take them as they are.

    Raises
    ------
    InvalidArgumentError
        If a system is given twice.
    DataError
        If a folder is not the run of a system.
    """
    paths = [Path(one) for one in given if not isinstance(one, TrainedSystem)]
    names = iter(short_names(paths))
    opened, first = list[Named](), dict[str, str]()
    for one in given:
        if isinstance(one, TrainedSystem):
            name, system = one.name, one
        else:
            name, system = next(names), load_system(one)
        if system.digest in first:
            raise InvalidArgumentError(
                f"systems must be different runs; got '{first[system.digest]}' and '{name}' with "
                "the same content."
            )
        first[system.digest] = name
        opened.append((name, system))
    return opened


def find_trials(
    plan: Plan, systems: Sequence[Named], roots: Sequence[Path], folder: Path
) -> list[Trial]:
    """Bring systems and folders of images together.

    Parameters
    ----------
    plan
        What to run.
    systems, roots
        The systems, and folders of images. Without images nothing can be evaluated.
    folder
        The report, which holds the results of systems without images.

    Raises
    ------
    InvalidArgumentError
        If there are neither images nor results for a system.
    DataError
        If a system finds no images of its data set, or the tasks cannot be drawn from them.
    """
    if not roots:
        _check_stored(systems, folder)
        return []
    known = {root: recognise_dataset(root) for root in dict.fromkeys(roots)}
    trials = _match(systems, known, Extraction(device=plan.device))
    for trial in trials:
        for item in plan_systems(plan, [trial.run], [trial.run.source.digest]):
            if not item.not_run:
                check_split(trial.images.root, trial.images.split, item.protocol.spec)
    return trials


def _check_stored(systems: Sequence[Named], folder: Path) -> None:
    stored = {run.system_digest for run in stored_systems(folder)}
    unknown = [name for name, system in systems if system.digest not in stored]
    if unknown:
        raise InvalidArgumentError(
            f"root must be given with the images for systems: {folder} holds no results of "
            f"{', '.join(unknown)}."
        )


def _match(systems: Sequence[Named], roots: Mapping[Path, str], how: Extraction) -> list[Trial]:
    """Return a trial for each system and each folder of images that it can be evaluated on."""
    opened: dict[tuple[Path, str], EvaluationImages] = {}
    trials = []
    for name, system in systems:
        trained_on = system.encoder.trained_on or OWN_IMAGES
        datasets = {root: recognised or trained_on for root, recognised in roots.items()}
        suited = [root for root in roots if comparable_dataset(datasets[root], trained_on)]
        if not suited:
            shown = ", ".join(f"{root} ({dataset})" for root, dataset in datasets.items())
            raise DataError(
                f"root must have images of {trained_on}, which {name} was trained on; got {shown}."
            )
        for root in suited:
            dataset = datasets[root]
            if (root, dataset) not in opened:
                split = open_dataset(dataset, root).split("test")
                opened[root, dataset] = EvaluationImages(dataset, root, split)
            trials.append(_trial(name, system, opened[root, dataset], how))
    return trials


def _trial(name: str, system: TrainedSystem, images: EvaluationImages, how: Extraction) -> Trial:
    encoder = system.encoder
    digest = run_digest(system.digest, images.digest, how.sizes(encoder))
    dataset = comparable_dataset(images.dataset, encoder.trained_on)
    recipe = recipe_of_run(system.name, *_differences(system))
    source = Source(name, digest, dataset, encoder.backbone_name, recipe, images.digest)
    forms = dict(_forms(system))
    run = SystemRun(
        source=source,
        system=system.name,
        system_digest=system.digest,
        shots=int(encoder.config.get("n_shot", 0)),
        n_classes=len(images.split.class_names),
        n_way=int(getattr(system.head, "n_way", 0)),
        forms=tuple(
            SystemForm(form, one.head.reads, one.head.transductive, _title(form), one.head.assumes)
            for form, one in forms.items()
        ),
    )
    return Trial(run, forms, images, how)


def _differences(system: TrainedSystem) -> Iterator[str]:
    """Yield how the network was trained otherwise than the system prescribes."""
    prescribed, config = SYSTEMS.get(system.name), system.encoder.config
    if prescribed is None:
        return
    if config.get("backbone_rate") == 0 and prescribed.trains != "head":
        yield "frozen backbone"
    elif config.get("init_sha256") and not prescribed.needs_init:
        yield "from a base network"


def _title(form: str) -> str:
    """Return the name of a form in tables: that of the registry, or of a user's class."""
    name, plus, rest = form.partition("+")
    title = SYSTEMS[name].title if name in SYSTEMS else name.rpartition(":")[2]
    return title + plus + rest.upper()


def _forms(system: TrainedSystem) -> Iterator[tuple[str, TrainedSystem]]:
    """Yield the system, and its form with confident queries if the paper has it."""
    yield system.name, system
    name = with_queries(system.name)
    if any(printed_names(name)):
        yield name, dataclasses.replace(system, head=ConfidentQueries(system.head).eval())
