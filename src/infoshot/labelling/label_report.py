"""What a run tells its user: warnings, and a page with results, doubtful images and advice."""

import difflib
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from torch.nn.functional import normalize

from infoshot.core.checks import few_queries
from infoshot.core.errors import DataError
from infoshot.core.pixels import decode
from infoshot.images.decoding import FileLocation
from infoshot.images.folders import warn_class_folders
from infoshot.labelling.class_names import warn_names_alone
from infoshot.labelling.classifier import SHARE_INSIDE
from infoshot.labelling.decide import CORRECTED, Decision, ImageLabel
from infoshot.report.page import Bars, Gallery, Part, Section, Strong, Table, Text, Thumbnail, page
from infoshot.solvers import resolve_method

_SIDE = 112
_PER_CLASS, _DOUBTFUL, _OUTLIERS, _NEXT = 8, 24, 24, 12
_MOST_THUMBNAILS = 400
_LINES, _BINS, _LISTED = 50, 10, 5
_ALIKE = 0.99  # cosine
_IN_TESTS = "In tests the mean confidence differs from the share of correct labels by"
_IMBALANCED = 3.0
_MANY_OUTLIERS = 2.0  # times the expected share
_APPLIES = (
    "This applies to photos that belong to one of the classes. It is approximate: examples are "
    "held out from solves with fewer examples, and photos are labelled together."
)


def label_report(
    decision: Decision,
    warnings: Sequence[str],
    worth: Sequence[int],
    statement: Mapping[str, Any] | None = None,
) -> str:
    """Render the page.

    Parameters
    ----------
    decision, warnings
        The labels, and what to know before trusting them.
    worth
        Numbers of the images to label next.
    statement
        What a finished review says about the accuracy.
    """
    photos = decision.labels
    sections = [
        Section("Result", _result(decision, warnings)),
        Section("Accuracy", [*_state(statement), *_target(decision), *_trust(decision)]),
        *_examples_to_check(decision),
        Section("What to label next", _next([photos[number] for number in worth])),
        Section("Doubtful photos", _doubt(photos)),
        Section("Classes", _classes(decision)),
    ]
    if any(photo.status == "unreadable" for photo in photos):
        sections.append(Section("Unreadable files", [_unreadable(photos)]))
    sections.append(Section("Provenance", [_made(decision)]))
    source = decision.request.examples or "the names of the classes"
    return page("Labels", sections, subtitle=f"{decision.request.photos}, labelled from {source}")


def _result(decision: Decision, warnings: Sequence[str]) -> list[Part]:
    statuses = Counter(photo.status for photo in decision.labels)
    counts = Counter(photo.label for photo in decision.labels if photo.label)
    words = ", ".join(f"{n:,} {status}" for status, n in statuses.most_common())
    summary = (
        f"{len(decision.labels):,} photos, {len(decision.classes)} classes, "
        f"{len(decision.examples)} examples: {words}."
    )
    parts: list[Part] = [Text([summary])]
    if warnings:
        parts.append(Text([Strong(sentence) for sentence in warnings]))
    most = [(name, counts[name], f"{counts[name]:,}") for name in decision.classes]
    parts.append(Bars(most, "Photos per class"))
    return parts


def _state(statement: Mapping[str, Any] | None) -> list[Part]:
    return [Text([Strong(statement["sentence"])])] if statement else []


def _trust(decision: Decision) -> list[Part]:
    held = decision.held_out
    sentences = []
    estimate = held.estimate()
    if estimate is not None:
        sentences.append(
            f"Estimated accuracy: {estimate.accuracy:.0%} (95% interval {estimate.low:.0%} to "
            f"{estimate.high:.0%}). Each of {len(held)} examples was held out once, labelled like "
            "a photo with fewer examples, and counts by the share of its class among the photos. "
            "So the estimate is cautious, more so with few examples. It applies to photos of one "
            "of the classes. infoshot review or infoshot audit draws photos to check by hand."
        )
    else:
        sentences.append("No example can be held out to estimate the accuracy: too few are given.")
    sentences.append(
        f"Confidences are calibrated on the held-out examples. {_IN_TESTS} 4 points (five each)."
        if held.enough
        else "Confidences come from the method and are not calibrated on your examples. With "
        f"tim-auto: {_IN_TESTS} 9 points (one example per class) or 4 points (five or more)."
    )
    known = [
        photo.confidence
        for photo in decision.labels
        if photo.status != "unreadable" and photo.reason != CORRECTED
    ]
    bins = Counter(min(_BINS - 1, int(_BINS * value)) for value in known)
    bars = [
        (f"{10 * number} to {10 * number + 10}%", bins[number], f"{bins[number]:,}")
        for number in reversed(range(_BINS))
    ]
    return [Text(sentences), Bars(bars, "Confidence of the photos"), *_sets(decision)]


def _target(decision: Decision) -> list[Part]:
    return [Text([Strong(decision.target.text()), _APPLIES])] if decision.target else []


def _sets(decision: Decision) -> list[Part]:
    if decision.sets is None:
        return []
    bars = [(str(size), n, f"{n:,}") for size, n in decision.sets.count_sizes().items()]
    words = [decision.sets.text(), *([] if decision.target else [_APPLIES])]
    return [Text(words), Bars(bars, "Classes in a prediction set")]


def _examples_to_check(decision: Decision) -> list[Section]:
    pictures = [
        Thumbnail(
            jpeg,
            f"{example.image.path}, an example of {example.label}",
            f"given as {example.label}, looks like {guess}: {_name(example.image.path)}",
        )
        for example, guess in decision.find_odd_examples()[:_DOUBTFUL]
        if (jpeg := _thumbnail(example.image.file)) is not None
    ]
    if not pictures:
        return []
    words = "When held out, these examples were classified as another class than their own."
    return [Section("Examples to check", [Text([words]), Gallery(pictures)])]


def _next(photos: Sequence[ImageLabel]) -> list[Part]:
    advice = (
        "Labels for these photos help most: they are doubtful and unlike each other. The command "
        "infoshot review opens a page on which you label and correct photos with the keyboard. Or "
        "infoshot suggest writes a CSV file to fill in; infoshot label adds the file to the run."
    )
    return [Text([advice]), Gallery(_thumbnails(photos[:_NEXT]))]


def _doubt(photos: Sequence[ImageLabel]) -> list[Part]:
    unsure = sorted(
        (photo for photo in photos if photo.status in ("labelled", "unsure")),
        key=lambda photo: photo.margin,
    )
    outliers = [photo for photo in photos if photo.status == "outlier"]
    parts: list[Part] = [Gallery(_thumbnails(unsure[:_DOUBTFUL]), "Smallest margins")]
    if outliers:
        parts.append(
            Gallery(
                _thumbnails(outliers[:_OUTLIERS]),
                f"Unlike the examples of every class, {len(outliers):,} in all",
            )
        )
    return parts


def _classes(decision: Decision) -> list[Part]:
    n_each = max(1, min(_PER_CLASS, _MOST_THUMBNAILS // len(decision.classes)))
    parts: list[Part] = []
    for name in decision.classes:
        own = sorted(
            (photo for photo in decision.labels if photo.label == name),
            key=lambda photo: (photo.reason == CORRECTED, -photo.confidence),
        )
        if own:
            caption = f"{name}: {len(own):,} photos, the most confident"
            parts.append(Gallery(_thumbnails(own[:n_each]), caption))
        else:
            parts.append(Text([f"{name}: no photos."]))
        if len(parts) * n_each > _MOST_THUMBNAILS:
            break
    return parts


def _unreadable(photos: Sequence[ImageLabel]) -> Table:
    odd = [photo for photo in photos if photo.status == "unreadable"]
    more = f"{len(odd) - _LINES:,} more are in labels.csv." if len(odd) > _LINES else ""
    return Table(["file", "reason"], [[p.path, p.reason] for p in odd[:_LINES]], "", more)


def _made(decision: Decision) -> Table:
    classifier, request = decision.classifier, decision.request
    rows = [
        ["encoder", f"{request.backbone} ({classifier.encoder['weights_sha256'][:16]}...)"],
        ["transform", classifier.encoder["transform"]],
        ["method", request.method],
        ["settings", ", ".join(f"{name} {value}" for name, value in classifier.settings.items())],
        ["unsure below", f"{classifier.threshold:.4g}"],
        ["outlier above", f"{classifier.outlier_cutoff:.3f}"],
        ["infoshot", classifier.encoder["infoshot"]],
    ]
    if decision.note:
        rows.insert(3, ["decision", decision.note])
    return Table(["", ""], rows)


def _thumbnails(photos: Sequence[ImageLabel]) -> list[Thumbnail]:
    found = []
    for photo in photos:
        jpeg = _thumbnail(photo.file)
        if jpeg is None:
            continue
        label = photo.label or f"({photo.runner_up}?)"
        found.append(
            Thumbnail(
                jpeg,
                f"{photo.path}, labelled {label}",
                f"{_judgement(photo, label)}: {_name(photo.path)}",
            )
        )
    return found


def _name(path: str) -> str:
    """Return the file name, shortened."""
    return path.rstrip("/").rpartition("/")[2][-40:]


def _judgement(photo: ImageLabel, label: str) -> str:
    if photo.reason == CORRECTED:
        return f"{label}, corrected"
    return f"{label} {photo.confidence:.0%}, or {photo.runner_up}"


def _thumbnail(file: Path) -> bytes | None:
    """Make a thumbnail; ``None`` if the file cannot be read any more."""
    try:
        pixels = decode(FileLocation(file).content(), "", at_least=_SIDE)
    except DataError:
        return None
    image = Image.fromarray(pixels)
    image.thumbnail((_SIDE, _SIDE))
    text = io.BytesIO()
    image.save(text, "JPEG", quality=80)
    return text.getvalue()


def collect_warnings(decision: Decision) -> list[str]:
    """List what a user should know before trusting the labels, the most important first."""
    shown = {example.label for example in decision.examples}
    return [
        *_warn_few_images(decision),
        *(warn_names_alone(decision.classes, shown) if decision.request.classes else []),
        *_warn_mislabelled(decision),
        *_warn_new_classes(decision),
        *_warn_unreadable(decision),
        *_warn_balance(decision),
        *_warn_outliers(decision),
        *_warn_identical(decision),
        *warn_class_folders(decision.classes, [label.file for label in decision.labels]),
        *_warn_calibration(decision),
        *_warn_promises(decision),
    ]


def _warn_few_images(decision: Decision) -> list[str]:
    n_images = sum(label.status != "unreadable" for label in decision.labels)
    method = resolve_method(decision.request.method)
    few = few_queries(n_images, len(decision.classes)) if method.expects_balance else None
    if few:
        return [few]
    if n_images < 2 * len(decision.classes):
        return [
            f"{n_images} photos for {len(decision.classes)} classes are too few to learn from; "
            "each was labelled independently."
        ]
    return []


def _warn_mislabelled(decision: Decision) -> list[str]:
    odd = [
        f"'{example.image.path}' ('{example.label}') looks like '{guess}'"
        for example, guess in decision.find_odd_examples()
    ]
    if not odd:
        return []
    noun = "example was" if len(odd) == 1 else "examples were"
    cause = "hard or mislabelled"
    if len(odd) > len(decision.held_out) / 3:
        cause = "perhaps the encoder, the prior or the examples do not fit"
    return [
        f"{len(odd):,} {noun} classified as another class when held out ({cause}): "
        f"{_list_some(odd)}."
    ]


def _warn_new_classes(decision: Decision) -> list[str]:
    original = {example.label for example in decision.examples if not example.given}
    original |= {*(decision.request.classes or ())}
    new = [name for name in decision.classes if name not in original]
    sentences = []
    for name in new:
        near = difflib.get_close_matches(name, sorted(original), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "."
        sentences.append(f"'{name}' is a new class, which only corrections have{hint}")
    return sentences


def _warn_unreadable(decision: Decision) -> list[str]:
    n = sum(label.status == "unreadable" for label in decision.labels)
    return [f"{_count(n, 'file')} cannot be read; labels.csv gives the reasons."] if n else []


def _warn_balance(decision: Decision) -> list[str]:
    counts = Counter(label.label for label in decision.labels if label.label)
    empty = [name for name in decision.classes if not counts[name]]
    sentences = []
    if empty:
        sentences.append(f"No photo was labelled {_list_some([repr(name) for name in empty])}.")
    total = sum(counts.values())
    if total and len(decision.classes) > 1:
        name, most = counts.most_common(1)[0]
        if most > _IMBALANCED * total / len(decision.classes):
            sentences.append(
                f"'{name}' has {most / total:.0%} of the photos, more than {_IMBALANCED:g} times "
                "an equal share; check some of them."
            )
    return sentences


def _warn_outliers(decision: Decision) -> list[str]:
    n = sum(label.status == "outlier" for label in decision.labels)
    expected = 1 - SHARE_INSIDE
    if n <= max(3, _MANY_OUTLIERS * expected * len(decision.labels)):
        return []
    return [
        f"{_count(n, 'photo')} ({n / len(decision.labels):.0%}) look unlike the examples of every "
        f"class, where about {expected:.0%} are expected. Is a class missing? Photos that belong "
        "to no class are labelled too, and many of them look like one: confidences and the "
        "estimated accuracy apply to photos that belong to a class."
    ]


def _warn_identical(decision: Decision) -> list[str]:
    own = [number for number, example in enumerate(decision.examples) if not example.given]
    digests = {decision.examples[number].digest for number in own}
    same = sum(digest in digests for digest in decision.digests if digest)
    readable = ~decision.features.isnan().any(-1)
    z = normalize(decision.features[readable], dim=-1)
    z_sup = normalize(decision.z_sup[own], dim=-1)
    alike = int(((z @ z_sup.mT).amax(-1) > _ALIKE).sum()) if len(own) and len(z) else 0
    sentences = []
    if same:
        sentences.append(f"{_count_are(same)} the same file as an example.")
    if alike > same:
        sentences.append(f"{_count_are(alike - same)} nearly identical to an example.")
    return sentences


def _warn_calibration(decision: Decision) -> list[str]:
    if decision.held_out.enough:
        return []
    n = len(decision.held_out)
    return [
        f"{_count(n, 'example')} can be held out, which is too few to calibrate confidences; they "
        "come from the method."
    ]


def _warn_promises(decision: Decision) -> list[str]:
    sentences = []
    if (target := decision.target) and target.n_candidates and not target.n_images:
        sentences.append(f"{target.text()} All photos are unsure; more examples may change that.")
    if (sets := decision.sets) and not sets.enough:
        sentences.append(sets.text())
    return sentences


def _list_some(items: Sequence[str]) -> str:
    shown = "; ".join(items[:_LISTED])
    return shown if len(items) <= _LISTED else f"{shown}; and {len(items) - _LISTED} more"


def _count_are(n: int) -> str:
    return f"{_count(n, 'photo')} {'is' if n == 1 else 'are'}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
