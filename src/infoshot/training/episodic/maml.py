r"""MAML, first-order: the whole network takes gradient steps on the support of each task.

It learns parameters from which a few steps of gradient descent on a handful of images give a good
classifier. A task starts from the learnt parameters :math:`\theta` of the backbone and of a linear
classifier, and takes steps on the cross-entropy of its support,

.. math:: \phi_0 = \theta, \qquad \phi_{t+1} = \phi_t - \eta \, \nabla_\phi L_S(\phi_t)

with :math:`\eta = 0.01`, 5 steps in training and 10 at test time. Training minimises the
cross-entropy of the queries with the adapted parameters, :math:`L_Q(\phi_T)`.

*First-order.* The exact gradient by :math:`\theta` contains second derivatives of :math:`L_S`. Here
:math:`\phi_T = \theta + \Delta` with a constant displacement :math:`\Delta`, so that the gradient
at the adapted parameters is applied to the initial ones,

.. math:: \nabla_\theta L_Q \approx \nabla_\phi L_Q(\phi_T)

What is learnt: all parameters of the backbone, and the weights and biases of a classifier for
``n_way`` classes. The number of ways is therefore fixed, and the answer depends on which class is
called 0.

Batch normalisation uses the statistics of the batch, in training and at test time: of the support
in the inner steps, of the queries when they are classified. The prediction of a query thus depends
on the other queries of its task (``transductive``), although tables list MAML as inductive. Those
of training are balanced, and imbalanced ones reduce its accuracy. Running statistics of the
backbone are neither read nor written.

Cost: one pass forward and back through the network over the support per step and task, and one pass
over the queries. Tasks are adapted one after another.

Reference: C. Finn, P. Abbeel, S. Levine. Model-Agnostic Meta-Learning for Fast Adaptation of Deep
Networks. ICML 2017; settings and batch normalisation of W.-Y. Chen, Y.-C. Liu, Z. Kira,
Y.-C. F. Wang, J.-B. Huang. A Closer Look at Few-shot Classification. ICLR 2019.

What differs from the original: Finn et al. also have the exact gradient; both papers report nearly
the same accuracy with the first-order one, which Chen et al. use. Chen et al. take 5 steps at test
time, Finn et al. 10. The loss is the mean over tasks, theirs the sum, which makes no difference to
Adam.
"""

import copy
from collections.abc import Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, replace_all_batch_norm_modules_
from torch.nn.functional import cross_entropy

from infoshot.backbones import Backbone
from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.solvers.method import Assumption
from infoshot.training.episodic.fixed_ways import check_n_way
from infoshot.training.episodic.head import Head, Input

Parameters = Mapping[str, Tensor]


@final
class Maml(Head):
    """First-order MAML over a backbone and a linear classifier.

    The head gets its backbone from :meth:`attach`, which the training loop and the loader of a
    trained system call once. The head's own parameters are those of the classifier only.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`; base classes are not used.
    n_way
        Number of classes of every task.
    n_train_steps, n_test_steps
        Gradient steps on the support, in training mode and in evaluation mode.
    step_size
        Step size of these steps.
    """

    reads: ClassVar[Input] = "images"
    transductive: ClassVar[bool] = True  # by the batch statistics of the queries
    assumes: ClassVar[tuple[Assumption, ...]] = ("balance",)

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        n_way: int = 5,
        n_train_steps: int = 5,
        n_test_steps: int = 10,
        step_size: float = 0.01,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.at_least("n_way", n_way, 2)
        checks.at_least("n_train_steps", n_train_steps, 1)
        checks.at_least("n_test_steps", n_test_steps, 1)
        checks.positive("step_size", step_size)
        self.n_way, self.step_size = n_way, step_size
        self.n_train_steps, self.n_test_steps = n_train_steps, n_test_steps
        self.classifier = nn.Linear(dim, n_way)
        nn.init.zeros_(self.classifier.bias)
        # In a tuple, so that the parameters of the backbone do not become those of the head.
        self._attached: tuple[Backbone, nn.Module] | None = None

    def attach(self, backbone: Backbone) -> None:
        """Use a backbone, whose parameters are read anew for every task."""
        # The layers without values; batch normalisation then has no running statistics.
        layers = copy.deepcopy(nn.Sequential(backbone, self.classifier)).to("meta")
        self._attached = backbone, replace_all_batch_norm_modules_(layers)

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Adapt the network to the support of each task and classify its queries.

        ``z_sup`` and ``z_qry`` are normalised images. Gradients by the learnt parameters are the
        first-order ones.
        """
        check_n_way(n_way, self.n_way)
        backbone, layers = self._network()
        layers.train(self.training)  # for dropout; batch normalisation does not depend on it
        learnt = dict(nn.Sequential(backbone, self.classifier).named_parameters())
        scores = []
        for x_sup, y, x_qry in zip(z_sup, y_sup, z_qry, strict=True):
            displacement = self._descend(layers, learnt, x_sup, y)
            adapted = {name: learnt[name] + displacement[name] for name in learnt}
            scores.append(functional_call(layers, adapted, (x_qry,)))
        return torch.log_softmax(torch.stack(scores), dim=-1)

    def _descend(self, layers: nn.Module, learnt: Parameters, x: Tensor, y: Tensor) -> Parameters:
        """Return the sum of the steps on the support, a constant for the outer gradient."""
        # Tasks are solved where gradients are disabled; the steps need them.
        with torch.inference_mode(False), torch.enable_grad():
            total = {name: torch.zeros_like(value) for name, value in learnt.items()}
            x, y = x.clone(), y.clone()
            for _ in range(self.n_train_steps if self.training else self.n_test_steps):
                current = {
                    name: (value + total[name]).detach().requires_grad_()
                    for name, value in learnt.items()
                }
                loss = cross_entropy(functional_call(layers, current, (x,)), y)
                gradients = torch.autograd.grad(loss, list(current.values()))
                for step, gradient in zip(total.values(), gradients, strict=True):
                    step -= self.step_size * gradient
        return total

    def _network(self) -> tuple[Backbone, nn.Module]:
        if self._attached is None:
            raise InvalidArgumentError(
                "MAML adapts the backbone, which it does not have; call attach(backbone) first."
            )
        return self._attached
