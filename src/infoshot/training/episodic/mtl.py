r"""MTL: a classifier with learnt initial weights, over a network of which scales and shifts learn.

The weights of the base network stay as they are; episodes teach a scale per kernel and a shift per
filter of its convolutions, see ``scale_shift.py``, and this head. On a task the head is a linear
classifier that takes steps of gradient descent on the support.

.. math:: \theta_k = (w_k, b_k), \qquad \ell_{ik} = w_k^\top z_i + b_k, \qquad
          w_k \leftarrow w_k - \frac{\eta}{|S|} \sum_{i \in S} (p_{ik} - y_{ik}) z_i, \qquad
          b_k \leftarrow b_k - \frac{\eta}{|S|} \sum_{i \in S} (p_{ik} - y_{ik})

with :math:`p_i = softmax(\ell_i)`. The softmax of the scores after the last step classifies the
queries. Learnt: the initial :math:`\theta`, and scales and shifts. Objective: the cross-entropy of
the queries after the last step. The gradient passes through all steps; since the gradient of
softmax regression has a closed form, the steps themselves need none.

Cost per task and step: 4 \|S\| K d operations.

What differs from the original:

- Hard-task batches are left out: the original draws extra episodes of the classes that were
  classified worst in the last ones.
- The support is augmented in the original while the classifier is fitted to it; here it is not.
- Initial weights are zero before the training; the original draws them. Classes come in any order,
  so drawn weights are noise that the training must remove first.

Every class slot has its own initial weights. The number of ways at test time is therefore that of
the training, and a relabelling of the classes changes the result slightly.

Reference: Q. Sun, Y. Liu, T.-S. Chua, B. Schiele. Meta-Transfer Learning for Few-Shot Learning.
CVPR 2019.
"""

from typing import final

import torch
from torch import Tensor, nn

from infoshot.core import checks
from infoshot.solvers.objective import class_rows
from infoshot.training.episodic.fixed_ways import check_n_way
from infoshot.training.episodic.head import Head


@final
class Mtl(Head):
    """Linear classifier that descends from learnt weights.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`.
    n_way
        Number of classes of every task.
    n_steps
        Number of steps in training.
    n_test_steps
        Number of steps in evaluation mode.
    learning_rate
        Step size (eta).
    """

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        n_way: int = 5,
        n_steps: int = 20,
        n_test_steps: int = 100,
        learning_rate: float = 0.01,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.at_least("n_way", n_way, 2)
        checks.at_least("n_steps", n_steps, 1)
        checks.at_least("n_test_steps", n_test_steps, 1)
        checks.positive("learning_rate", learning_rate)
        self.n_way, self.learning_rate = n_way, learning_rate
        self.n_steps, self.n_test_steps = n_steps, n_test_steps
        self.weight = nn.Parameter(torch.zeros(n_way, dim))
        self.bias = nn.Parameter(torch.zeros(n_way))

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``."""
        w, b = self._fit(z_sup, y_sup, n_way)
        return (z_qry @ w.mT + b.mT).log_softmax(-1)

    def prototypes(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Weights of the classifier after the last step, shape ``(task, class, dim)``."""
        return self._fit(z_sup, y_sup, n_way)[0]

    def _fit(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> tuple[Tensor, Tensor]:
        """Weights ``(task, class, dim)`` and biases ``(task, class, 1)`` after the last step."""
        check_n_way(n_way, self.n_way)
        y = class_rows(y_sup, n_way, z_sup.dtype)
        step_size = self.learning_rate / z_sup.shape[1]
        w, b = self.weight.expand(len(z_sup), -1, -1), self.bias.unsqueeze(-1)
        for _ in range(self.n_steps if self.training else self.n_test_steps):
            surplus = (w @ z_sup.mT + b).softmax(1) - y  # [task, class, support]
            w = w - step_size * (surplus @ z_sup)
            b = b - step_size * surplus.sum(-1, keepdim=True)
        return w, b
