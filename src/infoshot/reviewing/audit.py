"""The answers of an audit, and the random samples in them.

The audit asks the photos of a pool in a fixed random order. Its sample is the beginning of that
order, up to the first photo that nobody answered. Photos of the sample that a person had answered
before the audit reached them were not asked; they count as correct, in the sample as in the pool.

When labels have changed, the next audit answer begins a new round. Two random samples then say
something about the labels as they are now:

- All photos of the sample. An audited photo counts by the label of the solver, also after it is
  corrected. This assumes that the person did not choose what to correct by the results of the
  audit. It is cautious: the photos that the person would have corrected are corrected in the pool,
  but count as errors in the sample if they had been audited before.
- The photos of this round, as a sample of the photos that were left when it began. The photos
  before them have the labels of a person and count as correct. This assumes nothing about how
  labels were corrected between the rounds.

Leaving answered photos out of both pool and sample would be wrong: after a person confirmed the
easy photos, the pool would be the hard ones, but the sample would still contain the easy ones that
had been audited.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from infoshot.core import checks
from infoshot.core.errors import ShapeError


@dataclass(frozen=True)
class Round:
    """A round of the audit: its number, and how many audit answers came before it."""

    number: int = 1
    n_before: int = 0

    def __post_init__(self) -> None:
        checks.at_least("number", self.number, 1)
        checks.at_least("n_before", self.n_before, 0)

    @classmethod
    def find(cls, versions: Sequence[object]) -> "Round":
        """Find the present round from the version of the labels at each audit answer.

        The version changes with every label, every confidence and every answer outside of the
        audit.

        Examples
        --------
        >>> Round.find([3, 3, 3, 5, 5])
        Round(number=2, n_before=3)
        """
        pairs = itertools.pairwise(versions)
        starts = [n for n, (before, after) in enumerate(pairs, 1) if before != after]
        return cls(1 + len(starts), starts[-1] if starts else 0)


@dataclass(frozen=True)
class Sample:
    """A random sample of photos, of which some more are known to be correct.

    Parameters
    ----------
    n_certain
        Photos outside of the sampled pool that count as correct.
    n_photos
        Size of the pool that is sampled.
    n_sampled, n_correct
        Size of the sample, and correct labels in it.
    """

    n_certain: int
    n_photos: int
    n_sampled: int
    n_correct: int

    @property
    def error_rate(self) -> float | None:
        """Share of errors in the sample; ``None`` if it is empty."""
        return 1 - self.n_correct / self.n_sampled if self.n_sampled else None


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
        The round of the audit, see :meth:`Round.find`.
    """

    order: np.ndarray
    audited: np.ndarray
    correct: np.ndarray
    answered: np.ndarray
    confidence: np.ndarray
    round: Round = Round()

    def __post_init__(self) -> None:
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
    def sampled(self) -> np.ndarray:
        """Numbers of the photos of the sample."""
        unknown = ~self.known[self.order]
        return self.order[: int(unknown.argmax()) if unknown.any() else len(self)]

    @cached_property
    def n_audited(self) -> int:
        """Number of audited photos in the sample."""
        return int(np.count_nonzero(self.audited[self.sampled]))

    @cached_property
    def n_wrong(self) -> int:
        """Number of errors in the sample."""
        return int(np.count_nonzero(~self.known_correct[self.sampled]))

    @cached_property
    def n_early(self) -> int:
        """Number of photos of the sample up to the last one that was audited before this round."""
        places = np.flatnonzero(self.audited[self.sampled])
        n_before = min(self.round.n_before, len(places))
        return int(places[n_before - 1]) + 1 if n_before else 0

    def draw_samples(self, members: np.ndarray) -> list[Sample]:
        """Return the samples of some photos of the pool: that of all rounds and that of this one.

        Parameters
        ----------
        members
            Mask of the photos. It must not depend on which photos were audited.
        """
        n_photos = int(np.count_nonzero(members))
        starts = [0, self.n_early] if self.n_early else [0]
        samples = []
        for start in starts:
            n_certain = int(np.count_nonzero(members[self.sampled[:start]]))
            own = self.sampled[start:]
            own = own[members[own]]
            n_correct = int(np.count_nonzero(self.known_correct[own]))
            samples.append(Sample(n_certain, n_photos - n_certain, len(own), n_correct))
        return samples
