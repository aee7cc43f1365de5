"""Label images from a few examples: find them, encode them, decide labels, write a run folder."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from os import PathLike
from os.path import exists
from pathlib import Path
from typing import Any

from torch import Tensor

from infoshot.backbones import PRESETS, PRETRAINED, Encoder, EncoderLike, open_encoder
from infoshot.core import checks
from infoshot.core.atomic import make_folder
from infoshot.core.cache_folder import default_cache_folder
from infoshot.core.environment import default_device
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.plugins import is_reference
from infoshot.core.progress import Progress, ProgressLike, open_progress
from infoshot.core.types import AnyPath
from infoshot.features.cache import FeatureCache, FeatureMemory
from infoshot.features.extract import (
    Encoded,
    Extraction,
    digest_images,
    encode_images,
    encoder_provenance,
)
from infoshot.images.folders import ImageFile, find_examples, find_images, refuse_unusable
from infoshot.labelling.answer_log import set_aside
from infoshot.labelling.calibrate import Estimate
from infoshot.labelling.class_names import read_class_names
from infoshot.labelling.corrections import (
    Corrections,
    Known,
    apply_corrections,
)
from infoshot.labelling.decide import (
    Decision,
    Example,
    ImageLabel,
    Request,
    choose_suggestions,
    decide_labels,
)
from infoshot.labelling.exports import EXPORTS, check_export
from infoshot.labelling.label_report import collect_warnings, label_report
from infoshot.labelling.prediction_sets import PredictionSets
from infoshot.labelling.promises import add_promises
from infoshot.labelling.run_files import ANSWER_LOG, RUN_FILES
from infoshot.labelling.run_folder import check_folder, write_run
from infoshot.labelling.target import Target
from infoshot.labelling.text_prototypes import (
    DEFAULT_WEIGHT,
    NameEncoder,
    TextPrototypes,
    open_names,
)
from infoshot.solvers import METHODS, Method, Solver, method_facts, resolve_method
from infoshot.version import __version__

MethodLike = str | Method | Solver[Any]
DEFAULT_BACKBONE = "efficientnet-lite0"
DEFAULT_THRESHOLD = 0.5
DEFAULT_METHOD, METHOD_WITH_PRIOR = "tim-auto", "tim-adm"
_SUGGESTED = 12  # in the report
_LARGEST_WEIGHT = 1000  # of a text, in examples
_EMPTY = sha256(b"").hexdigest()
Digests = Sequence[tuple[str, str]]


@dataclass(frozen=True, eq=False, repr=False)
class LabelResult:
    """The labels of a run.

    Parameters
    ----------
    folder
        Where everything is written: labels.csv, labels.parquet, report.html, run.json,
        classifier.safetensors and the exports.
    classes
        The names of the classes.
    images
        One :class:`ImageLabel` per image: path, label, confidence, runner-up, margin, status.
    probabilities
        Calibrated probabilities, shape ``(image, class)``; NaN for images that cannot be read, or
        that belong to none of the classes by the answer of a person.
    estimate
        Accuracy estimated on held-out examples, with its interval; ``None`` without any.
    warnings
        What to know before trusting the labels.
    note
        What the method decided about these images.
    exports
        Names of the folders that were exported.
    images_per_second
        Speed of the encoder; ``None`` if all features were cached.
    sets
        With ``coverage``: the classes that each image may have by its path, the most probable
        first. ``prediction_sets.text()`` says what they promise.
    target
        With ``target``: ``target.text()`` says how many labels keep it, and how sure that is.

    Examples
    --------
    >>> label("examples", "photos", "run").classes
    ('cat', 'dog')
    """

    folder: Path
    classes: tuple[str, ...]
    images: list[ImageLabel]
    probabilities: Tensor
    estimate: Estimate | None
    warnings: list[str]
    note: str
    exports: list[str]
    images_per_second: float | None
    sets: dict[str, tuple[str, ...]] | None = None
    prediction_sets: PredictionSets | None = None
    target: Target | None = None

    def __repr__(self) -> str:
        statuses = Counter(image.status for image in self.images)
        counts = ", ".join(f"{n:,} {status}" for status, n in statuses.most_common())
        accuracy = f"; estimated accuracy {self.estimate.accuracy:.0%}" if self.estimate else ""
        return f"LabelResult({len(self.images):,} images: {counts}{accuracy}; {self.folder})"

    @property
    def labels(self) -> dict[str, str]:
        """Label of every image by its path; empty if it has none."""
        return {image.path: image.label for image in self.images}

    @property
    def confidences(self) -> dict[str, float]:
        """Confidence of every image by its path."""
        return {image.path: image.confidence for image in self.images}

    @property
    def labels_path(self) -> Path:
        """The CSV file with all labels."""
        return self.folder / "labels.csv"

    @property
    def report_path(self) -> Path:
        """The page to look at."""
        return self.folder / "report.html"


def label(
    examples: AnyPath | None,
    photos: AnyPath,
    out: AnyPath,
    *,
    classes: AnyPath | Sequence[str] | None = None,
    text_weight: int = DEFAULT_WEIGHT,
    backbone: EncoderLike = DEFAULT_BACKBONE,
    method: MethodLike | None = None,
    settings: Mapping[str, Any] | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    coverage: float | None = None,
    target: float | None = None,
    reject_outliers: bool = False,
    prior: Mapping[str, float] | None = None,
    export: str | Sequence[str] = (),
    cache: AnyPath | None = None,
    device: str | None = None,
    force: bool = False,
    csv_safe: bool = False,
    progress: ProgressLike = None,
) -> LabelResult:
    """Label images from a few examples per class. Nothing is trained, and no GPU is needed.

    Calling it again with the same arguments resumes an interrupted run, and takes seconds if the
    features of all images are cached.

    Parameters
    ----------
    examples
        A folder with one folder per class, or a CSV file with the columns ``path`` and ``label``;
        ``None`` if there are only the names of the ``classes``.
    photos
        A folder tree of images, a CSV file with a column ``path``, or a text file with a path per
        line.
    out
        Folder for the results.
    classes
        Names of the classes, or a text file with one per line: the text of every class counts as
        examples. This needs an encoder with a text tower, such as ``"clip-vit-b32"``.
    text_weight
        Number of examples that the text of a class counts as.
    backbone
        Any encoder that :func:`infoshot.open_encoder` opens.
    method
        Name of a method, ``package.module:Name``, a ``Method`` or a solver. ``None``: ``tim-auto``,
        or ``tim-adm`` with a ``prior``.
    settings
        Hyperparameters of the method to change.
    threshold
        Confidence below which a label is reported as unsure.
    coverage
        Also give each image a set of classes that contains the right one in about this share of the
        images, for example 0.9.
    target
        Instead of ``threshold``: report as labelled what can be expected to be correct at this
        rate, for example 0.95, and the rest as unsure.
    reject_outliers
        Give no label to images that are unlike the examples of every class.
    prior
        Expected share of each class among the images.
    export
        Also write the labels as ``imagefolder``, ``label-studio`` or ``fiftyone``.
    cache
        Folder in which features are cached; by default the user's cache folder.
    device
        ``cpu``, ``cuda``, ...; by default ``cuda`` if there is a GPU.
    force
        Replace another run in ``out``.
    csv_safe
        Write an apostrophe before every field of a CSV file that a spreadsheet program would run as
        a formula. labels.parquet stays exact.
    progress
        See :mod:`infoshot.core.progress`.

    Returns
    -------
    Labels, confidences, the estimated accuracy, warnings and paths.

    Raises
    ------
    InvalidArgumentError, DataError
        Before any work if an argument does not fit; an earlier run in ``out`` is kept.

    Examples
    --------
    >>> label("examples", "photos", "run").labels["photos/1.png"]
    'cat'
    """
    exports = check_exports(export)
    checks.between("threshold", threshold, 0, 1)
    for argument, share in (("coverage", coverage), ("target", target)):
        if share is not None:
            checks.below_one(argument, share)
    if target is not None and threshold != DEFAULT_THRESHOLD:
        raise InvalidArgumentError(
            f"target must not be given with a threshold, which it chooses itself; got {target!r} "
            f"and {threshold!r}."
        )
    checks.at_least("text_weight", text_weight, 1, _LARGEST_WEIGHT)
    for argument, value in (("examples", examples), ("photos", photos), ("out", out)):
        if value is None and argument == "examples" and classes is not None:
            continue
        if not isinstance(value, str | PathLike):
            raise InvalidArgumentError(f"{argument} must be a path; got {type(value).__name__}.")
    if not (prior is None or isinstance(prior, Mapping)):
        raise InvalidArgumentError(f"prior must map classes to shares; got {prior!r}.")
    name = method or (METHOD_WITH_PRIOR if prior else DEFAULT_METHOD)
    chosen = resolve_method(name).with_settings(settings or {})
    encoder = None if isinstance(backbone, str | PathLike) else open_encoder(backbone)
    request = Request(
        examples=None if examples is None else str(examples),
        photos=str(photos),
        backbone=encoder.backbone_name if encoder else _absolute(str(backbone)),
        method=_method_name(name),
        settings=chosen.solver.settings(),
        threshold=threshold,
        reject_outliers=reject_outliers,
        prior=dict(prior) if prior else None,
        coverage=coverage,
        target=target,
        classes=None if classes is None else read_class_names(classes),
        text_weight=None if classes is None else text_weight,
    )
    place = Place(Path(out), _cache_folder(cache), device or default_device(), exports, csv_safe)
    with open_progress(progress) as bar:
        return _label(request, place, encoder, force, bar)


@dataclass(frozen=True)
class Place:
    """Where a run writes and in which form, where it caches features, what it computes on."""

    out: Path
    cache: Path
    device: str
    exports: tuple[str, ...]
    csv_safe: bool


def _label(
    request: Request, place: Place, encoder: Encoder | None, force: bool, progress: Progress
) -> LabelResult:
    """Find the images, check everything, and run."""
    given, classes = request.examples, request.classes
    labelled = find_examples(Path(given), classes) if given is not None else []
    request.choose_method(sorted({*(label for label, _ in labelled), *(classes or ())}))
    check_folder(place.out, request, force=force)
    inside = [place.out, *(image.file for _, image in labelled)]
    inside += [Path(given)] if given is not None else []
    images = find_images(Path(request.photos), without=inside)
    progress.start("opening the encoder")
    encoder = encoder or open_encoder(request.backbone)
    names = open_names(encoder) if request.classes else None
    how = Extraction(device=place.device)
    provenance = encoder_provenance(encoder, how)
    progress.start("reading images")
    examples = _check_examples(labelled, how.n_workers)
    make_folder(place.out)
    with RUN_FILES.open_writer(place.out):
        corrections = check_folder(place.out, request, force=force)  # again: now nobody adds one
        if corrections is None and (place.out / ANSWER_LOG).exists():
            set_aside(place.out)  # it is of a review of other images
        digests = digest_images([image.location for image in images], how.n_workers)
        known, corrections = Known(examples), corrections or Corrections()
        if corrections.answers:
            known = apply_corrections(examples, images, digests, corrections.answers)
        job = Job(request, place, provenance, lambda: encoder, progress, names=names)
        decision, speed = job.decide(known, images, digests)
        return job.write(decision, corrections, images_per_second=speed)


@dataclass(frozen=True, eq=False)
class Job:
    """A run: the part that a first run and a run with corrections share."""

    request: Request
    place: Place
    provenance: Mapping[str, str]
    open_encoder: Callable[[], Encoder]
    progress: Progress
    memory: FeatureMemory | None = None
    names: NameEncoder | None = None

    def decide(
        self, known: Known, images: Sequence[ImageFile], digests: Digests
    ) -> tuple[Decision, float | None]:
        """Encode what is not cached and solve; return also the images encoded per second."""
        for folder in (self.place.out / name for name in EXPORTS):
            if folder.exists():
                check_export(folder)  # now, and not after everything is computed
        # Examples first: one that cannot be decoded stops the run before all images are encoded.
        examples = known.examples
        own = [(example.digest, "") for example in examples]
        support = self._encode([example.image for example in examples], own, "encoding examples")
        refuse_unusable([example.image for example in examples], support.reasons)
        encoded = self._encode(images, digests, "encoding")
        self.progress.start("solving")
        decision = decide_labels(
            self.request,
            examples,
            support.features,
            images,
            encoded,
            self.provenance,
            known.fixed,
            self._encode_names(),
        )
        decision = replace(decision, dropped=known.dropped)
        if self.request.promises:
            decision = add_promises(decision, known.fixed)
        return decision, encoded.images_per_second

    def write(
        self,
        decision: Decision,
        corrections: Corrections,
        *,
        statement: Mapping[str, Any] | None = None,
        images_per_second: float | None = None,
    ) -> LabelResult:
        """Write all results."""
        self.progress.start("writing")
        warnings = collect_warnings(decision)
        exports = self._export(decision)
        worth = choose_suggestions(
            decision.features, decision.open_probabilities(), decision.z_sup, _SUGGESTED
        )
        write_run(
            self.place.out,
            decision,
            report=label_report(decision, warnings, worth, statement),
            corrections=corrections,
            warnings=warnings,
            cache=self.place.cache,
            csv_safe=self.place.csv_safe,
            text=self.names.provenance if self.names else None,
            statement=statement,
        )
        sets, paths = decision.list_sets(), [image.path for image in decision.labels]
        return LabelResult(
            folder=self.place.out,
            classes=decision.classes,
            images=decision.labels,
            probabilities=decision.probabilities,
            estimate=decision.held_out.estimate(),
            warnings=warnings,
            note=decision.note,
            exports=exports,
            images_per_second=images_per_second,
            sets=None if sets is None else dict(zip(paths, sets, strict=True)),
            prediction_sets=decision.sets,
            target=decision.target,
        )

    def _encode_names(self) -> TextPrototypes | None:
        classes, weight = self.request.classes, self.request.text_weight
        if self.names is None or classes is None or weight is None:
            return None
        return self.names.encode(classes, weight, self.place.cache, self.memory)

    @cached_property
    def _cache(self) -> FeatureCache:
        return FeatureCache(self.place.cache, self.provenance, memory=self.memory)

    def _encode(self, files: Sequence[ImageFile], digests: Digests, phase: str) -> Encoded:
        return encode_images(
            [file.location for file in files],
            self.open_encoder,
            Extraction(device=self.place.device),
            cache=self._cache,
            digests=digests,
            phase=phase,
            progress=self.progress,
        )

    def _export(self, decision: Decision) -> list[str]:
        """Write the exports, also those of an earlier run, which would show the old labels."""
        out = self.place.out
        labeller = f"infoshot-{__version__}-{self.request.method}"
        exports = [name for name in EXPORTS if name in self.place.exports or (out / name).exists()]
        for name in exports:
            EXPORTS[name](decision.labels, decision.classes, out / name, labeller)
        return exports


def _method_name(spec: MethodLike) -> str:
    """Return the text from which the run can make the method again."""
    if isinstance(spec, str):
        return spec
    method = resolve_method(spec)
    for name in (method.name, str(method_facts(method)["solver"])):
        if name in METHODS or is_reference(name):
            again = resolve_method(name).with_settings(method.solver.settings())
            if (again.solver, again.preparation) == (method.solver, method.preparation):
                return name
    raise InvalidArgumentError(
        "method must be given by name, because the run stores it; pass 'package.module:Name' of "
        f"the method '{method.name}'."
    )


def check_exports(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of exports; raise ``InvalidArgumentError`` if one is unknown."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in EXPORTS:
            raise InvalidArgumentError(checks.unknown_name("export", name, EXPORTS))
    return names


def _cache_folder(given: AnyPath | None) -> Path:
    return Path(given) if given else default_cache_folder()


def _absolute(backbone: str) -> str:
    """Make the path of an encoder absolute, so that the run works from another folder too."""
    if backbone in PRETRAINED or backbone in PRESETS:  # also if a folder has the same name
        return backbone
    kind, colon, name = backbone.partition(":")
    prefix, name = (f"{kind}:", name) if colon and kind in ("hf", "onnx") else ("", backbone)
    is_path = exists(name)  # noqa: PTH110 - Path raises for very long names
    return f"{prefix}{Path(name).absolute()}" if is_path else backbone


def _check_examples(labelled: Sequence[tuple[str, ImageFile]], n_workers: int) -> list[Example]:
    """Compute digests; refuse unreadable examples and images that are in two classes."""
    digests = digest_images([image.location for _, image in labelled], n_workers)
    refuse_unusable([image for _, image in labelled], [reason for _, reason in digests])
    examples, label_of = [], dict[str, tuple[str, ImageFile]]()
    for (label, image), (digest, _) in zip(labelled, digests, strict=True):
        if digest not in label_of or digest == _EMPTY:  # refused with other damaged files
            label_of[digest] = (label, image)
            examples.append(Example(label, image, digest))
            continue
        other = label_of[digest]
        if other[0] != label:  # twice in one class counts once
            raise DataError(
                f"the same image is an example of '{other[0]}' and of '{label}': {other[1].path} "
                f"and {image.path}."
            )
    return examples
