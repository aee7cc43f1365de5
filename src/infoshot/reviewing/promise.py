"""Promise an accuracy of the labels of a pool, from blind answers about a random sample of it.

The sample is the beginning of a fixed random order of the pool, up to the first photo that nobody
answered. Photos of the sample that a person had answered before the audit reached them were not
asked; they count as correct, in the sample as in the pool. An audited photo always counts by the
label of the solver, also after it is corrected. Leaving answered photos out of both pool and sample
would be wrong: after a person confirmed the easy photos, the pool would be the hard ones, but the
sample would still contain the easy ones that were audited.

All promises together are wrong with a probability of at most 5 %:

- The bounds hold at all sample sizes at once (:mod:`infoshot.reviewing.confidence_sequence`).
- The first audit answer after a change of labels begins a new round, which uses all answers so far
  with the labels as they are now. Round r spends 1 / (r (r + 1)) of the 5 %.
- Half of that is for the whole pool. Nine parts of the pool divide the other half: the photos that
  a person answered, and fixed shares of the others by the rank of their confidence. The half costs
  14 answers for a goal of 95 % without errors.

Between a change of labels and the next audit answer nothing is promised about the new labels:
otherwise a person could change labels until they agree with the sample.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from infoshot.core import checks
from infoshot.core.errors import ShapeError
from infoshot.labelling.calibrate import Estimate
from infoshot.metrics import wilson_interval
from infoshot.reviewing.assessment import AccuracyEstimate, Assessment, Part, Promise
from infoshot.reviewing.confidence_sequence import bound_correct, forecast_sample_size, spend

CONFIDENCE = 0.95
PART_SHARES = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)


@dataclass(frozen=True, eq=False)
class Audit:
    """The answers about a pool of readable photos, with the labels as they are now.

    Parameters
    ----------
    order
        The random order of the audit: a permutation of the photos, shape ``(photo,)``.
    audited
        Whether a photo was audited, shape ``(photo,)``.
    correct
        Whether the label of the solver agrees with the audit; read where ``audited``.
    answered
        Whether a person gave the label outside of the audit. An audited photo counts as audited.
    confidence
        Confidence of the solver in its own label, shape ``(photo,)``; NaN without a label.
    round
        The round of the audit, see :func:`count_rounds`.
    """

    order: np.ndarray
    audited: np.ndarray
    correct: np.ndarray
    answered: np.ndarray
    confidence: np.ndarray
    round: int = 1

    def __post_init__(self) -> None:
        checks.at_least("round", self.round, 1)
        for name in ("audited", "correct", "answered", "confidence"):
            shape = getattr(self, name).shape
            if shape != self.order.shape:
                raise ShapeError(f"{name} must have shape {self.order.shape}; got {shape}.")

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def known(self) -> np.ndarray:
        """Whether a person answered or audited a photo."""
        return np.asarray(self.audited | self.answered)

    @cached_property
    def known_correct(self) -> np.ndarray:
        """Whether a label is known to count as correct."""
        return np.asarray(np.where(self.audited, self.correct, self.answered))

    @cached_property
    def sample(self) -> np.ndarray:
        """Numbers of the photos of the sample."""
        unknown = ~self.known[self.order]
        return self.order[: int(unknown.argmax()) if unknown.any() else len(self)]

    @cached_property
    def n_wrong(self) -> int:
        """Number of errors in the sample."""
        return int(np.count_nonzero(~self.known_correct[self.sample]))


def count_rounds(versions: Sequence[object]) -> int:
    """Return the round of the audit from the version of the labels at each audit answer.

    Examples
    --------
    >>> count_rounds([3, 3, 3, 5, 5]), count_rounds([])
    (2, 1)
    """
    return 1 + sum(earlier != later for earlier, later in itertools.pairwise(versions))


def assess(
    audit: Audit, goal: float, *, held_out: Estimate | None = None, changed: bool = False
) -> Assessment:
    """Say what the audit promises about the labels, and what the goal still takes.

    Parameters
    ----------
    audit
        All answers so far, with the labels as they are now.
    goal
        The accuracy to reach, above 0 and at most 1.
    held_out
        The estimate from held-out examples; it is shown and used for the forecast until the first
        audit answer.
    changed
        Whether labels changed since the last audit answer. Then nothing is promised. To state the
        accuracy of such labels at the end of a review, leave it out and begin a new round.

    Examples
    --------
    >>> nobody = np.zeros(1000, dtype=bool)
    >>> audited = np.arange(1000) < 200
    >>> audit = Audit(np.arange(1000), audited, audited, nobody, np.linspace(0, 1, 1000))
    >>> assess(audit, 0.95).promise
    Promise(low=0.977, met=True, more=0)
    """
    checks.positive("goal", goal)
    checks.between("goal", goal, 0, 1)
    n_audited = int(np.count_nonzero(audit.audited[audit.sample]))
    estimate = _estimate_accuracy(audit) if n_audited and not changed else _convert(held_out)
    certain = bool(audit.known.all())
    promise, part = None, None
    if certain and len(audit):
        promise = Promise(low=1.0, met=True, more=0)
    elif len(audit) and not changed:
        rate = 1 - estimate.accuracy if estimate else 0.0
        promise = _make_promise(audit, goal, rate)
        part = None if promise.met else _find_part(audit, goal)
    return Assessment(
        goal=goal,
        confidence=CONFIDENCE,
        n_photos=len(audit),
        n_audited=n_audited,
        n_correct=n_audited - audit.n_wrong,
        round=audit.round,
        certain=certain,
        changed=changed,
        estimate=estimate,
        promise=promise,
        part=part,
    )


def _convert(held_out: Estimate | None) -> AccuracyEstimate | None:
    if held_out is None:
        return None
    return AccuracyEstimate(
        "examples", held_out.accuracy, held_out.low, held_out.high, held_out.n_examples
    )


def _estimate_accuracy(audit: Audit) -> AccuracyEstimate:
    """Estimate the accuracy of the pool by that of the sample."""
    n = len(audit.sample)
    n_correct = n - audit.n_wrong
    low, high = wilson_interval(n_correct, n)
    return AccuracyEstimate(
        "audit",
        n_correct / n,
        max(low, n_correct / len(audit)),
        min(high, 1 - audit.n_wrong / len(audit)),
        n,
    )


def _make_promise(audit: Audit, goal: float, error_rate: float) -> Promise:
    """Bound the accuracy of the whole pool and forecast the answers that the goal takes."""
    error_probability = spend(1 - CONFIDENCE, audit.round) / 2
    n_correct = _bound(audit, np.ones(len(audit), dtype=bool), error_probability)
    least = _count_needed(goal, len(audit))
    low = n_correct / len(audit)
    if n_correct >= least:
        return Promise(low, met=True, more=0)
    n = len(audit.sample)
    size = (
        forecast_sample_size(len(audit), n, n - audit.n_wrong, error_probability, least, error_rate)
        if 1 - error_rate > goal
        else None
    )
    if size is None:
        return Promise(low, met=False, more=None)
    more = int(np.count_nonzero(~audit.known[audit.order[n:size]]))
    return Promise(low, met=False, more=more)


def _find_part(audit: Audit, goal: float) -> Part | None:
    """Find the largest part of the pool for which the goal can be promised."""
    error_probability = spend(1 - CONFIDENCE, audit.round) / 2 / len(PART_SHARES)
    for threshold, members in _make_parts(audit):
        n_members = int(np.count_nonzero(members))
        n_correct = _bound(audit, members, error_probability)
        if n_correct >= _count_needed(goal, n_members):
            n = int(np.count_nonzero(members | audit.audited))
            return Part(
                n / len(audit), n, threshold, n_correct / n_members, n_remaining=len(audit) - n
            )
    return None


def _make_parts(audit: Audit) -> Iterator[tuple[float, np.ndarray]]:
    """Yield the threshold and the photos of each part, the largest part first.

    Whether a photo was audited does not matter, so the sample within a part is a random one.
    """
    by_person = audit.answered & ~audit.audited
    confidence = np.nan_to_num(audit.confidence, nan=-1.0)
    ranked = confidence[~by_person]
    places = [len(ranked) - math.ceil(share * len(ranked)) for share in PART_SHARES]
    for threshold in np.unique(np.partition(ranked, places)[places]):
        if threshold >= 0:
            yield float(threshold), by_person | (confidence >= threshold)


def _bound(audit: Audit, members: np.ndarray, error_probability: float) -> int:
    """Return a lower bound of the number of correct labels among some photos of the pool."""
    sample = audit.sample[members[audit.sample]]
    n_correct = int(np.count_nonzero(audit.known_correct[sample]))
    bound = bound_correct(int(members.sum()), len(sample), n_correct, error_probability)
    return max(bound, int(np.count_nonzero(audit.known_correct & members)))


def _count_needed(goal: float, n: int) -> int:
    """Return how many of ``n`` labels must be correct."""
    return math.ceil(goal * n - 1e-9)
