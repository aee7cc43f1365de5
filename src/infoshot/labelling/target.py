r"""Choose the labels that can be expected to be correct at a stated rate.

The few samples of evidence cannot prove an accuracy of 95 %: with 25 correct ones of 25, the lower
bound that holds for any distribution is 89 %. They can say how far the confidences may be trusted.
The model and the prior of the unknown exponent :math:`e` are those of ``exponents.py``. With the
evidence, samples :math:`i` with classes :math:`y_i` and weights :math:`w_i`, the posterior is

.. math:: \pi(e) \propto \frac{1}{1 + (\log e / 0.25)^2} \prod_i \big(p^{(e)}_{i y_i}\big)^{w_i}.

For the :math:`n` most confident images, whose labels are correct with the probabilities
:math:`c_j(e) = \max_k p^{(e)}_{jk}`, the probability that at least a share :math:`t` is correct is

.. math:: P_n = \sum_e \pi(e) \, \Phi\Big(\frac{\sum_{j \le n} c_j(e) - t n}
   {\sqrt{\sum_{j \le n} c_j(e) (1 - c_j(e))}}\Big),

with the normal approximation of the number of correct labels. The largest :math:`n` with
:math:`P_n \ge 0.9` is chosen. ``scripts/label_promises.py`` measures how often the statement is
true.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.labelling.evidence import Evidence
from infoshot.labelling.exponents import EXPONENTS, log_likelihood, log_powers, log_prior

CERTAINTY = 0.9  # of the statement
LEAST_EVIDENCE = 10  # the prior alone is no evidence
_NEGLIGIBLE = 1e-4  # posterior of an exponent
_TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Target:
    """The labels that can be expected to be correct at a rate.

    Parameters
    ----------
    rate
        The rate that was asked for.
    cutoff
        Confidence from which on a label is chosen; infinite if none is.
    n_images, n_candidates
        How many labels were chosen, of how many.
    expected
        Expected share of correct labels among them; NaN without any.
    certainty
        Probability that the share is at least the rate; NaN without any.
    evidence
        What this is based on.
    """

    rate: float
    cutoff: float
    n_images: int
    n_candidates: int
    expected: float
    certainty: float
    evidence: Evidence

    @property
    def enough(self) -> bool:
        """Whether there is enough evidence to choose any label."""
        return len(self.evidence) >= LEAST_EVIDENCE

    @property
    def reason(self) -> str:
        """Why a label was not chosen."""
        return f"not among the labels that are expected to be {_percent(self.rate)} correct"

    def text(self) -> str:
        """Say how many labels were chosen, and how sure that is."""
        if not self.enough:
            return (
                f"No labels can be expected to be {_percent(self.rate)} correct: that takes "
                f"{LEAST_EVIDENCE} held-out examples or audited photos; got {self.evidence.text()}."
            )
        if not self.n_images:
            return (
                f"No labels can be expected to be {_percent(self.rate)} correct with a probability "
                f"of {_percent(CERTAINTY)}, judged by {self.evidence.text()}."
            )
        return (
            f"{self.n_images:,} of {self.n_candidates:,} labels can be expected to be at least "
            f"{_percent(self.rate)} correct (with a probability of {_certainty(self.certainty)}; "
            f"the expected value is {self.expected:.1%}), judged by {self.evidence.text()}."
        )


def choose_confident(
    evidence: Evidence, probabilities: Tensor, confidence: Tensor, rate: float
) -> Target:
    """Choose the most confident labels that can be expected to be correct at a rate.

    Parameters
    ----------
    evidence
        Samples whose class is known.
    probabilities
        Probabilities of the images to choose from, before calibration, shape ``(image, class)``.
    confidence
        Their calibrated confidences, by which they are ordered, shape ``(image,)``.
    rate
        The rate, above 0 and below 1.
    """
    checks.below_one("target", rate)
    nothing = Target(rate, math.inf, 0, len(confidence), math.nan, math.nan, evidence)
    if not (nothing.enough and len(confidence)):
        return nothing
    ordered, order = confidence.sort(descending=True)
    n = torch.arange(1, len(order) + 1, dtype=torch.float64)
    log_p = probabilities[order].double().clamp_min(_TINY).log()
    chance, expected = torch.zeros_like(n), torch.zeros_like(n)
    for exponent, weight in zip(EXPONENTS, weigh_exponents(evidence), strict=True):
        if weight < _NEGLIGIBLE:
            continue
        correct = torch.softmax(exponent * log_p, dim=-1).amax(-1)
        mean, variance = correct.cumsum(0), (correct * (1 - correct)).cumsum(0)
        z = (mean - rate * n) / variance.clamp_min(_TINY).sqrt()
        chance += weight * torch.special.ndtr(z)
        expected += weight * mean / n
    # Images of equal confidence are chosen together.
    ends = torch.cat((ordered[1:] < ordered[:-1], torch.tensor([True])))
    places = ((chance >= CERTAINTY) & ends).nonzero()
    if not len(places):
        return nothing
    last = int(places[-1])
    return Target(
        rate=rate,
        cutoff=float(ordered[last]),
        n_images=last + 1,
        n_candidates=len(order),
        expected=float(expected[last]),
        certainty=float(chance[last]),
        evidence=evidence,
    )


def weigh_exponents(evidence: Evidence) -> Tensor:
    """Return the posterior of the exponents, shape ``(exponent,)``."""
    own = log_likelihood(log_powers(evidence.probabilities), evidence.truth)
    return torch.softmax(own @ evidence.weights.double() + log_prior(), dim=0)


def _certainty(share: float) -> str:
    return "more than 99%" if share > 0.99 else f"{share:.0%}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"
