r"""The state of TIM-ADM: samples of a task in blocks, over which a step computes sums.

On a CPU a task of many queries has several blocks, which threads share (``map_blocks``). The blocks
and the order of their sums depend on the number of queries only, so the result does not depend on
the number of threads. A step has two parts: each block gives its posterior and its term of
:math:`\sum_j p_{jk}^{1+\alpha}`; then, with the whole sum, its terms of a, b and c of
``tim_adm.py``.
"""

import dataclasses
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from infoshot.core.parallel import map_blocks
from infoshot.core.types import TaskBatch
from infoshot.solvers.solver import State

_LOG2_E = math.log2(math.e)
# Queries of a block, where there are several; threads disturb each other in small ones.
_LEAST_QUERIES = 2048


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive samples, the columns of ``basis``; the first ``n_sup`` are the support."""

    n_sup: int
    basis: Tensor  # tau times the Gram matrix [task, n, n], or the features [task, dim, sample]

    def select(self, keep: Tensor) -> "Block":
        """Return the block of some of the tasks, by mask."""
        return Block(self.n_sup, self.basis[keep])


@dataclass(eq=False)
class AdmState(State):
    """``weights`` are coefficients of the samples in the Gram form, else prototypes."""

    gram_form: bool
    blocks: tuple[Block, ...]  # one in the Gram form; the support is in the first
    weights: Tensor  # [task, class, n] or [task, class, dim]
    y_scaled: Tensor  # sigma * one-hot support labels, [task, class, support]
    y_count: Tensor  # its sum over the support, [task, class, 1]
    log_prior: Tensor | None  # [task, class, 1]
    balance: float | Tensor  # beta / (1 + beta), for all tasks or [task, 1, 1]

    def select(self, keep: Tensor) -> Self:
        """Return the state of some of the tasks, by mask."""
        blocks = tuple(block.select(keep) for block in self.blocks)
        return dataclasses.replace(super().select(keep), blocks=blocks)


@dataclass(frozen=True, eq=False)
class BlockPosterior:
    """The posterior of a block, with classes as rows."""

    block: Block
    log_p: Tensor  # of all samples
    log_q: Tensor  # of the queries: the posterior to the power 1 + alpha
    log_share: Tensor  # its log-sum over the queries, [task, class, 1]

    @classmethod
    def of(cls, block: Block, logits: Tensor, sharpness: float) -> "BlockPosterior":
        """Compute it from the scores; ``sharpness`` is 1 + alpha."""
        log_p = torch.log_softmax(logits, dim=1)
        log_q = log_p[:, :, block.n_sup :] * sharpness
        return cls(block, log_p, log_q, log_sum(log_q))

    def query_probabilities(self) -> Tensor:
        """Probabilities of the queries, ``(task, class, query)``."""
        return _exp(self.log_p[:, :, self.block.n_sup :])

    def sums(
        self, log_share: Tensor, y_scaled: Tensor, sigma: float, *, linearized: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over the samples: a, c without the support; and -b itself. Overwrites ``log_q``."""
        q = soft_labels(self.log_q, log_share)
        p = _exp(self.log_p)
        p_sup, p_qry = p[:, :, : self.block.n_sup], p[:, :, self.block.n_sup :]
        if self.block.n_sup:
            p_sup.mul_(sigma)
        a = p.sum(-1, keepdim=True)
        if not linearized:
            a, p = a.zero_(), p.zero_()
        if self.block.n_sup:
            p_sup.sub_(y_scaled)
        p_qry.sub_(q)
        return a, q.sum(-1, keepdim=True), p


def n_blocks(task: TaskBatch) -> int:
    """Return a power of two, so that two, four or eight threads get equal shares."""
    if task.z_qry.device.type != "cpu" or task.n_qry < 2 * _LEAST_QUERIES:
        return 1
    return 1 << ((task.n_qry // _LEAST_QUERIES).bit_length() - 1)


def gram_block(task: TaskBatch, tau: float) -> tuple[Block, ...]:
    """All samples as one block of the Gram form."""
    z = torch.cat((task.z_sup, task.z_qry), dim=1)
    return (Block(task.n_sup, torch.bmm(z, z.mT).mul_(tau)),)


def split_samples(task: TaskBatch) -> tuple[Block, ...]:
    """Split the features into blocks of queries; the support is in the first."""
    n = n_blocks(task)
    if n == 1:
        return (Block(task.n_sup, torch.cat((task.z_sup, task.z_qry), dim=1).mT),)

    def block(edges: tuple[int, int]) -> Block:
        first, end = edges
        z = task.z_qry[:, first:end]
        if first == 0:
            z = torch.cat((task.z_sup, z), dim=1)
        # Both products of a step are faster with contiguous coordinates than samples.
        return Block(task.n_sup if first == 0 else 0, z.mT.contiguous())

    edges = [task.n_qry * i // n for i in range(n + 1)]
    return tuple(map_blocks(block, tuple(pairwise(edges))))


def log_sum(log_q: Tensor) -> Tensor:
    """Logarithm of the sum over the queries, ``(task, class, 1)``."""
    top = log_q.amax(-1, keepdim=True)
    return _exp(log_q - top).sum(-1, keepdim=True).log_().add_(top)


def joint_log_share(state: AdmState, found: list[BlockPosterior]) -> Tensor:
    """Term that the q-step subtracts for each class, ``(task, class, 1)``, see [Q-STEP]."""
    whole = found[0].log_share
    if len(found) > 1:
        whole = torch.cat([part.log_share for part in found], dim=-1).logsumexp(-1, keepdim=True)
    if state.log_prior is not None:
        whole = whole - state.log_prior
    return whole * state.balance


def soft_labels(log_q: Tensor, log_share: Tensor) -> Tensor:
    """Soft labels of the queries, ``(task, class, query)``, see [Q-STEP]; overwrites ``log_q``."""
    return torch.softmax(log_q.sub_(log_share), dim=1)


def tim_loss_of_rows(
    log_p: Tensor,
    y_sup: Tensor,
    log_prior: Tensor | None,
    *,
    lam: float,
    beta: float | Tensor,
    alpha: float,
) -> Tensor:
    """``objective.tim_loss``, see [TIM], in half the time, of posteriors with classes as rows.

    The samples of ``log_p``, ``(task, class, sample)``, are the support, then the queries;
    ``log_prior`` has the shape ``(task, class, 1)``.
    """
    n_sup = y_sup.shape[1]
    log_p_sup, log_p_qry = log_p[:, :, :n_sup], log_p[:, :, n_sup:]
    p = _exp(log_p_qry)
    marginal = p.mean(-1)
    surplus = torch.special.entr(marginal).sum(-1)
    if log_prior is not None:
        surplus.add_(torch.linalg.vecdot(marginal, log_prior.squeeze(-1)))
    loss = log_p_sup.gather(1, y_sup.unsqueeze(1)).mean((1, 2)).mul_(-lam)
    return loss.sub_(surplus.mul_(beta)).sub_(
        p.mul_(log_p_qry).sum((1, 2)), alpha=alpha / p.shape[-1]
    )


def _exp(x: Tensor) -> Tensor:
    """Exponential through base 2, two to twenty times faster than PyTorch's exp on a CPU."""
    return (x * _LOG2_E).exp2_()
