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

from infoshot.backbones import Backbone
from infoshot.core import checks
from infoshot.core.errors import DataError
from infoshot.features.extract import prepare_images
from infoshot.solvers.objective import class_means, log_posterior, support_cross_entropy, tim_loss
from infoshot.tasks.image_tasks import ImageTask


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


class FineTuner:
    """A network that learns from one task after the other, from the same weights every time.

    A copy learns, where the backbone is; the backbone itself, its statistics and its mode are never
    written to. Every task begins with the weights that the backbone has when this is made, whatever
    happened to the task before.

    Parameters
    ----------
    backbone
        The network, with the weights to begin with; move it to a GPU first to use one.
    setting
        How to learn.
    amp
        Whether the steps compute in bfloat16, which is several times faster on a GPU. Parameters,
        prototypes and losses stay as they are. Otherwise all is float32 throughout, as in
        extraction.
    """

    def __init__(self, backbone: Backbone, setting: FineTuning, *, amp: bool = False) -> None:
        setting.validate()
        self._setting, self._amp = setting, amp
        self._network = copy.deepcopy(backbone).requires_grad_()
        self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._beginning = [tensor.clone() for tensor in self._network.state_dict().values()]
        self._descent: _Descent | None = None

    def __call__(self, task: ImageTask, on_step: Callable[[Tensor], None] | None = None) -> Tensor:
        """Probabilities of the queries after the network has learned from this task.

        Parameters
        ----------
        task
            What to learn from.
        on_step
            Called after every step with the log-probabilities of the queries that the step began
            with, shape ``(1, query, class)``, where the loss looks at the queries; and at the end
            with those of the answer. They change in place with the next step.

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
            descent = self._started(task)
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
                f"fine-tuning has diverged within {setting.n_steps} steps; a lower learning rate "
                f"than {setting.learning_rate:g} may help."
            )
        return probabilities

    def _started(self, task: ImageTask) -> "_Descent":
        """The descent before its first step, the network in the mode of its steps."""
        network = self._network
        for tensor, beginning in zip(network.state_dict().values(), self._beginning, strict=True):
            tensor.copy_(beginning)
        x_sup, x_qry = (_network_input(network, images) for images in (task.x_sup, task.x_qry))
        y_sup = task.y_sup.to(x_sup.device).long().unsqueeze(0)
        network.eval()
        with torch.no_grad():
            (z_sup,) = _unit_features(network, x_sup, amp=False)
        checks.check_finite("features of the support", z_sup)
        weights = class_means(z_sup, y_sup, task.n_way)
        if self._setting.n_steps:
            _with_batch_statistics(network)
        inputs = (x_sup, y_sup, x_qry, weights)
        if self._descent is None or not self._descent.restart(*inputs):
            self._descent = _Descent(network, *inputs, self._setting, amp=self._amp)
        return self._descent


class _Descent:
    """Steps of Adam on the network and the class weights of tasks of one shape.

    On a GPU a step is a CUDA graph: launching its thousand kernels one by one takes longer than
    computing them.
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
        """Take in another task, if it has the shape of the one before."""
        own = (self._x_sup, self._y_sup, self.x_qry, self.weights)
        if any(old.shape != new.shape for old, new in zip(own, inputs, strict=True)):
            return False
        with torch.no_grad():
            for old, new in zip(own, inputs, strict=True):
                old.copy_(new)
        self._forget_moments()
        return True

    def step(self) -> Tensor | None:
        """Log-probabilities of the queries before the step, if it looked at them."""
        if self.weights.device.type != "cuda":
            return self._step()
        with torch.cuda.device(self.weights.device):
            if self._graph is None:
                self._graph = self._captured()
            self._graph.replay()
        return self._log_p

    def _captured(self) -> torch.cuda.CUDAGraph:
        """A step as a graph; capturing leaves network and weights as they were."""
        changing = [*self._network.state_dict().values(), self.weights.detach()]
        before = [tensor.clone() for tensor in changing]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # PyTorch asks for some steps before a capture
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._log_p = self._step()
        for tensor, value in zip(changing, before, strict=True):
            tensor.copy_(value)
        self._forget_moments()
        return graph

    def _forget_moments(self) -> None:
        """Put Adam back to its beginning."""
        for state in self._optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def _step(self) -> Tensor | None:
        setting, log_p_qry = self._setting, None
        self._optimizer.zero_grad()
        batches = (self._x_sup, self.x_qry) if setting.looks_at_queries() else (self._x_sup,)
        features = _unit_features(self._network, *batches, amp=self._amp)
        log_p = [log_posterior(z, self.weights, setting.temperature) for z in features]
        if setting.looks_at_queries():
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
    """Features of unit length, ``(1, image, dim)``; every batch passes the network by itself."""
    # One context for all, as PyTorch keeps parameters in bfloat16 to the end of it.
    with torch.autocast(batches[0].device.type, torch.bfloat16, enabled=amp):
        features = [network(x) for x in batches]
    return [normalize(z.to(x), dim=-1).unsqueeze(0) for z, x in zip(features, batches, strict=True)]


def _network_input(network: Backbone, images: Tensor) -> Tensor:
    """Crops as extraction prepares them, where the network is and in its precision."""
    like = next(network.parameters())
    return prepare_images(images.to(like.device), network.input_spec).to(like.dtype)


def _with_batch_statistics(network: Backbone) -> None:
    """Put batch normalisation, and nothing else, into training mode."""
    for module in network.modules():
        module.training = isinstance(module, _BatchNorm)
