"""Decide the label of every image from features: one solve, calibration, outliers, suggestions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot.core.checks import order_shares
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.label_names import NONE
from infoshot.core.types import BaseStatistics, Solution, Status, TaskBatch
from infoshot.features.extract import Encoded
from infoshot.images.folders import ImageFile
from infoshot.labelling.calibrate import HeldOut, calibrate, choose_usable, hold_out
from infoshot.labelling.classifier import (
    Classifier,
    class_centres,
    find_base,
    outlier_cutoff,
    outlier_scores,
    prepare_features,
)
from infoshot.labelling.prediction_sets import PredictionSets, name_sets
from infoshot.labelling.target import Target
from infoshot.labelling.text_prototypes import TextPrototypes
from infoshot.solvers import METHODS, Method, resolve_method, solve_with_retry

CORRECTED = "given"  # the reason in labels.csv of a label that a person gave
_ENOUGH_TO_JUDGE = 3  # examples of a class, to report one of them as mislabelled
_CANDIDATES = 2000  # most doubtful images that suggestions are chosen from


@dataclass(frozen=True)
class ImageLabel:
    """The label of one image: one line of labels.csv.

    Parameters
    ----------
    path
        As in labels.csv: printable, valid UTF-8.
    file
        Where to open it; the name may not be valid UTF-8.
    label
        Empty if the image cannot be read, belongs to none of the classes, or its label is withheld.
    confidence
        Calibrated probability of the label; NaN if unreadable, or of no class by a person's answer.
    runner_up, margin
        The second best class, and how far its probability is behind.
    status, reason
        ``labelled``, ``unsure``, ``outlier`` or ``unreadable``, and why; ``given`` by a person.

    Examples
    --------
    >>> from infoshot import label
    >>> label("examples", "photos", "run").images[0].status
    'labelled'
    """

    path: str
    file: Path
    label: str
    confidence: float
    runner_up: str
    margin: float
    status: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of a run. Two runs with equal requests are the same run."""

    examples: str | None
    photos: str
    backbone: str
    method: str
    settings: Mapping[str, Any]
    threshold: float
    reject_outliers: bool
    prior: Mapping[str, float] | None
    coverage: float | None = None
    target: float | None = None
    classes: Sequence[str] | None = None
    text_weight: int | None = None

    @property
    def promises(self) -> bool:
        """Whether prediction sets or a target are asked for."""
        return self.coverage is not None or self.target is not None

    def same_images(self, other: "Request") -> bool:
        """Whether another request is about the same examples and images."""
        return (self.examples, self.photos) == (other.examples, other.photos)

    def choose_method(self, classes: Sequence[str]) -> Method:
        """Return the method with its settings for these classes.

        Raises
        ------
        InvalidArgumentError
            If the method cannot classify new images, or the prior does not fit.
        """
        method = resolve_method(self.method).with_settings(self.settings)
        if not method.inductive:
            able = [name for name, other in METHODS.items() if other.inductive]
            raise InvalidArgumentError(
                f"method must be able to classify new images, but '{self.method}' cannot; use one "
                f"of: {', '.join(able)}."
            )
        if self.prior is None:
            return method
        if "class_prior" not in method.solver.settings():
            raise InvalidArgumentError(f"prior must not be given for the method '{self.method}'.")
        shares = order_shares(self.prior, classes)
        return method.with_settings({"class_prior": [share / sum(shares) for share in shares]})


@dataclass(frozen=True)
class Example:
    """A labelled image.

    ``given`` marks an unlabelled image that a person labelled later, ``original`` is the label that
    an example had before a person changed it.
    """

    label: str
    image: ImageFile
    digest: str
    given: bool = False
    original: str = ""


@dataclass(frozen=True, eq=False)
class Decision:
    """The labels of all images, and what they are based on.

    ``probabilities`` (calibrated), ``outlier_scores`` and ``features`` have a row per image, NaN
    where it cannot be read; ``probabilities`` also where a person said that it belongs to none of
    the classes. They are the solver's own for images of an audit, whose ``labels`` are those of the
    person. ``uncalibrated`` are the probabilities of the solver, NaN for images that it did not
    get. ``z_sup`` and ``y_sup`` are the examples as the method got them, then the texts of classes.
    ``dropped`` are the examples that belong to none of the classes by the answer of a person.
    ``sets`` and ``target`` are added by :func:`infoshot.labelling.promises.add_promises`.
    """

    request: Request
    classes: tuple[str, ...]
    examples: Sequence[Example]
    labels: list[ImageLabel]
    digests: Sequence[str]
    probabilities: Tensor
    uncalibrated: Tensor
    outlier_scores: Tensor
    features: Tensor
    z_sup: Tensor
    y_sup: Tensor
    held_out: HeldOut
    classifier: Classifier
    note: str
    dropped: Sequence[Example] = ()
    sets: PredictionSets | None = None
    target: Target | None = None

    def open_probabilities(self) -> Tensor:
        """Return the probabilities, NaN also where a person has answered."""
        answered = torch.tensor([label.reason == CORRECTED for label in self.labels])
        return self.probabilities.masked_fill(answered.unsqueeze(-1), torch.nan)

    def list_sets(self) -> list[tuple[str, ...]] | None:
        """List the classes that each image may have, or ``None`` if nobody asked for them.

        An image that a person labelled has that class; an image without a label has none.
        """
        if self.sets is None:
            return None
        names = name_sets(self.sets, self.probabilities, self.classes)
        return [
            (label.label,) if label.reason == CORRECTED and label.label else own
            for label, own in zip(self.labels, names, strict=True)
        ]

    def find_odd_examples(self) -> list[tuple[Example, str]]:
        """List examples that were classified as another class when held out, with that class."""
        held = self.held_out
        guesses = held.probabilities.argmax(-1)
        several = self.y_sup.bincount()[held.truth] >= _ENOUGH_TO_JUDGE
        wrong = ((guesses != held.truth) & several).nonzero().flatten().tolist()
        return [
            (self.examples[int(held.rows[number])], self.classes[int(guesses[number])])
            for number in wrong
        ]


def decide_labels(
    request: Request,
    examples: Sequence[Example],
    example_features: Tensor,
    images: Sequence[ImageFile],
    encoded: Encoded,
    provenance: Mapping[str, str],
    fixed: Mapping[str, str] | None = None,
    texts: TextPrototypes | None = None,
) -> Decision:
    """Label every image that can be read; an image that a person answered keeps that label.

    Parameters
    ----------
    request
        The arguments of the run.
    examples, example_features
        The labelled images; those that are ``given`` are not solved again.
    images, encoded, provenance
        The images to label, their features, and what these come from.
    fixed
        Labels by digest that a person gave and that are no examples. The solver labels these
        images like all others, unless the label is ``NONE``.
    texts
        The texts of classes, which count as examples.
    """
    classes = tuple(sorted({*(example.label for example in examples), *(request.classes or ())}))
    if len(classes) < 2:
        raise DataError("examples of at least two classes are needed; label more images.")
    method, fixed = request.choose_method(classes), fixed or {}
    given = {example.digest: example.label for example in examples if example.given}
    is_given = torch.tensor([digest in given for digest in encoded.digests])
    is_none = torch.tensor([fixed.get(digest) == NONE for digest in encoded.digests])
    asked = _choose_queries(encoded.readable, is_given | is_none)
    queries = encoded.features[asked]
    y_sup = torch.tensor([classes.index(e.label) for e in examples], dtype=torch.int64)
    if texts is not None:
        example_features, y_sup = texts.append(example_features, y_sup, queries, classes)
    usable = choose_usable([example.given for example in examples], len(y_sup))
    base = find_base(method, provenance)
    z_sup, z_qry = (prepare_features(z, method, base) for z in (example_features, queries))
    tasks = TaskBatch(z_sup.unsqueeze(0), y_sup.unsqueeze(0), z_qry.unsqueeze(0), len(classes))
    solution = solve_with_retry(method.solver, tasks)
    if solution.status[0] == Status.NON_FINITE:
        raise DataError(f"{method.name} did not stay finite; check its settings.")
    held_out = hold_out(method, z_sup, y_sup, z_qry, solution.probabilities[0].mean(0), usable)
    scores = outlier_scores(z_qry, class_centres(z_sup, y_sup, len(classes)))
    cutoff = outlier_cutoff(z_sup, y_sup, len(classes), usable, scores)
    classifier = _make_classifier(
        request, method, tasks, solution, held_out.exponent(), cutoff, classes, provenance, base
    )
    probabilities = _fill_rows(asked, calibrate(solution.probabilities[0], classifier.exponent))
    for i in (encoded.readable & is_given).nonzero().flatten().tolist():
        probabilities[i] = torch.tensor([float(k == given[encoded.digests[i]]) for k in classes])
    probabilities[is_none] = torch.nan
    all_scores = _fill_rows(asked, scores.unsqueeze(-1)).squeeze(-1)
    labels = make_labels(classifier, images, probabilities, all_scores > cutoff, encoded.reasons)
    # A class that the solver does not know cannot be a label of this run.
    answers = given | {key: name if name in classes else NONE for key, name in fixed.items()}
    return Decision(
        request=request,
        classes=classes,
        examples=examples,
        labels=list(map(_fix_label, labels, map(answers.get, encoded.digests))),
        digests=encoded.digests,
        probabilities=probabilities,
        uncalibrated=_fill_rows(asked, solution.probabilities[0]),
        outlier_scores=all_scores,
        features=encoded.features,
        z_sup=z_sup,
        y_sup=y_sup,
        held_out=held_out,
        classifier=classifier,
        note=solution.notes[0] if solution.notes else "",
    )


def _choose_queries(readable: Tensor, answered: Tensor) -> Tensor:
    """Return the mask of the images to solve: all without an answer, or all if there are none."""
    asked = readable & ~answered
    if not asked.any():  # the classifier is needed nevertheless
        asked = readable
    if not asked.any():
        raise DataError("there is nothing to label: no image can be read.")
    return asked


def _make_classifier(
    request: Request,
    method: Method,
    tasks: TaskBatch,
    solution: Solution,
    exponent: float,
    cutoff: float,
    classes: tuple[str, ...],
    provenance: Mapping[str, str],
    base: BaseStatistics | None,
) -> Classifier:
    """Make the classifier that labels new images as this solve labels its own."""
    return Classifier(
        weights=solution.prototypes[0],
        centres=class_centres(tasks.z_sup[0], tasks.y_sup[0], len(classes)),
        classes=classes,
        backbone=request.backbone,
        encoder=dict(provenance),
        method=request.method,
        settings=dict(method.solver.settings()),
        temperature=float(solution.temperatures[0]),
        exponent=exponent,
        threshold=request.threshold,
        reject_outliers=request.reject_outliers,
        outlier_cutoff=cutoff,
        base=base,
    )


def make_labels(
    classifier: Classifier,
    images: Sequence[ImageFile],
    probabilities: Tensor,
    outliers: Tensor,
    reasons: Sequence[str],
) -> list[ImageLabel]:
    """Turn probabilities into labels; those of unreadable images are NaN."""
    classes, threshold = classifier.classes, classifier.threshold
    best, place = probabilities.nan_to_num(0).topk(2, dim=-1)
    unreadable = probabilities.isnan().any(-1).tolist()
    labels = []
    for image, (first, second), (p, p_next), is_outlier, reason, is_unreadable in zip(
        images, place.tolist(), best.tolist(), outliers.tolist(), reasons, unreadable, strict=True
    ):
        if is_unreadable:
            unknown = (math.nan, "", math.nan)
            labels.append(ImageLabel(image.path, image.file, "", *unknown, "unreadable", reason))
            continue
        status, why, label = "labelled", reason, classes[first]
        if is_outlier:
            status, why = "outlier", "unlike the examples of every class"
            label = "" if classifier.reject_outliers else label
        elif p < threshold:
            status, why = "unsure", f"confidence below {threshold:g}"
        labels.append(
            ImageLabel(image.path, image.file, label, p, classes[second], p - p_next, status, why)
        )
    return labels


def _fix_label(label: ImageLabel, answer: str | None) -> ImageLabel:
    """Replace the label of the solver by the answer of a person."""
    if answer is None:
        return label
    path, file = label.path, label.file
    if answer == NONE:
        return ImageLabel(path, file, "", math.nan, "", math.nan, "outlier", CORRECTED)
    second = label.runner_up if label.label == answer else label.label
    return ImageLabel(path, file, answer, 1.0, second, 1.0, "labelled", CORRECTED)


def choose_suggestions(features: Tensor, probabilities: Tensor, known: Tensor, n: int) -> list[int]:
    """Choose the images whose label would help most: doubtful, and unlike each other.

    Images are chosen greedily by the product of doubt (one minus the margin between the two best
    classes) and distance from everything that is labelled or chosen already.

    Parameters
    ----------
    features
        Features of the images, shape ``(image, dim)``.
    probabilities
        Probabilities of their classes, shape ``(image, class)``; rows of NaN are skipped.
    known
        Features of the labelled images, shape ``(example, dim)``.
    n
        How many to choose.

    Returns
    -------
    Numbers of the images, the most useful first.
    """
    best = probabilities.nan_to_num(0).topk(2, dim=-1).values
    doubt = 1 - (best[:, 0] - best[:, 1])
    doubt[probabilities.isnan().any(-1) | (best[:, 0] == 1)] = -1
    candidates = doubt.topk(min(_CANDIDATES, len(doubt))).indices
    candidates = candidates[doubt[candidates] > 0]
    z = normalize(features[candidates], dim=-1)
    from_known = torch.cdist(z, normalize(known, dim=-1))
    distance = from_known.amin(-1) if len(known) else torch.ones(len(z))
    between = (2 - 2 * z @ z.mT).clamp_min_(0).sqrt_()  # of vectors of unit length
    chosen: list[int] = []
    for _ in range(min(n, len(candidates))):
        pick = int((doubt[candidates] * distance).argmax())
        chosen.append(int(candidates[pick]))
        distance = torch.minimum(distance, between[pick])
        distance[pick] = -1
    return chosen


def _fill_rows(mask: Tensor, values: Tensor) -> Tensor:
    """Put values into the rows of a mask, NaN into the others."""
    rows = torch.full((len(mask), values.shape[1]), torch.nan)
    rows[mask] = values.float()
    return rows
