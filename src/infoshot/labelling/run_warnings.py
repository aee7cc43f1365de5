"""Warnings: what a user should know before trusting the labels of a run."""

import difflib
from collections import Counter
from collections.abc import Sequence

from torch.nn.functional import normalize

from infoshot.core.checks import few_queries
from infoshot.labelling.classifier import SHARE_INSIDE
from infoshot.labelling.decide import Decision
from infoshot.solvers import resolve_method

_ALIKE = 0.99  # cosine
_IMBALANCED = 3.0
_MANY_OUTLIERS = 2.0  # times the expected share
_LISTED = 5


def collect_warnings(decision: Decision) -> list[str]:
    """List what a user should know before trusting the labels, the most important first."""
    return [
        *_warn_few_images(decision),
        *_warn_names_alone(decision),
        *_warn_mislabelled(decision),
        *_warn_new_classes(decision),
        *_warn_unreadable(decision),
        *_warn_balance(decision),
        *_warn_outliers(decision),
        *_warn_identical(decision),
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


def _warn_names_alone(decision: Decision) -> list[str]:
    named = set(decision.request.classes or ()) - {example.label for example in decision.examples}
    if not named:
        return []
    return [
        f"{len(named)} of {len(decision.classes)} classes have no examples: their labels rest on "
        "the names alone, and nothing shows yet how well these fit. Label some photos."
    ]


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
    own = (example.label for example in decision.examples if not example.given)
    original = decision.request.join_classes(own)
    new = [name for name in decision.classes if name not in original]
    sentences = []
    for name in new:
        near = difflib.get_close_matches(name, original, n=1)
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
