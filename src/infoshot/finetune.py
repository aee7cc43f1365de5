r"""TIM-GD and entropy minimisation over the whole network: every task learns from its own images.

Objective: that of TIM, [TIM] in ``docs/math.md``, over the class weights W *and* all parameters
:math:`\phi` of the network that makes the features,

.. math:: \min_{\phi, W} \; \lambda \, CE - \beta \hat H(Y_Q) + \alpha \hat H(Y_Q | X_Q), \qquad
          z_i = \frac{f_\phi(x_i)}{\|f_\phi(x_i)\|}

Update: W starts as the class means of the features in evaluation mode, those of ``infoshot
extract``. Then Adam moves parameters and weights together. In these steps batch normalisation is in
training mode, and support and queries pass the network one after the other, so that each is
normalised by its own batch statistics. The answer is read off after the last step, by one more pass
of the queries in that very mode: running statistics of 25 batches say little of a network that has
moved since. Without a step nothing has moved, and the queries are read in evaluation mode, which
makes the answer that of prototypes.

Dropout stays off: the published networks have none, and an answer should not depend on chance.

Cost: a step is a forward and a backward pass of all images of the task, three times the operations
of extracting them: for ResNet-18 at 84 pixels 23 GFLOP per image, 58 TFLOP per 5-way 5-shot task of
25 steps, where the thousand steps of TIM-GD over W take 1 GFLOP. Without entropies in the loss the
queries pass once only, as their passes in between would change nothing.

Reference: [Boudiaf2020]_ in ``solvers/objective.py``, the rows {phi, W} of its ablation, with the
optimisation of G. S. Dhillon, P. Chaudhari, A. Ravichandran, S. Soatto. A Baseline for Few-Shot
Image Classification. ICLR 2020.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm

from infoshot import checks
from infoshot.backbones import Backbone
from infoshot.data.image_tasks import ImageTask
from infoshot.errors import DataError
from infoshot.features.extract import prepared_images
from infoshot.solvers.objective import class_means, log_posterior, support_cross_entropy, tim_loss


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Adam on the network and the class weights together, with the published values.

    The rows of the paper's ablation set weights to 0: CE alone is
    ``FineTuning(marginal_entropy_weight=0, conditional_entropy_weight=0)``, the two between leave
    out one of the entropies. ``ent-min`` is a marginal weight of 0 with both other weights 1; Adam
    does not see the scale of a loss, so it hardly differs from the row that leaves the marginal
    entropy out.

    Parameters
    ----------
    n_steps
        Gradient steps per task; 0 leaves the prototypes as they are.
    learning_rate
        Adam's step size, for parameters and class weights alike.
    temperature
        Factor on the squared distance in the posterior (tau); larger is sharper.
    cross_entropy_weight
        Weight of the support cross-entropy (lambda).
    marginal_entropy_weight
        Weight of the marginal entropy (beta). 0 leaves the term out.
    conditional_entropy_weight
        Weight of the conditional entropy (alpha). 0 leaves the term out.
    """

    n_steps: int = 25
    learning_rate: float = 5e-5
    temperature: float = 15.0
    cross_entropy_weight: float = 0.1
    marginal_entropy_weight: float = 1.0
    conditional_entropy_weight: float = 0.1

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a number is not allowed."""
        checks.at_least("FineTuning: n_steps", self.n_steps, 0)
        for name in ("learning_rate", "temperature"):
            checks.positive(f"FineTuning: {name}", getattr(self, name))
        for name in ("cross_entropy", "marginal_entropy", "conditional_entropy"):
            checks.not_negative(f"FineTuning: {name}_weight", getattr(self, f"{name}_weight"))

    def looks_at_queries(self) -> bool:
        """Whether the loss depends on the queries at all."""
        return self.marginal_entropy_weight > 0 or self.conditional_entropy_weight > 0


def fine_tune(
    backbone: Backbone,
    task: ImageTask,
    setting: FineTuning,
    *,
    amp: bool = False,
    on_step: Callable[[Tensor], None] | None = None,
) -> Tensor:
    """Probabilities of the queries after the network has learned from this task.

    A copy learns, where the backbone is; the backbone itself, its statistics and its mode are never
    written to, so every task begins with the same weights whatever happened to the one before.

    Parameters
    ----------
    backbone
        The network, with the weights to begin with; move it to a GPU first to use one.
    task, setting
        What to learn from, and how.
    amp
        Whether the steps compute in bfloat16, which is several times faster on a GPU. Parameters,
        prototypes and losses stay as they are. Otherwise all is float32 throughout, as in
        extraction.
    on_step
        Called before every step and after the last with the log-probabilities of the queries,
        shape ``(1, query, class)``; between steps only where the loss looks at the queries.

    Returns
    -------
    Shape ``(query, class)``, on the CPU.

    Raises
    ------
    DataError
        If the descent diverges.
    """
    setting.validate()
    task.validate()
    network = copy.deepcopy(backbone).requires_grad_()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x_sup, x_qry = (_network_input(network, images) for images in (task.x_sup, task.x_qry))
    y_sup = task.y_sup.to(x_sup.device).long().unsqueeze(0)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        network.eval()
        with torch.no_grad():
            (z_sup,) = _unit_features(network, x_sup, amp=False)
        checks.check_finite("features of the support", z_sup)
        weights = class_means(z_sup, y_sup, task.n_way).requires_grad_()
        if setting.n_steps:
            _with_batch_statistics(network)
            _descend(network, weights, x_sup, y_sup, x_qry, setting, amp=amp, on_step=on_step)
        with torch.no_grad():
            (z_qry,) = _unit_features(network, x_qry, amp=amp and setting.n_steps > 0)
            log_p = log_posterior(z_qry, weights, setting.temperature)
            probabilities = log_p.exp()
        if on_step is not None:
            on_step(log_p)
    probabilities = probabilities.squeeze(0).cpu()
    if not probabilities.isfinite().all():
        raise DataError(
            f"fine-tuning has diverged within {setting.n_steps} steps; a lower learning rate than "
            f"{setting.learning_rate:g} may help."
        )
    return probabilities


def _descend(
    network: Backbone,
    weights: Tensor,
    x_sup: Tensor,
    y_sup: Tensor,
    x_qry: Tensor,
    setting: FineTuning,
    *,
    amp: bool,
    on_step: Callable[[Tensor], None] | None,
) -> None:
    """Take all steps; network and weights are written to."""
    optimizer = torch.optim.Adam(
        [*network.parameters(), weights],
        lr=setting.learning_rate,
        fused=weights.device.type == "cuda" or None,
    )
    batches = (x_sup, x_qry) if setting.looks_at_queries() else (x_sup,)
    for _ in range(setting.n_steps):
        features = _unit_features(network, *batches, amp=amp)
        log_p = [log_posterior(z, weights, setting.temperature) for z in features]
        if setting.looks_at_queries():
            if on_step is not None:
                on_step(log_p[1].detach())
            loss = tim_loss(
                log_p[0],
                y_sup,
                log_p[1],
                lam=setting.cross_entropy_weight,
                beta=setting.marginal_entropy_weight,
                alpha=setting.conditional_entropy_weight,
            )
        else:
            loss = setting.cross_entropy_weight * support_cross_entropy(log_p[0], y_sup)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()


def _unit_features(network: Backbone, *batches: Tensor, amp: bool) -> list[Tensor]:
    """Features of unit length, ``(1, image, dim)``; every batch passes the network by itself."""
    # One context for all, as PyTorch keeps parameters in bfloat16 to the end of it.
    with torch.autocast(batches[0].device.type, torch.bfloat16, enabled=amp):
        features = [network(x) for x in batches]
    return [normalize(z.to(x), dim=-1).unsqueeze(0) for z, x in zip(features, batches, strict=True)]


def _network_input(network: Backbone, images: Tensor) -> Tensor:
    """Crops as extraction prepares them, where the network is and in its precision."""
    like = next(network.parameters())
    return prepared_images(images.to(like.device), network.input_spec).to(like.dtype)


def _with_batch_statistics(network: Backbone) -> None:
    """Put batch normalisation, and nothing else, into training mode."""
    for module in network.modules():
        module.training = isinstance(module, _BatchNorm)
