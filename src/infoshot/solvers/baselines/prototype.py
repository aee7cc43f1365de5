r"""Prototype: the nearest class mean, the start of every TIM solve and its inductive baseline.

.. math:: w_k = \frac{\sum_S y_{ik} z_i}{\sum_S y_{ik}}, \qquad
          p_{ik} \propto \exp\left(-\frac{\tau}{2}\|w_k - z_i\|^2\right)

It never looks at the queries together, so it is right for a single query and for any class
balance. Cost: one product, 2 \|Q\| K d operations. It is the row "CE" of the paper's TIM-ADM
ablation, and with features centred on the base classes' mean it is SimpleShot.

References: J. Snell, K. Swersky, R. Zemel. Prototypical Networks for Few-shot Learning. NIPS 2017.
Y. Wang, W.-L. Chao, K. Q. Weinberger, L. van der Maaten. SimpleShot. 2019.
"""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from infoshot.solvers.base import Solver, State
from infoshot.solvers.objective import class_means, log_posterior, support_cross_entropy
from infoshot.types import TaskBatch


@dataclass(eq=False)
class _PrototypeState(State):
    weights: Tensor  # [task, class, dim]


@final
@dataclass(frozen=True, kw_only=True)
class Prototype(Solver[_PrototypeState]):
    """Nearest class mean.

    Parameters
    ----------
    temperature
        Factor on the squared distance in the posterior; larger is sharper. It changes the
        probabilities, never the labels.
    """

    temperature: float = 15.0

    @property
    def n_steps(self) -> int:
        """Return 0: nothing is iterated."""
        return 0

    @property
    def tolerance(self) -> None:
        """Return ``None``: nothing is iterated."""
        return

    def init(self, task: TaskBatch) -> _PrototypeState:
        """Take the class means."""
        weights = class_means(task.z_sup, task.y_sup, task.n_way)
        return _PrototypeState(posterior=weights.new_empty(len(task), 0, 0), weights=weights)

    def step(self, task: TaskBatch, state: _PrototypeState) -> _PrototypeState:
        """Return the state: there is nothing to improve."""
        return state

    def log_posterior(self, task: TaskBatch, state: _PrototypeState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return log_posterior(task.z_qry, self.prototypes(task, state), self.temperature)

    def prototypes(self, task: TaskBatch, state: _PrototypeState) -> Tensor:
        """Class means, shape ``(task, class, dim)``."""
        return state.weights

    def loss(self, task: TaskBatch, log_p_sup: Tensor, log_p_qry: Tensor) -> Tensor:
        """Return the support cross-entropy, shape ``(task,)``."""
        return support_cross_entropy(log_p_sup, task.y_sup)

    def working_set(self, task: TaskBatch) -> int:
        """Count the features."""
        return (task.n_sup + task.n_qry + task.n_way) * task.dim
