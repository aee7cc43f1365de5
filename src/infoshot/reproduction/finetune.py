r"""TIM-GD and entropy minimisation over the whole network: each task fine-tunes it on its images.

Objective: that of TIM, [TIM] in ``docs/math.md``, over the class weights W *and* all parameters
:math:`\phi` of the feature extractor,

.. math:: \min_{\phi, W} \; \lambda \, CE - \beta \hat H(Y_Q) + \alpha \hat H(Y_Q | X_Q), \qquad
          z_i = \frac{f_\phi(x_i)}{\|f_\phi(x_i)\|}

Update: W starts as the class means of the features in evaluation mode, which are those of
``infoshot extract``. Adam then updates the network and the class weights together. During these
steps batch normalisation is in training mode. Support and queries pass through the network
separately, so that each set is normalised by its own batch statistics. After the last step the
queries pass once more in the same mode, and that pass gives the predictions: running statistics of
25 batches do not describe a network that changes at every step. With zero steps the queries pass in
evaluation mode, and the predictions are those of the prototype method.

Dropout stays off: the published networks have none, and predictions should be deterministic.

Cost: a step is a forward and a backward pass of all images of the task, three times the operations
of extracting them. ResNet-18 at 84 pixels takes 23 GFLOP per image and 58 TFLOP per 5-way 5-shot
task of 25 steps; the thousand steps of TIM-GD over W take 1 GFLOP. If the loss has no entropy, the
queries pass only once, at the end.

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

from infoshot.backbones import Backbone
from infoshot.core import checks
from infoshot.core.errors import DataError
from infoshot.features.extract import prepare_images
from infoshot.solvers.objective import class_means, log_posterior, support_cross_entropy, tim_loss
from infoshot.tasks.image_tasks import ImageTask


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Settings of Adam on the network and the class weights, with the published defaults.

    The rows of the paper's ablation set weights to 0. CE alone is
    ``FineTuning(marginal_entropy_weight=0, conditional_entropy_weight=0)``; two other rows omit one
    of the entropies. ``ent-min`` has a marginal weight of 0 and both other weights 1. Adam is
    invariant to the scale of the loss, so ``ent-min`` hardly differs from the row that omits the
    marginal entropy.

    Parameters
    ----------
    n_steps
        Gradient steps per task; 0 gives the prototype method.
    learning_rate
        Adam's step size, for the network and the class weights.
    temperature
        Factor on the squared distance in the posterior (tau); larger is sharper.
    cross_entropy_weight
        Weight of the support cross-entropy (lambda).
    marginal_entropy_weight
        Weight of the marginal entropy (beta); 0 omits the term.
    conditional_entropy_weight
        Weight of the conditional entropy (alpha); 0 omits the term.
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

    def uses_queries(self) -> bool:
        """Return whether the loss depends on the queries."""
        return self.marginal_entropy_weight > 0 or self.conditional_entropy_weight > 0


class FineTuner:
    """Fine-tunes a network on one task at a time, always from the same initial weights.

    A copy of the backbone is fine-tuned, on the device of the backbone. The backbone itself, its
    statistics and its mode do not change. Each task starts from the weights that the backbone has
    when this object is created.

    Parameters
    ----------
    backbone
        The network with its initial weights; move it to a GPU first to use one.
    setting
        Loss and optimiser.
    amp
        Whether the steps compute in bfloat16, which is several times faster on a GPU. Parameters,
        prototypes and losses keep their precision. Otherwise everything is float32, as in
        extraction.
    """

    def __init__(self, backbone: Backbone, setting: FineTuning, *, amp: bool = False) -> None:
        setting.validate()
        self._setting, self._amp = setting, amp
        self._network = copy.deepcopy(backbone).requires_grad_()
        self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._initial = [tensor.clone() for tensor in self._network.state_dict().values()]
        self._descent: _Descent | None = None

    def __call__(self, task: ImageTask, on_step: Callable[[Tensor], None] | None = None) -> Tensor:
        """Fine-tune on one task and return the probabilities of its queries.

        Parameters
        ----------
        task
            Support and query images.
        on_step
            Called after every step whose loss uses the queries, with the log-probabilities of the
            queries before that step, shape ``(1, query, class)``; and at the end with the final
            ones. The next step overwrites the tensor.

        Returns
        -------
        Shape ``(query, class)``, on the CPU.

        Raises
        ------
        DataError
            If the descent diverges.
        """
        task.validate()
        setting = self._setting
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            descent = self._start(task)
            for _ in range(setting.n_steps):
                log_p = descent.step()
                if on_step is not None and log_p is not None:
                    on_step(log_p)
            with torch.no_grad():
                amp = self._amp and setting.n_steps > 0
                (z_qry,) = _unit_features(self._network, descent.x_qry, amp=amp)
                log_p = log_posterior(z_qry, descent.weights, setting.temperature)
        if on_step is not None:
            on_step(log_p)
        probabilities = log_p.exp().squeeze(0).cpu()
        if not probabilities.isfinite().all():
            raise DataError(
                f"fine-tuning diverged within {setting.n_steps} steps; a learning rate below "
                f"{setting.learning_rate:g} may help."
            )
        return probabilities

    def _start(self, task: ImageTask) -> "_Descent":
        """Reset the network and return the descent before its first step."""
        network = self._network
        for tensor, initial in zip(network.state_dict().values(), self._initial, strict=True):
            tensor.copy_(initial)
        x_sup, x_qry = (_network_input(network, images) for images in (task.x_sup, task.x_qry))
        y_sup = task.y_sup.to(x_sup.device).long().unsqueeze(0)
        network.eval()
        with torch.no_grad():
            (z_sup,) = _unit_features(network, x_sup, amp=False)
        checks.check_finite("features of the support", z_sup)
        weights = class_means(z_sup, y_sup, task.n_way)
        if self._setting.n_steps:
            _use_batch_statistics(network)
        inputs = (x_sup, y_sup, x_qry, weights)
        if self._descent is None or not self._descent.restart(*inputs):
            self._descent = _Descent(network, *inputs, self._setting, amp=self._amp)
        return self._descent


class _Descent:
    """Adam on the network and the class weights, for tasks of one shape.

    On a GPU a step is a CUDA graph, because launching its thousand kernels one at a time takes
    longer than computing them.
    """

    def __init__(
        self,
        network: Backbone,
        x_sup: Tensor,
        y_sup: Tensor,
        x_qry: Tensor,
        weights: Tensor,
        setting: FineTuning,
        *,
        amp: bool,
    ) -> None:
        self.x_qry, self.weights = x_qry, weights.requires_grad_()
        self._network, self._x_sup, self._y_sup = network, x_sup, y_sup
        self._setting, self._amp = setting, amp
        on_gpu = weights.device.type == "cuda"
        self._optimizer = torch.optim.Adam(
            [*network.parameters(), self.weights],
            lr=setting.learning_rate,
            fused=on_gpu or None,
            capturable=on_gpu,
        )
        self._graph: torch.cuda.CUDAGraph | None = None
        self._log_p: Tensor | None = None

    def restart(self, *inputs: Tensor) -> bool:
        """Load another task; return False if its shape differs from the one before."""
        own = (self._x_sup, self._y_sup, self.x_qry, self.weights)
        if any(old.shape != new.shape for old, new in zip(own, inputs, strict=True)):
            return False
        with torch.no_grad():
            for old, new in zip(own, inputs, strict=True):
                old.copy_(new)
        self._reset_moments()
        return True

    def step(self) -> Tensor | None:
        """Take a step; return the log-probabilities of the queries before it, if it uses them."""
        if self.weights.device.type != "cuda":
            return self._step()
        with torch.cuda.device(self.weights.device):
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()
        return self._log_p

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Capture a step as a graph; network and weights are restored afterwards."""
        changing = [*self._network.state_dict().values(), self.weights.detach()]
        before = [tensor.clone() for tensor in changing]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # PyTorch requires some steps before a capture
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._log_p = self._step()
        for tensor, value in zip(changing, before, strict=True):
            tensor.copy_(value)
        self._reset_moments()
        return graph

    def _reset_moments(self) -> None:
        """Reset Adam to its initial state."""
        for state in self._optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def _step(self) -> Tensor | None:
        setting, log_p_qry = self._setting, None
        self._optimizer.zero_grad()
        batches = (self._x_sup, self.x_qry) if setting.uses_queries() else (self._x_sup,)
        features = _unit_features(self._network, *batches, amp=self._amp)
        log_p = [log_posterior(z, self.weights, setting.temperature) for z in features]
        if setting.uses_queries():
            log_p_qry = log_p[1].detach()
            loss = tim_loss(
                log_p[0],
                self._y_sup,
                log_p[1],
                lam=setting.cross_entropy_weight,
                beta=setting.marginal_entropy_weight,
                alpha=setting.conditional_entropy_weight,
            )
        else:
            loss = setting.cross_entropy_weight * support_cross_entropy(log_p[0], self._y_sup)
        loss.sum().backward()
        self._optimizer.step()
        return log_p_qry


def _unit_features(network: Backbone, *batches: Tensor, amp: bool) -> list[Tensor]:
    """Return features of unit length, ``(1, image, dim)``; each batch passes separately."""
    # One context for all batches: within it PyTorch caches the parameters in bfloat16.
    with torch.autocast(batches[0].device.type, torch.bfloat16, enabled=amp):
        features = [network(x) for x in batches]
    return [normalize(z.to(x), dim=-1).unsqueeze(0) for z, x in zip(features, batches, strict=True)]


def _network_input(network: Backbone, images: Tensor) -> Tensor:
    """Prepare crops as extraction does, on the device and in the precision of the network."""
    like = next(network.parameters())
    return prepare_images(images.to(like.device), network.input_spec).to(like.dtype)


def _use_batch_statistics(network: Backbone) -> None:
    """Put batch normalisation into training mode, and all other layers into evaluation mode."""
    for module in network.modules():
        module.training = isinstance(module, _BatchNorm)
