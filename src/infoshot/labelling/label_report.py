"""The page a user looks at first: what was labelled, what to doubt, what to do next."""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from infoshot.core.errors import DataError
from infoshot.images.decoding import FileLocation, decode
from infoshot.labelling.decide import Outcome
from infoshot.labelling.photo import PhotoLabel
from infoshot.report.page import Bars, Gallery, Part, Section, Strong, Table, Text, Thumbnail, page

_SIDE = 112
_PER_CLASS, _DOUBTFUL, _OUTLIERS, _NEXT = 8, 24, 24, 12
_MOST_THUMBNAILS = 400
_LINES = 50
_BINS = 10


def label_report(outcome: Outcome, warnings: Sequence[str], worth: Sequence[int]) -> str:
    """The whole page; ``worth`` are the numbers of the photos worth labelling next."""
    photos = outcome.photos
    sections = [
        Section("Result", _result(outcome, warnings)),
        Section("How far to trust it", _trust(outcome)),
        *_examples_to_check(outcome),
        Section("What to label next", _next([photos[number] for number in worth])),
        Section("In doubt", _doubt(photos)),
        Section("Classes", _classes(outcome)),
    ]
    if any(photo.status == "unreadable" for photo in photos):
        sections.append(Section("Not readable", [_unreadable(photos)]))
    sections.append(Section("How it was made", [_made(outcome)]))
    subtitle = f"{outcome.request.photos}, labelled from {outcome.request.examples}"
    return page("Labels", sections, subtitle=subtitle)


def _result(outcome: Outcome, warnings: Sequence[str]) -> list[Part]:
    statuses = Counter(photo.status for photo in outcome.photos)
    counts = Counter(photo.label for photo in outcome.photos if photo.label)
    words = ", ".join(f"{n:,} {status}" for status, n in statuses.most_common())
    parts: list[Part] = [
        Text(
            [
                f"{len(outcome.photos):,} photos, {len(outcome.classes)} classes, "
                f"{len(outcome.examples)} examples: {words}."
            ]
        )
    ]
    if warnings:
        parts.append(Text([Strong(sentence) for sentence in warnings]))
    most = [(name, counts[name], f"{counts[name]:,}") for name in outcome.classes]
    parts.append(Bars(most, "Photos per class"))
    return parts


def _trust(outcome: Outcome) -> list[Part]:
    held = outcome.held_out
    sentences = []
    if len(held):
        share, low, high = held.accuracy()
        sentences.append(
            f"Each of {len(held)} examples was labelled once as if it were a photo: {share:.0%} "
            f"came out right (95% interval {low:.0%} to {high:.0%}). Each was labelled with fewer "
            "examples than the photos were, so this is cautious, the more so the fewer examples "
            "there are; and it holds for photos that belong to one of the classes. infoshot audit "
            "draws photos to check by hand."
        )
    else:
        sentences.append("One example per class: none could be held out to estimate the accuracy.")
    sentences.append(
        "Confidences are calibrated on those examples: of photos with 80%, about 80% are right."
        if held.enough
        else "Confidences are the method's own, not calibrated on your examples."
    )
    known = [
        photo.confidence
        for photo in outcome.photos
        if photo.status != "unreadable" and photo.reason != "given"
    ]
    bins = Counter(min(_BINS - 1, int(_BINS * value)) for value in known)
    bars = [
        (f"{10 * number} to {10 * number + 10}%", bins[number], f"{bins[number]:,}")
        for number in reversed(range(_BINS))
    ]
    return [Text(sentences), Bars(bars, "Confidence of the photos")]


def _examples_to_check(outcome: Outcome) -> list[Section]:
    pictures = [
        Thumbnail(
            jpeg,
            f"{example.image.path}, an example of {example.label}",
            f"given as {example.label}, looks like {guess}: {_name(example.image.path)}",
        )
        for example, guess in outcome.odd_examples()[:_DOUBTFUL]
        if (jpeg := _small(example.image.file)) is not None
    ]
    if not pictures:
        return []
    words = "Held out and labelled like a photo, these came out as another class than theirs."
    return [Section("Examples to check", [Text([words]), Gallery(pictures)])]


def _next(photos: Sequence[PhotoLabel]) -> list[Part]:
    advice = (
        "A label for these helps most: they are in doubt, and unlike each other. Write path and "
        "label into a CSV file; infoshot label --add FILE RUN takes it in. infoshot suggest lists "
        "more."
    )
    return [Text([advice]), Gallery(_thumbnails(photos[:_NEXT]))]


def _doubt(photos: Sequence[PhotoLabel]) -> list[Part]:
    unsure = sorted(
        (photo for photo in photos if photo.status in ("labelled", "unsure")),
        key=lambda photo: photo.margin,
    )
    outliers = [photo for photo in photos if photo.status == "outlier"]
    parts: list[Part] = [Gallery(_thumbnails(unsure[:_DOUBTFUL]), "Closest calls")]
    if outliers:
        parts.append(
            Gallery(
                _thumbnails(outliers[:_OUTLIERS]),
                f"Unlike the examples of every class, {len(outliers):,} in all",
            )
        )
    return parts


def _classes(outcome: Outcome) -> list[Part]:
    n_each = max(1, min(_PER_CLASS, _MOST_THUMBNAILS // len(outcome.classes)))
    parts: list[Part] = []
    for name in outcome.classes:
        own = sorted(
            (photo for photo in outcome.photos if photo.label == name),
            key=lambda photo: (photo.reason == "given", -photo.confidence),
        )
        if own:
            caption = f"{name}: {len(own):,} photos, the surest"
            parts.append(Gallery(_thumbnails(own[:n_each]), caption))
        else:
            parts.append(Text([f"{name}: no photo."]))
        if len(parts) * n_each > _MOST_THUMBNAILS:
            break
    return parts


def _unreadable(photos: Sequence[PhotoLabel]) -> Table:
    odd = [photo for photo in photos if photo.status == "unreadable"]
    more = f"{len(odd) - _LINES:,} more are in labels.csv." if len(odd) > _LINES else ""
    return Table(["file", "why"], [[p.path, p.reason] for p in odd[:_LINES]], "", more)


def _made(outcome: Outcome) -> Table:
    classifier, request = outcome.classifier, outcome.request
    rows = [
        ["encoder", f"{request.backbone} ({classifier.encoder['weights_sha256'][:16]}...)"],
        ["images", classifier.encoder["transform"]],
        ["method", request.method],
        ["settings", ", ".join(f"{name} {value}" for name, value in classifier.settings.items())],
        ["unsure below", f"{request.threshold:g}"],
        ["outlier above", f"{classifier.farthest:.3f}"],
        ["infoshot", classifier.encoder["infoshot"]],
    ]
    if outcome.note:
        rows.insert(3, ["what it decided", outcome.note])
    return Table(["", ""], rows)


def _thumbnails(photos: Sequence[PhotoLabel]) -> list[Thumbnail]:
    found = []
    for photo in photos:
        jpeg = _small(photo.file)
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
    """The last part of a path, or the end of it."""
    return path.rstrip("/").rpartition("/")[2][-40:]


def _judgement(photo: PhotoLabel, label: str) -> str:
    if photo.reason == "given":
        return f"{label}, as you said"
    return f"{label} {photo.confidence:.0%}, else {photo.runner_up}"


def _small(file: Path) -> bytes | None:
    """A thumbnail, unless the file is gone or changed since."""
    try:
        pixels = decode(FileLocation(file).content(), "", at_least=_SIDE)
    except DataError:
        return None
    image = Image.fromarray(pixels)
    image.thumbnail((_SIDE, _SIDE))
    text = io.BytesIO()
    image.save(text, "JPEG", quality=80)
    return text.getvalue()
