r"""Prediction sets: the classes that an image may have, with a stated probability.

Split-conformal prediction. Each sample :math:`i` of the evidence has the calibrated probability
:math:`p_i(y_i)` of its own class; the samples are sorted by it, the largest first. The set of an
image holds all classes with a probability of at least

.. math:: q = p_{j-1} + \frac{c \, (1 + W_n) - W_{j-1}}{w_j} \, (p_j - p_{j-1}), \qquad
   j = \min \big\{ i : W_i \ge c \, (1 + W_n) \big\}, \qquad
   W_i = w_1 + \dots + w_i

where:

- :math:`c` is the coverage, for example 0.9;
- :math:`p_i` is short for :math:`p_i(y_i)`, and :math:`p_0 = 1`;
- :math:`w_i` are the weights of the evidence, see :mod:`infoshot.labelling.evidence`.

With equal weights, :math:`q = p_j` is the threshold of split-conformal prediction, whose sets of
images that are exchangeable with the evidence contain the right class with a probability of at
least :math:`c`: on average of :math:`j / (n + 1)`, which is 0.923 for 25 samples and 0.9. The
interpolation between :math:`p_{j-1}` and :math:`p_j` makes the average about :math:`c`. With class
shares as weights the sets are smaller and the coverage is nearer to :math:`c` if the classes are
imbalanced; since the shares are estimated, and since a held-out example is solved with fewer
examples than the images, the coverage is approximate (``scripts/label_promises.py`` measures it).
If the evidence is too small, no :math:`q` exists, and every class is in every set.

The most probable class is in every set, also if its probability is below :math:`q`.

References
----------
Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World, 2005; for weights by class shares:
Podkopaev, Ramdas, Distribution-free uncertainty quantification for classification under label
shift, UAI 2021.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.labelling.calibrate import calibrate
from infoshot.labelling.evidence import Evidence

_ROUNDING = 1e-9
SEPARATOR = "|"
_ESCAPED = r"\x7c"  # the separator within a name


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """The classes that each image may have.

    Parameters
    ----------
    coverage
        Share of the sets that shall contain the right class.
    evidence
        What the sets are based on.
    least
        Probability from which on a class is in a set; 0 with too little evidence.
    members
        Whether a class is in the set of an image, shape ``(image, class)``. Images without
        probabilities have none.
    """

    coverage: float
    evidence: Evidence
    least: float
    members: Tensor

    @property
    def n_needed(self) -> int:
        """Samples of evidence that this coverage needs."""
        return count_needed(self.coverage)

    @property
    def sizes(self) -> Tensor:
        """Number of classes in each set, shape ``(image,)``."""
        return self.members.sum(-1)

    @property
    def mean_size(self) -> float:
        """Mean size of the sets that are not empty."""
        sizes = self.sizes[self.sizes > 0]
        return float(sizes.double().mean()) if len(sizes) else 0.0

    @property
    def enough(self) -> bool:
        """Whether there is enough evidence for sets that do not hold every class."""
        return self.least > 0

    def text(self) -> str:
        """Say what the sets promise."""
        share = f"{100 * self.coverage:.4g}%"
        if not self.enough:
            return (
                f"Prediction sets with a coverage of {share} take {self.n_needed} held-out "
                f"examples or audited photos; got {self.evidence.text()}. Every class is in every "
                "set."
            )
        return (
            f"The prediction sets hold {self.mean_size:.2f} classes on average; about {share} of "
            f"them should contain the right class, judged by {self.evidence.text()}."
        )

    def count_sizes(self) -> dict[int, int]:
        """Count the sets by their size; empty ones do not count."""
        counts = Counter(self.sizes.tolist())
        return {size: counts[size] for size in sorted(counts) if size}


def choose_sets(evidence: Evidence, exponent: float, p: Tensor, coverage: float) -> PredictionSets:
    """Choose the prediction sets of images.

    Parameters
    ----------
    evidence
        Samples whose class is known.
    exponent
        The power that calibrates their probabilities.
    p
        Calibrated probabilities of the images, shape ``(image, class)``; rows of NaN have no set.
    coverage
        Share of the sets that shall contain the right class, above 0 and below 1.
    """
    checks.below_one("coverage", coverage)
    of_truth = calibrate(evidence.probabilities, exponent)
    of_truth = of_truth.gather(1, evidence.truth.unsqueeze(1)).squeeze(1)
    least = find_least(of_truth, evidence.weights, coverage)
    readable = ~p.isnan().any(-1, keepdim=True)
    members = (p >= least) & readable
    members |= readable & (p == p.amax(-1, keepdim=True))
    return PredictionSets(coverage, evidence, least, members)


def find_least(p_truth: Tensor, weights: Tensor, coverage: float) -> float:
    """Return the probability from which on a class is in a set; 0 if every class is.

    Examples
    --------
    >>> import torch
    >>> p_truth = torch.linspace(0.05, 0.95, 19)
    >>> round(find_least(p_truth, torch.ones(19), 0.9), 2)  # all but one of 19, that is 18 of 20
    0.1
    >>> round(find_least(p_truth, torch.ones(19), 0.88), 2)  # 17.6 of 20
    0.12
    >>> find_least(p_truth[:8], torch.ones(8), 0.9)
    0.0
    """
    order = p_truth.argsort(descending=True)
    one, nothing = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    p = torch.cat((one, p_truth[order].double()))
    reached = torch.cat((nothing, weights[order].double().cumsum(0)))
    needed = coverage * (1 + float(reached[-1])) - _ROUNDING
    enough = (reached >= needed).nonzero()
    if not len(enough):
        return 0.0
    j = int(enough[0])
    part = (needed - reached[j - 1]) / (reached[j] - reached[j - 1])
    return float(torch.lerp(p[j - 1], p[j], part))


def count_needed(coverage: float) -> int:
    """Return how many samples of evidence a coverage needs.

    Examples
    --------
    >>> count_needed(0.9), count_needed(0.95)
    (9, 19)
    """
    return math.ceil(coverage / (1 - coverage) - _ROUNDING)


def name_sets(sets: PredictionSets, p: Tensor, classes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the names of the classes in each set, the most probable first."""
    sizes = sets.sizes
    order = p.nan_to_num(0).topk(int(sizes.max()), dim=-1).indices
    return [
        tuple(classes[k] for k in row[:size])
        for row, size in zip(order.tolist(), sizes.tolist(), strict=True)
    ]


def join_names(names: Sequence[str]) -> str:
    r"""Join the names of a set for a CSV file.

    Examples
    --------
    >>> print(join_names(("cat", "dog"))), print(join_names(("a|b", "c")))
    cat|dog
    a\x7cb|c
    (None, None)
    """
    return SEPARATOR.join(name.replace(SEPARATOR, _ESCAPED) for name in names)
