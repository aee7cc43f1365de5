"""What a user should know before trusting the labels, in plain words."""

from collections import Counter
from collections.abc import Sequence

import torch

from infoshot.core.checks import few_queries
from infoshot.labelling.decide import Outcome
from infoshot.labelling.outliers import SHARE_INSIDE
from infoshot.solvers import METHODS

_ALIKE = 0.99
_SKEWED = 3.0
_MANY_OUTLIERS = 2.0  # times the share that is expected where every photo belongs to a class
_NAMES = 5


def warnings_of(outcome: Outcome) -> list[str]:
    """Sentences, the most important first; none if nothing is amiss."""
    found = [
        *_few_photos(outcome),
        *_mislabelled(outcome),
        *_unreadable(outcome),
        *_balance(outcome),
        *_outliers(outcome),
        *_identical(outcome),
        *_calibration(outcome),
    ]
    return [sentence for sentence in found if sentence]


def _few_photos(outcome: Outcome) -> list[str]:
    n_photos = sum(photo.status != "unreadable" for photo in outcome.photos)
    method = METHODS[outcome.request.method]
    few = few_queries(n_photos, len(outcome.classes)) if method.expects_balance else None
    if few:
        return [few]
    if n_photos < 2 * len(outcome.classes):
        return [
            f"{n_photos} photos for {len(outcome.classes)} classes are too few to learn from; each "
            "was labelled by itself."
        ]
    return []


def _mislabelled(outcome: Outcome) -> list[str]:
    odd = [
        f"'{example.image.path}' ('{example.label}') looks like '{guess}'"
        for example, guess in outcome.odd_examples()
    ]
    if not odd:
        return []
    return [
        f"{_count(len(odd), 'example')} came out as another class when held out, hard or "
        f"mislabelled: {_few(odd)}."
    ]


def _unreadable(outcome: Outcome) -> list[str]:
    n = sum(photo.status == "unreadable" for photo in outcome.photos)
    return [f"{_count(n, 'file')} could not be read; labels.csv says why."] if n else []


def _balance(outcome: Outcome) -> list[str]:
    counts = Counter(photo.label for photo in outcome.photos if photo.label)
    nobody = [name for name in outcome.classes if not counts[name]]
    sentences = [f"No photo was labelled {_few([repr(n) for n in nobody])}."] if nobody else []
    total = sum(counts.values())
    if total and len(outcome.classes) > 1:
        name, most = counts.most_common(1)[0]
        if most > _SKEWED * total / len(outcome.classes):
            sentences.append(
                f"'{name}' has {most / total:.0%} of the photos, more than {_SKEWED:g} times an "
                "equal share; check some of them."
            )
    return sentences


def _outliers(outcome: Outcome) -> list[str]:
    n = sum(photo.status == "outlier" for photo in outcome.photos)
    expected = 1 - SHARE_INSIDE
    if n <= max(3, _MANY_OUTLIERS * expected * len(outcome.photos)):
        return []
    return [
        f"{_count(n, 'photo')} ({n / len(outcome.photos):.0%}) look unlike the examples of every "
        f"class, where {expected:.0%} would by chance. Is a class missing? Photos of no class are "
        "labelled all the same, and many of them look like one: confidences and the "
        "estimated accuracy are for photos that belong to a class."
    ]


def _identical(outcome: Outcome) -> list[str]:
    own = [number for number, example in enumerate(outcome.examples) if not example.given]
    digests = {outcome.examples[number].digest: number for number in own}
    same = sum(digest in digests for digest in outcome.digests if digest)
    rows = ~outcome.features.isnan().any(-1)
    z = torch.nn.functional.normalize(outcome.features[rows], dim=-1)
    z_sup = torch.nn.functional.normalize(outcome.z_sup[own], dim=-1)
    alike = int(((z @ z_sup.mT).amax(-1) > _ALIKE).sum()) if len(own) and len(z) else 0
    sentences = []
    if same:
        sentences.append(f"{_are(same)} the same file as an example.")
    if alike > same:
        sentences.append(f"{_are(alike - same)} nearly identical to an example.")
    return sentences


def _calibration(outcome: Outcome) -> list[str]:
    if outcome.held_out.enough:
        return []
    return [
        f"{_count(len(outcome.held_out), 'example')} could be held out, too few to calibrate "
        "confidences by; they are the method's own."
    ]


def _few(things: Sequence[str]) -> str:
    shown = "; ".join(things[:_NAMES])
    return shown if len(things) <= _NAMES else f"{shown}; and {len(things) - _NAMES} more"


def _are(n: int) -> str:
    return f"{_count(n, 'photo')} {'is' if n == 1 else 'are'}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
