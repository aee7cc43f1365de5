r"""The interface of a few-shot system: a head that classifies the queries of tasks.

A system is a backbone with a *head*. The head is a ``torch.nn.Module`` that sees what the backbone
computes for the support and the queries of a batch of tasks, and returns log-probabilities of the
queries. During training the tasks are *episodes*: tasks of the base classes, whose query labels the
loss uses. A head must define

- ``log_posterior(z_sup, y_sup, z_qry, n_way)``: log-probabilities of the queries,

and may define ``loss``, whose default is the cross-entropy of the queries, and ``attach``, if it
needs the network itself. Its constructor takes the number of channels and of base classes; further
arguments are hyperparameters, keyword-only, with the published defaults. A complete head::

    class NearestMean(Head):
        def log_posterior(self, z_sup, y_sup, z_qry, n_way):
            means = class_means(z_sup, y_sup, n_way)
            return torch.log_softmax(-torch.cdist(z_qry, means).square(), dim=-1)

Heads do not normalise silently, read files, draw global random numbers at test time, or see query
labels outside ``loss``. Everything is batched over tasks, and a batch equals a loop over its tasks.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn.functional import nll_loss

from infoshot.backbones import Backbone
from infoshot.solvers.method import Assumption
from infoshot.solvers.objective import class_means

Input = Literal["vectors", "maps", "images"]
"""What a head sees of an image: its feature vector, its feature map, or the image itself."""


@dataclass(frozen=True, eq=False)
class Episodes:
    """A batch of episodes: tasks of base classes with the labels of their queries.

    Parameters
    ----------
    z_sup
        What the head sees of the support: vectors ``(task, support, dim)``, maps ``(task, support,
        channel, height, width)``, or normalised images ``(task, support, 3, height, width)``.
    y_sup
        Support labels from 0 to ``n_way - 1``, shape ``(task, support)``.
    z_qry
        The same as ``z_sup`` for the queries.
    y_qry
        Query labels, shape ``(task, query)``.
    classes
        The base class of each of the ways, counted from 0, shape ``(task, n_way)``.
    """

    z_sup: Tensor
    y_sup: Tensor
    z_qry: Tensor
    y_qry: Tensor
    classes: Tensor

    @property
    def n_way(self) -> int:
        """Number of classes of a task."""
        return self.classes.shape[1]


class Head(nn.Module, ABC):
    """Classifies the queries of tasks from what a backbone computes.

    Parameters
    ----------
    dim
        Number of channels of the backbone's output, the width of its feature vectors.
    n_base_classes
        Number of base classes, for losses over all of them.
    """

    reads: ClassVar[Input] = "vectors"
    transductive: ClassVar[bool] = False  # whether it uses all queries together
    assumes: ClassVar[tuple[Assumption, ...]] = ()  # about the queries: keys of ``ASSUMPTIONS``

    def __init__(self, dim: int, n_base_classes: int) -> None:
        super().__init__()
        self.dim, self.n_base_classes = dim, n_base_classes

    def attach(self, backbone: Backbone) -> None:
        """Receive the backbone, before the first task and once after a system is read from a file.

        Only heads that read images and change the network for each task need it; others ignore it.
        A head that keeps the backbone does not register it as a submodule, so that its parameters
        are saved once, with the backbone.
        """

    @abstractmethod
    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``.

        Shots may be unequal, but every class has an example.
        """

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Return the training loss, averaged over tasks and queries, and the log-probabilities.

        Default: the cross-entropy of the queries.
        """
        log_p = self.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.n_way)
        return query_cross_entropy(log_p, episodes.y_qry), log_p

    def prototypes(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Return class weights for ``Solution.prototypes``: by default the means of the support.

        Only heads that read vectors are asked for them.
        """
        return class_means(z_sup, y_sup, n_way)


def query_cross_entropy(log_p: Tensor, y_qry: Tensor) -> Tensor:
    """Return the mean cross-entropy of the queries of all tasks, a scalar."""
    return nll_loss(log_p.flatten(0, 1), y_qry.flatten())
