r"""Baseline++ and Neg-cosine as published: a cosine classifier fitted to the support by SGD.

It minimises the cross-entropy of the labelled samples over class directions and, for Baseline++, a
length per class, from random weights. The queries are classified independently.

.. math:: -\frac1n \sum_i \sum_k y_{ik} \log p_{ik}, \qquad
          p_{ik} \propto \exp(\tau r_k c_{ki}), \quad c_{ki} = \cos(v_k, z_i)

over the n samples of a mini-batch. Update: 100 passes of mini-batches of 4, see ``sgd.py``, with
:math:`\hat v, \hat z` of unit length and :math:`g_{ki} = (p_{ik} - y_{ik}) / n`:

- lengths: :math:`\partial L / \partial r_k = \tau \sum_i g_{ki} c_{ki}`
- directions: :math:`\partial L / \partial v_k
  = \frac{\tau r_k}{\|v_k\|}
  \left(\sum_i g_{ki} \hat z_i - (\sum_i g_{ki} c_{ki}) \hat v_k\right)`

*Baseline++* has :math:`\tau = 2` and starts with :math:`r_k = \|v_k\|`: the released code
normalises the weights by PyTorch's ``WeightNorm``, whose lengths are learned and decay.
*Neg-cosine* has :math:`\tau = 5` in the released code (30 is the scale of its base training), no
lengths (:math:`r_k = 1`) and no margin at test time.

The descent ends early: with one shot it takes 200 steps, and what is left of the random weights
costs accuracy where cosines of different classes are similar, as they are after base training with
a linear layer. On our features of such a network Baseline++ has 48 % with one shot (54 % after 400
passes; 56 % if the features are centred by the mean of the base classes) and 73 % with five.

Cost: 4 \|S\| K d operations per pass. When to prefer it: to compare with published numbers; the
cosine classifier of ``baseline++`` starts from the class means and needs no random numbers.

What differs from the original: random numbers do not change from task to task, and a feature of
length zero has cosines of 0 (the original adds 1e-5 to lengths). The network is trained elsewhere
(the recipes ``baseline++`` and ``neg-cosine``).

References: W.-Y. Chen, Y.-C. Liu, Z. Kira, Y.-C. F. Wang, J.-B. Huang. A Closer Look at Few-shot
Classification. ICLR 2019. B. Liu, Y. Cao, Y. Lin, Q. Li, Z. Zhang, M. Long, H. Hu. Negative Margin
Matters: Understanding Margin in Few-shot Classification. ECCV 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import inverse_lengths
from infoshot.solvers.sgd import SgdSolver, SgdState
from infoshot.solvers.solver import Rule


@final
@dataclass(frozen=True, kw_only=True)
class BaselinePlusPlusSgd(SgdSolver):
    """Cosine classifier fitted to the support by stochastic gradient descent.

    It adds these parameters to those of ``SgdSolver``.

    Parameters
    ----------
    learns_lengths
        Whether every class has a learned length; without it all lengths are 1.
    temperature
        Factor on the cosines; larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[0.9, 0.1]]]), n_way=2)
    >>> solve(BaselinePlusPlusSgd(n_steps=500), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **SgdSolver.rules,
        "learns_lengths": partial(checks.one_of, allowed=(True, False)),
    }

    learns_lengths: bool = True
    temperature: float = 2.0

    def init(self, task: TaskBatch) -> SgdState:
        """Start from random directions, and from their lengths."""
        state = SgdState.at_random(task, self.seed, task.dim)
        state.z = state.z * inverse_lengths(state.z).unsqueeze(-1)
        if self.learns_lengths:
            length = torch.linalg.vector_norm(state.weights, dim=-1, keepdim=True)
            state.weights = torch.cat((state.weights, length), dim=-1)
        return state

    def gradient(self, weights: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Gradient of the mean cross-entropy of a mini-batch."""
        v, scale = self._parts(weights)
        inverse = inverse_lengths(v).unsqueeze(-1)
        unit = v * inverse
        cosines = torch.bmm(unit, z.mT)
        g = torch.softmax(cosines * scale, dim=1).sub_(y).div_(z.shape[1])
        along = torch.linalg.vecdot(g, cosines).unsqueeze(-1)
        of_v = torch.bmm(g, z).addcmul_(unit, along, value=-1).mul_(inverse * scale)
        return torch.cat((of_v, self.temperature * along), dim=-1) if self.learns_lengths else of_v

    def prototypes(self, task: TaskBatch, state: SgdState) -> Tensor:
        """Directions times their scale, shape ``(task, class, dim)``."""
        v, scale = self._parts(state.weights)
        return v * (inverse_lengths(v).unsqueeze(-1) * scale)

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples given the weights, ``(task, sample, class)``."""
        scores = torch.bmm(prototypes, z.mT).mul_(inverse_lengths(z).unsqueeze(1))
        return torch.log_softmax(scores, dim=1).mT

    def _parts(self, weights: Tensor) -> tuple[Tensor, Tensor | float]:
        """Directions, ``(task, class, dim)``, and factors on the cosines, ``(task, class, 1)``."""
        if not self.learns_lengths:
            return weights, self.temperature
        return weights[..., :-1], self.temperature * weights[..., -1:]
