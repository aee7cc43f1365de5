"""Fine-tuning of a whole network on one task: the steps that all objectives share.

An :class:`Adaptation` says what classifier is put on the features and what is minimised. A
:class:`FineTuner` runs it: the classifier starts from features of the support in evaluation mode,
which are those of ``infoshot extract``. Adam then updates the network and the classifier together.
During these steps batch normalisation is in training mode, and every set of images that passes
through the network is normalised by its own batch statistics. Dropout stays off: the published
networks have none, and predictions should be deterministic.

Cost: a step is a forward and a backward pass of the images of the task, three times the operations
of extracting them. ResNet-18 at 84 pixels takes 23 GFLOP per image and 58 TFLOP per 5-way 5-shot
task of 25 steps; the thousand steps of TIM-GD over the class weights take 1 GFLOP.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from infoshot.backbones import Backbone
from infoshot.core import checks
from infoshot.core.errors import DataError
from infoshot.features.encoding import prepare_images
from infoshot.tasks.image_tasks import ImageTask

# Log-probabilities of sets of images, each (1, image, class); each set passes separately.
Predict = Callable[..., list[Tensor]]
# Called with a function that returns the log-probabilities of the queries now.
StepHook = Callable[[Callable[[], Tensor]], None]


@dataclass(frozen=True, kw_only=True)
class Adaptation(ABC):
    """A classifier over the features of a network, and the losses that train both on a task.

    Parameters
    ----------
    n_steps
        Steps per task, each over all its images; 0 gives the initial classifier.
    learning_rate
        Adam's step size, for the network and the classifier.
    """

    n_steps: int = 25
    learning_rate: float = 5e-5
    # Whether the final predictions use the running statistics of batch normalisation.
    predicts_in_evaluation_mode: ClassVar[bool]

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a number is not allowed."""
        name = type(self).__name__
        checks.at_least(f"{name}: n_steps", self.n_steps, 0)
        checks.positive(f"{name}: learning_rate", self.learning_rate)

    @abstractmethod
    def start(self, features: Tensor, y: Tensor, n_way: int) -> list[Tensor]:
        """Return the parameters of the initial classifier.

        Parameters
        ----------
        features
            Features of the support in evaluation mode, shape ``(support, dim)``.
        y
            Support labels, shape ``(support,)``.
        n_way
            Number of classes.
        """

    @abstractmethod
    def log_posterior(self, features: Tensor, classifier: Sequence[Tensor]) -> Tensor:
        """Return the log-probabilities of images, ``(1, image, class)``."""

    @abstractmethod
    def losses(
        self, predict: Predict, x_sup: Tensor, y_sup: Tensor, x_qry: Tensor
    ) -> Iterator[Tensor]:
        """Yield the losses of a step; Adam updates the parameters after each of them.

        ``y_sup`` has shape ``(1, support)``, and a loss has one number.
        """


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
        Classifier, losses and optimiser.
    amp
        Whether the steps compute in bfloat16, which is several times faster on a GPU. Parameters,
        the initial classifier and losses keep their precision. Otherwise everything is float32, as
        in extraction.
    """

    def __init__(self, backbone: Backbone, setting: Adaptation, *, amp: bool = False) -> None:
        setting.validate()
        self._setting, self._amp = setting, amp
        self._network = copy.deepcopy(backbone).requires_grad_()
        self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._initial = [tensor.clone() for tensor in self._network.state_dict().values()]
        self._descent: _Descent | None = None

    def __call__(self, task: ImageTask, on_step: StepHook | None = None) -> Tensor:
        """Fine-tune on one task and return the probabilities of its queries.

        Parameters
        ----------
        task
            Support and query images.
        on_step
            Called before the first step and after every step, with a function. The function
            returns the log-probabilities of the queries at that moment, with the network in
            evaluation mode, shape ``(1, query, class)``.

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
            observe = on_step or (lambda predict: None)
            observe(descent.predict_queries)
            for _ in range(setting.n_steps):
                descent.step()
                observe(descent.predict_queries)
            running = setting.predicts_in_evaluation_mode or setting.n_steps == 0
            log_p = descent.predict_queries(running_statistics=running)
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
        y_sup = task.y_sup.to(x_sup.device).long()
        network.eval()
        with torch.no_grad():
            features = network(x_sup)
            checks.check_finite("features of the support", features)
            classifier = self._setting.start(features, y_sup, task.n_way)
        inputs = (x_sup, y_sup.unsqueeze(0), x_qry, *classifier)
        if self._descent is None or not self._descent.restart(*inputs):
            self._descent = _Descent(network, *inputs, setting=self._setting, amp=self._amp)
        return self._descent


class _Descent:
    """Adam on the network and the classifier, for tasks of one shape.

    On a GPU a step is a CUDA graph, because launching its thousand kernels one at a time takes
    longer than computing them.
    """

    def __init__(
        self,
        network: Backbone,
        x_sup: Tensor,
        y_sup: Tensor,
        x_qry: Tensor,
        *classifier: Tensor,
        setting: Adaptation,
        amp: bool,
    ) -> None:
        self._network = network
        self._classifier = [tensor.requires_grad_() for tensor in classifier]
        self._x_sup, self._y_sup, self._x_qry = x_sup, y_sup, x_qry
        self._setting, self._amp, self._device = setting, amp, x_sup.device
        on_gpu = self._device.type == "cuda"
        self._optimizer = torch.optim.Adam(
            [*network.parameters(), *self._classifier],
            lr=setting.learning_rate,
            fused=on_gpu or None,
            capturable=on_gpu,
        )
        self._graph: torch.cuda.CUDAGraph | None = None

    def restart(self, *inputs: Tensor) -> bool:
        """Load another task; return False if its shape differs from the one before."""
        own = (self._x_sup, self._y_sup, self._x_qry, *self._classifier)
        if any(old.shape != new.shape for old, new in zip(own, inputs, strict=True)):
            return False
        with torch.no_grad():
            for old, new in zip(own, inputs, strict=True):
                old.copy_(new)
        self._reset_moments()
        return True

    def step(self) -> None:
        """Take a step."""
        _use_batch_statistics(self._network)
        if self._device.type != "cuda":
            self._step()
            return
        with torch.cuda.device(self._device):
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()

    @torch.no_grad()
    def predict_queries(self, *, running_statistics: bool = True) -> Tensor:
        """Return the log-probabilities of the queries, ``(1, query, class)``."""
        if running_statistics:
            self._network.eval()
        else:
            _use_batch_statistics(self._network)
        return self._predict(self._x_qry)[0]

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Capture a step as a graph; network and classifier are restored afterwards."""
        classifier = [tensor.detach() for tensor in self._classifier]
        changing = [*self._network.state_dict().values(), *classifier]
        before = [tensor.clone() for tensor in changing]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # PyTorch requires some steps before a capture
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        for tensor, value in zip(changing, before, strict=True):
            tensor.copy_(value)
        self._reset_moments()
        return graph

    def _reset_moments(self) -> None:
        """Reset Adam to its initial state."""
        for state in self._optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def _step(self) -> None:
        losses = self._setting.losses(self._predict, self._x_sup, self._y_sup, self._x_qry)
        for loss in losses:
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()

    def _predict(self, *batches: Tensor) -> list[Tensor]:
        # One context for all batches: within it PyTorch caches the parameters in bfloat16.
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._amp):
            features = [self._network(x) for x in batches]
        return [
            self._setting.log_posterior(z.to(x), self._classifier)
            for z, x in zip(features, batches, strict=True)
        ]


def _network_input(network: Backbone, images: Tensor) -> Tensor:
    """Prepare crops as extraction does, on the device and in the precision of the network."""
    like = next(network.parameters())
    return prepare_images(images.to(like.device), network.input_spec).to(like.dtype)


def _use_batch_statistics(network: Backbone) -> None:
    """Put batch normalisation into training mode, and all other layers into evaluation mode."""
    for module in network.modules():
        module.training = isinstance(module, _BatchNorm)
