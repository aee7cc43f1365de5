r"""What is known about how often the solver is right: held-out examples and answers of an audit.

Held-out examples have about equally many images of every class, the images to label may not. Each
held-out example therefore weighs as much as the images of its class,

.. math:: w_i \propto \frac{1}{N} \sum_j p_{j y_i} \Big/ n_{y_i},

where:

- :math:`p_{jk}` are the calibrated probabilities of the :math:`N` images;
- :math:`y_i` is the class of the example, of which :math:`n_{y_i}` examples were held out.

The weights of the held-out examples have the mean 1. Images of an audit are a random sample of the
images, so each weighs 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.labelling.calibrate import HeldOut, weigh_by_shares


@dataclass(frozen=True, eq=False)
class Evidence:
    """Predictions for samples whose class is known.

    Parameters
    ----------
    probabilities
        Predicted probabilities before calibration, shape ``(sample, class)``.
    truth
        Their classes, shape ``(sample,)``.
    weights
        How much each counts, shape ``(sample,)``.
    n_held_out, n_audited
        How many are examples that were held out, and images of an audit.
    """

    probabilities: Tensor
    truth: Tensor
    weights: Tensor
    n_held_out: int
    n_audited: int

    def __len__(self) -> int:
        return len(self.truth)

    def text(self) -> str:
        """Format how many samples there are.

        Examples
        --------
        >>> Evidence(torch.ones(1, 2), torch.zeros(1), torch.ones(1), 1, 0).text()
        '1 held-out example'
        """
        held_out = f"{self.n_held_out:,} held-out example{'' if self.n_held_out == 1 else 's'}"
        if not self.n_audited:
            return held_out
        return (
            f"{held_out} and {self.n_audited:,} audited photo{'' if self.n_audited == 1 else 's'}"
        )


def collect_evidence(
    held_out: HeldOut, shares: Tensor, audited: Tensor | None = None, truth: Tensor | None = None
) -> Evidence:
    """Weigh the held-out examples, and add the answers of an audit.

    Parameters
    ----------
    held_out
        Predictions for the held-out examples.
    shares
        Share of each class among the images, shape ``(class,)``.
    audited, truth
        Predictions for the audited images before calibration, shape ``(image, class)``, and the
        classes that a person gave them.
    """
    if audited is None or truth is None:
        audited, truth = torch.empty(0, len(shares)), torch.empty(0, dtype=torch.int64)
    weights = weigh_by_shares(held_out.truth, shares)
    return Evidence(
        torch.cat((held_out.probabilities, audited)),
        torch.cat((held_out.truth, truth)),
        torch.cat((weights, torch.ones(len(truth), dtype=torch.float64))),
        len(held_out),
        len(truth),
    )
