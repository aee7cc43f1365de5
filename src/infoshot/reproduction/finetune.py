r"""TIM-GD over the whole network: each task fine-tunes it on its images.

Objective: that of TIM, [TIM] in ``docs/math.md``, over the class weights W *and* all parameters
:math:`\phi` of the feature extractor,

.. math:: \min_{\phi, W} \; \lambda \, CE - \beta \hat H(Y_Q) + \alpha \hat H(Y_Q | X_Q), \qquad
          z_i = \frac{f_\phi(x_i)}{\|f_\phi(x_i)\|}

Update: W starts as the class means. A step of Adam minimises the sum of all terms; support and
queries pass through the network separately. After the last step the queries pass once more with
their own batch statistics, and that pass gives the predictions: running statistics of 25 batches do
not describe a network that changes at every step. With zero steps the queries pass in evaluation
mode, and the predictions are those of the prototype method. If the loss has no entropy, the queries
pass only once, at the end.

Reference: [Boudiaf2020]_ in ``solvers/objective.py``, the rows {phi, W} of its ablation, with the
optimisation of G. S. Dhillon, P. Chaudhari, A. Ravichandran, S. Soatto. A Baseline for Few-Shot
Image Classification. ICLR 2020.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from infoshot.core import checks
from infoshot.reproduction.adaptation import Adaptation, Predict
from infoshot.solvers.objective import class_means, log_posterior, support_cross_entropy, tim_loss


@dataclass(frozen=True, kw_only=True)
class FineTuning(Adaptation):
    """TIM over the network and the class weights, with the published defaults.

    The rows of the paper's ablation set weights to 0. CE alone is
    ``FineTuning(marginal_entropy_weight=0, conditional_entropy_weight=0)``; two other rows omit one
    of the entropies.

    Parameters
    ----------
    temperature
        Factor on the squared distance in the posterior (tau); larger is sharper.
    cross_entropy_weight
        Weight of the support cross-entropy (lambda).
    marginal_entropy_weight
        Weight of the marginal entropy (beta); 0 omits the term.
    conditional_entropy_weight
        Weight of the conditional entropy (alpha); 0 omits the term.
    """

    predicts_in_evaluation_mode: ClassVar[bool] = False
    temperature: float = 15.0
    cross_entropy_weight: float = 0.1
    marginal_entropy_weight: float = 1.0
    conditional_entropy_weight: float = 0.1

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a number is not allowed."""
        super().validate()
        checks.positive("FineTuning: temperature", self.temperature)
        for name in ("cross_entropy", "marginal_entropy", "conditional_entropy"):
            checks.not_negative(f"FineTuning: {name}_weight", getattr(self, f"{name}_weight"))

    def uses_queries(self) -> bool:
        """Return whether the loss depends on the queries."""
        return self.marginal_entropy_weight > 0 or self.conditional_entropy_weight > 0

    def start(self, features: Tensor, y: Tensor, n_way: int) -> list[Tensor]:
        """Return the class means of features of unit length."""
        return [class_means(_unit(features), y.unsqueeze(0), n_way)]

    def log_posterior(self, features: Tensor, classifier: Sequence[Tensor]) -> Tensor:
        """Return the posterior of TIM."""
        (weights,) = classifier
        return log_posterior(_unit(features), weights, self.temperature)

    def losses(
        self, predict: Predict, x_sup: Tensor, y_sup: Tensor, x_qry: Tensor
    ) -> Iterator[Tensor]:
        """Yield the loss of TIM."""
        if not self.uses_queries():
            (log_p_sup,) = predict(x_sup)
            yield self.cross_entropy_weight * support_cross_entropy(log_p_sup, y_sup).sum()
            return
        log_p_sup, log_p_qry = predict(x_sup, x_qry)
        yield tim_loss(
            log_p_sup,
            y_sup,
            log_p_qry,
            lam=self.cross_entropy_weight,
            beta=self.marginal_entropy_weight,
            alpha=self.conditional_entropy_weight,
        ).sum()


def _unit(features: Tensor) -> Tensor:
    """Scale features to unit length, as a batch of one task."""
    return normalize(features, dim=-1).unsqueeze(0)
