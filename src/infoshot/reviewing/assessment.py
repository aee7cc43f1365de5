"""What is known about the accuracy of a pool, as numbers and as sentences."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class AccuracyEstimate:
    """An estimate of the accuracy with Wilson's 95 % interval, from ``n`` photos or examples."""

    source: Literal["examples", "audit"]
    accuracy: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Promise:
    """What can be promised about the whole pool.

    Parameters
    ----------
    low
        Lower confidence bound of the accuracy.
    met
        Whether it reaches the goal.
    more
        How many more audit answers reach the goal if the error rate stays as it is; ``None`` if
        the goal cannot be reached at this rate, or only by looking at all photos.
    """

    low: float
    met: bool
    more: int | None


@dataclass(frozen=True)
class Part:
    """A part of the pool for which the goal can be promised.

    Parameters
    ----------
    share
        Its share of the pool.
    n
        Its number of photos: those with a confidence of at least ``threshold``, and all that a
        person answered or audited.
    threshold
        Confidence from which the label of the solver is accepted.
    low
        Lower confidence bound of the accuracy.
    n_remaining
        Number of the other photos.
    """

    share: float
    n: int
    threshold: float
    low: float
    n_remaining: int


@dataclass(frozen=True)
class Assessment:
    """What the audit says about the labels of a pool, for the panel.

    Parameters
    ----------
    goal, confidence
        The accuracy to reach, and the confidence of all promises together.
    n_photos
        Size of the pool.
    n_audited, n_correct, round
        Audited photos, the correct labels of the solver among them, and the round of the audit.
    certain
        Whether a person answered or audited all photos.
    changed
        Whether labels changed since the last audit answer; then there is no promise.
    estimate, promise, part
        ``None`` if there is none.
    """

    goal: float
    confidence: float
    n_photos: int
    n_audited: int
    n_correct: int
    round: int
    certain: bool = False
    changed: bool = False
    estimate: AccuracyEstimate | None = None
    promise: Promise | None = None
    part: Part | None = None

    @property
    def sentences(self) -> list[str]:
        """One to three plain sentences for the panel."""
        if not self.n_photos:
            return ["There are no photos to audit."]
        if self.certain:
            return [_state_certainty(self.n_photos)]
        if self.changed or self.promise is None:
            return [
                "The labels have changed since the last audit answer.",
                "The next audit answer renews the statement of accuracy.",
            ]
        if self.promise.met:
            return [_state_bound(self), f"The goal of {_percent(self.goal)} is reached."]
        if not self.n_audited:
            return _forecast_first(self, self.promise)
        return [_state_bound(self), _forecast_more(self, self.promise), *_state_part(self)]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data for the page."""
        return {
            "goal": self.goal,
            "confidence": self.confidence,
            "n_photos": self.n_photos,
            "estimate": asdict(self.estimate) if self.estimate else None,
            "audit": {"n": self.n_audited, "n_correct": self.n_correct, "round": self.round},
            "promise": asdict(self.promise) if self.promise else None,
            "part": asdict(self.part) if self.part else None,
            "sentences": self.sentences,
        }


@dataclass(frozen=True)
class Statement:
    """The statement of accuracy that is written at the end of a review.

    Parameters
    ----------
    time
        When it was made, ISO 8601 in UTC.
    goal, confidence, n_audited, n_correct, part
        As in :class:`Assessment`.
    accuracy
        Estimate of the accuracy from the audit; ``None`` without one.
    low
        Lower confidence bound for the whole pool; ``None`` without an audit.
    sentence
        The statement as text.
    """

    time: str
    goal: float
    confidence: float
    n_audited: int
    n_correct: int
    accuracy: float | None
    low: float | None
    part: Part | None
    sentence: str

    @classmethod
    def make(cls, assessment: Assessment, time: str) -> "Statement":
        """State what an assessment promises."""
        estimate, promise = assessment.estimate, assessment.promise
        from_audit = estimate is not None and estimate.source == "audit"
        return cls(
            time=time,
            goal=assessment.goal,
            confidence=assessment.confidence,
            n_audited=assessment.n_audited,
            n_correct=assessment.n_correct,
            accuracy=estimate.accuracy if estimate and from_audit else None,
            low=promise.low if promise and (promise.met or assessment.n_audited) else None,
            part=assessment.part,
            sentence=_make_statement(assessment),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data for run.json."""
        return asdict(self)


def _make_statement(assessment: Assessment) -> str:
    promise = assessment.promise
    if assessment.certain:
        return _state_certainty(assessment.n_photos)
    if promise is None or not (promise.met or assessment.n_audited):
        return "No photo was audited with these labels, so no accuracy is promised."
    return " ".join([_state_bound(assessment), *_state_part(assessment)[:1]])


def _state_certainty(n_photos: int) -> str:
    if n_photos == 1:
        return "A person answered the only photo."
    return f"A person answered all {n_photos:,} photos."


def _state_bound(assessment: Assessment) -> str:
    low = assessment.promise.low if assessment.promise else 0.0
    n_wrong = assessment.n_audited - assessment.n_correct
    return (
        f"With {_percent(assessment.confidence)} confidence at least {_percent_below(low)} of the "
        f"{assessment.n_photos:,} labels are correct "
        f"({_count(assessment.n_audited, 'photo')} audited, {_count(n_wrong, 'error')})."
    )


def _forecast_first(assessment: Assessment, promise: Promise) -> list[str]:
    goal, estimate = _percent(assessment.goal), assessment.estimate
    first = "No photo is audited yet."
    if promise.more is None and estimate and estimate.accuracy <= assessment.goal:
        return [
            first,
            f"The held-out examples suggest an accuracy of {_percent_below(estimate.accuracy)}, "
            f"which is not above the goal of {goal}: review some photos first.",
        ]
    if promise.more is None:
        return [first, f"The goal of {goal} takes an answer for nearly every photo."]
    rate = (
        f"at the error rate that the held-out examples suggest ({_percent(1 - estimate.accuracy)})"
        if estimate
        else "if all labels are correct"
    )
    return [first, f"The goal of {goal} takes about {_count(promise.more, 'answer')} {rate}."]


def _forecast_more(assessment: Assessment, promise: Promise) -> str:
    goal = _percent(assessment.goal)
    if promise.more is None:
        return f"At this error rate {goal} cannot be promised for all photos."
    return (
        f"The goal of {goal} takes about {_count(promise.more, 'more audit answer')} if the error "
        "rate stays as it is."
    )


def _state_part(assessment: Assessment) -> list[str]:
    part, promise = assessment.part, assessment.promise
    if part:
        return [
            f"With {_percent(assessment.confidence)} confidence at least "
            f"{_percent_below(part.low)} are correct among {part.n:,} photos: those with a "
            f"confidence of at least {part.threshold:.3g} and those that a person answered.",
            f"{_count(part.n_remaining, 'photo')} "
            f"{'remains' if part.n_remaining == 1 else 'remain'} to be checked by eye.",
        ]
    if promise and not promise.met and promise.more is None:
        return ["Nor can it be promised for a part of them so far: review or audit more photos."]
    return []


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _percent(share: float) -> str:
    return f"{round(100 * share, 3):g} %"


def _percent_below(share: float) -> str:
    """Format a share as a percentage, rounded down."""
    return f"{math.floor(1000 * share + 1e-9) / 10:.1f} %"
