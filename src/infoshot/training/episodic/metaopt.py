r"""MetaOpt: features trained for a linear classifier that solves a convex problem on the support.

A support vector machine or ridge regression is fitted to the support exactly; its scores of the
queries, times a learnt scale, are classified by a softmax. The gradient passes through the solution
into the backbone.

.. math:: p_{ik} \propto \exp(s \, w_k^\top z_i), \qquad w = w(z_S, y_S)

with the weights w of ``solvers/convex_heads.py``, which has both problems and their solutions.
Learnt: the whole network and the scale s.

Objective: the cross-entropy of the queries with smoothed labels,
:math:`1 - \epsilon` for the true class and :math:`\epsilon / (K - 1)` for each other one. Episodes
have more shots (15) than test tasks, whatever these have.

Cost per task: that of ``convex_heads.py``, and 2 \|Q\| K d operations.

The published settings are C = 0.1 for the machine, :math:`\lambda = 50` for ridge regression, and
:math:`\epsilon = 0.1`. The scale starts at 1, for ridge regression at 2, since the solution of the
original is twice that of ridge regression.

What differs from the original: features are average-pooled; the original flattens the last map of
ResNet-12 to 16,000 numbers.

Reference: K. Lee, S. Maji, A. Ravichandran, S. Soatto. Meta-Learning with Differentiable Convex
Optimization. CVPR 2019.
"""

from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from infoshot.core import checks
from infoshot.solvers.convex_heads import ridge_weights, svm_weights
from infoshot.training.episodic.head import Episodes, Head


@final
class MetaOpt(Head):
    """Linear classifier in closed form, or support vector machine, over trained features.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`.
    classifier
        The convex problem: ``svm`` or ``ridge``.
    cost
        Weight of margin violations of the machine (C).
    regularization
        Weight of the squared lengths in ridge regression (lambda).
    label_smoothing
        Probability of the wrong classes in the targets of the training (epsilon).
    """

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        classifier: Literal["svm", "ridge"] = "svm",
        cost: float = 0.1,
        regularization: float = 50.0,
        label_smoothing: float = 0.1,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.one_of("classifier", classifier, ("svm", "ridge"))
        checks.positive("cost", cost)
        checks.positive("regularization", regularization)
        checks.between("label_smoothing", label_smoothing, 0.0, 0.5)
        self.classifier, self.cost, self.regularization = classifier, cost, regularization
        self.label_smoothing = label_smoothing
        self.scale = nn.Parameter(torch.tensor(2.0 if classifier == "ridge" else 1.0))

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``."""
        w = self.prototypes(z_sup, y_sup, n_way)
        return (self.scale * z_qry @ w.mT).log_softmax(-1)

    def prototypes(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Weights of the classifier, shape ``(task, class, dim)``."""
        if self.classifier == "ridge":
            return ridge_weights(z_sup, y_sup, n_way, self.regularization)
        return svm_weights(z_sup, y_sup, n_way, self.cost)

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the queries with smoothed labels, and the log-probabilities."""
        n_way = episodes.n_way
        log_p = self.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, n_way)
        # PyTorch spreads its smoothing over all classes, the true one included.
        smoothing = self.label_smoothing * n_way / (n_way - 1)
        y_qry = episodes.y_qry.flatten()
        return cross_entropy(log_p.flatten(0, 1), y_qry, label_smoothing=smoothing), log_p
