"""One labelling: examples and photos as features in, a label for every photo out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoshot.core.checks import in_class_order
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.types import Solution, Status, TaskBatch
from infoshot.features.encode import Encoded
from infoshot.images.folders import Found
from infoshot.labelling.calibrate import HeldOut, calibrated, hold_out
from infoshot.labelling.classifier import Classifier, prepared
from infoshot.labelling.outliers import class_centres, cut_off, strangeness
from infoshot.labelling.photo import PhotoLabel
from infoshot.solvers import METHODS, Method, solve

DEFAULT_METHOD, METHOD_WITH_PRIOR = "tim-auto", "tim-adm"
_ENOUGH_TO_JUDGE = 3  # examples of a class, to say that one of them is unlike the others


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for; two runs with the same are the same run."""

    examples: str
    photos: str
    backbone: str
    method: str
    settings: Mapping[str, Any]
    threshold: float
    reject_outliers: bool
    prior: Mapping[str, float] | None

    def same_images(self, other: "Request") -> bool:
        """Whether another request is about the same examples and photos."""
        return (self.examples, self.photos) == (other.examples, other.photos)

    def chosen(self, classes: Sequence[str]) -> Method:
        """The method with its settings, for these classes.

        Raises
        ------
        InvalidArgumentError
            If the method leaves no classifier, or the prior does not fit.
        """
        method = METHODS[self.method].with_settings(self.settings)
        if not method.inductive:
            able = [name for name, other in METHODS.items() if other.inductive]
            raise InvalidArgumentError(
                f"--method '{self.method}' leaves no classifier behind; use one of: "
                f"{', '.join(able)}."
            )
        if self.prior is None:
            return method
        if "class_prior" not in method.solver.settings():
            raise InvalidArgumentError(f"--method '{self.method}' cannot use a --prior.")
        shares = in_class_order(self.prior, classes)
        return method.with_settings({"class_prior": [share / sum(shares) for share in shares]})


@dataclass(frozen=True)
class Example:
    """A labelled image; ``given`` marks a photo of the pile that was corrected."""

    label: str
    image: Found
    digest: str
    given: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished labelling.

    ``probabilities`` (calibrated), ``outlier_scores`` and ``features`` have a row per photo, NaN
    where it could not be read; ``z_sup`` and ``y_sup`` are the examples as the method saw them.
    """

    request: Request
    classes: tuple[str, ...]
    examples: Sequence[Example]
    photos: list[PhotoLabel]
    digests: Sequence[str]
    probabilities: Tensor
    outlier_scores: Tensor
    features: Tensor
    z_sup: Tensor
    y_sup: Tensor
    held_out: HeldOut
    classifier: Classifier
    note: str

    def odd_examples(self) -> list[tuple[Example, str]]:
        """Examples that came out as another class when they were held out, and as which."""
        held = self.held_out
        guesses = held.probabilities.argmax(-1)
        several = self.y_sup.bincount()[held.truth] >= _ENOUGH_TO_JUDGE
        wrong = ((guesses != held.truth) & several).nonzero().flatten().tolist()
        return [
            (self.examples[int(held.rows[number])], self.classes[int(guesses[number])])
            for number in wrong
        ]


def label_photos(
    request: Request,
    examples: Sequence[Example],
    example_features: Tensor,
    photos: Sequence[Found],
    encoded: Encoded,
    encoder: Mapping[str, str],
) -> Outcome:
    """Label every photo that could be read; a corrected one gets the label it was given."""
    classes = tuple(sorted({example.label for example in examples}))
    method = request.chosen(classes)
    given = {example.digest: example.label for example in examples if example.given}
    asked = encoded.readable & torch.tensor([digest not in given for digest in encoded.digests])
    if not asked.any():
        raise DataError("there is nothing to label: no photo can be read, or all were given.")
    y_sup = torch.tensor([classes.index(example.label) for example in examples])
    z_sup, z_qry = (prepared(z, method) for z in (example_features, encoded.features[asked]))
    tasks = TaskBatch(z_sup.unsqueeze(0), y_sup.unsqueeze(0), z_qry.unsqueeze(0), len(classes))
    solution = solve(method.solver, tasks)
    if solution.status[0] == Status.NON_FINITE:
        raise DataError(f"{method.name} went non-finite; are the settings extreme?")
    # What was given later was chosen because it is hard: it tells nothing of the other photos.
    may_be = torch.tensor([not example.given for example in examples])
    held_out = hold_out(method, z_sup, y_sup, z_qry, len(classes), may_be)
    strange = strangeness(z_qry, class_centres(z_sup, y_sup, len(classes)))
    limit = cut_off(z_sup, y_sup, len(classes), may_be, strange)
    classifier = _classifier(request, tasks, solution, held_out.exponent(), limit, classes, encoder)
    probabilities = _rows(asked, calibrated(solution.probabilities[0], classifier.exponent))
    for number in (encoded.readable & ~asked).nonzero().flatten().tolist():
        own = classes.index(given[encoded.digests[number]])
        probabilities[number] = torch.eye(len(classes))[own]
    scores = _rows(asked, strange.unsqueeze(-1)).squeeze(-1)
    told = ["given" if digest in given else "" for digest in encoded.digests]
    reasons = [reason or why for reason, why in zip(encoded.reasons, told, strict=True)]
    return Outcome(
        request=request,
        classes=classes,
        examples=examples,
        photos=label_lines(
            request, photos, classes, probabilities, scores > classifier.farthest, reasons
        ),
        digests=encoded.digests,
        probabilities=probabilities,
        outlier_scores=scores,
        features=encoded.features,
        z_sup=z_sup,
        y_sup=y_sup,
        held_out=held_out,
        classifier=classifier,
        note=solution.notes[0] if solution.notes else "",
    )


def _classifier(
    request: Request,
    tasks: TaskBatch,
    solution: Solution,
    exponent: float,
    limit: float,
    classes: tuple[str, ...],
    encoder: Mapping[str, str],
) -> Classifier:
    """What labels newcomers as this solve labels its photos."""
    solver = request.chosen(classes).solver
    return Classifier(
        weights=solution.prototypes[0],
        centres=class_centres(tasks.z_sup[0], tasks.y_sup[0], len(classes)),
        classes=classes,
        backbone=request.backbone,
        encoder=dict(encoder),
        method=request.method,
        settings=dict(solver.settings()),
        temperature=float(solver.reporting_temperature(tasks)),
        exponent=exponent,
        threshold=request.threshold,
        reject_outliers=request.reject_outliers,
        farthest=limit,
    )


def label_lines(
    how: Request | Classifier,
    photos: Sequence[Found],
    classes: Sequence[str],
    probabilities: Tensor,
    strange: Tensor,
    reasons: Sequence[str],
) -> list[PhotoLabel]:
    """What labels.csv says of every photo; probabilities of unreadable ones are NaN."""
    best, place = probabilities.nan_to_num(0).topk(2, dim=-1)
    unreadable = probabilities.isnan().any(-1).tolist()
    lines = []
    for photo, (first, second), (p, p_next), odd, reason, lost in zip(
        photos, place.tolist(), best.tolist(), strange.tolist(), reasons, unreadable, strict=True
    ):
        if lost:
            unknown = (math.nan, "", math.nan)
            lines.append(PhotoLabel(photo.path, photo.file, "", *unknown, "unreadable", reason))
            continue
        status, why, label = "labelled", reason, classes[first]
        if odd:
            status, why = "outlier", "unlike the examples of every class"
            label = "" if how.reject_outliers else label
        elif p < how.threshold:
            status, why = "unsure", f"confidence below {how.threshold:g}"
        lines.append(
            PhotoLabel(photo.path, photo.file, label, p, classes[second], p - p_next, status, why)
        )
    return lines


def _rows(mask: Tensor, values: Tensor) -> Tensor:
    """Put values into the rows of a mask, NaN into the others."""
    whole = torch.full((len(mask), values.shape[1]), torch.nan)
    whole[mask] = values.float()
    return whole
