r"""How far the probabilities of a solve may be trusted: one unknown exponent.

The model: the probabilities :math:`p` of the solver are right after they are raised to an unknown
power :math:`e` and normalised, :math:`p^{(e)}_k \propto p_k^e`. The prior: :math:`\log e` has a
Cauchy distribution with scale 0.25, since most solves are roughly calibrated and a few are not at
all. Its scale was chosen on the *choosing* classes of ``scripts/label_promises.py``.
"""

import torch
from torch import Tensor

EXPONENTS = torch.logspace(-0.7, 1.3, 81, dtype=torch.float64)
_PRIOR_SCALE = 0.25
_TINY = 1e-30


def log_prior() -> Tensor:
    """Return the logarithm of the prior up to a constant, shape ``(exponent,)``."""
    return -torch.log1p((EXPONENTS.log() / _PRIOR_SCALE) ** 2)


def log_powers(probabilities: Tensor) -> Tensor:
    """Return the logarithms of the normalised powers, shape ``(exponent, sample, class)``."""
    log_p = probabilities.double().clamp_min(_TINY).log()
    return torch.log_softmax(EXPONENTS.view(-1, 1, 1) * log_p, dim=-1)


def log_likelihood(log_powers: Tensor, truth: Tensor) -> Tensor:
    """Return the logarithms of the true classes' powers, shape ``(exponent, sample)``."""
    which = truth.expand(len(EXPONENTS), -1).unsqueeze(2)
    return log_powers.gather(2, which).squeeze(2)
