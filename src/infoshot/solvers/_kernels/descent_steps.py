r"""All steps of TIM-GD in one launch, a block of threads per task.

The maths is that of ``descent.py`` with Shannon's entropy and of ``adam.py``. A step is two
products with the features z, of shape (N, d): the logits take :math:`w z^\top`, the gradient over
the weights takes :math:`g z` with g the gradient over the logits. Features of a task do not fit on
a multiprocessor, but those of all tasks at work fit into the second-level cache or nearly so. Each
step reads them from there *once*: block of coordinates by block, the gradient of the block moves
its weights, and the moved weights at once give the block's part of the next step's logits, which
is possible because Adam works per coordinate. The plain code reads them twice, from memory.

The weights and Adam's two means of a task, a seventh of its features for five classes and a hundred
samples, are read and written in place in every step; nothing else leaves the chip. Classes are
rows; rows and columns that only fill up to a power of two have a probability and a gradient of
zero.

Products are ``"tf32x3"`` or ``"ieee"`` as in ``blocks.py``. Both are written with the features on
the left, so that samples or coordinates fill the tensor cores' long side and the few classes their
short one. Tensor cores cut sums off instead of rounding them, so the sums over blocks of
coordinates are added up outside.
"""

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from infoshot.solvers._kernels.blocks import log_sum, product, softmax
from infoshot.solvers.adam import BETA1, BETA2

Arithmetic = Literal["tf32x3", "ieee"]


def descent_steps(
    z: Tensor,
    y: Tensor,
    weights: Tensor,
    mean: Tensor,
    square: Tensor,
    log_prior: Tensor | None,
    rates: Tensor,
    *,
    temperature: float,
    cross_entropy_weight: float,
    marginal_entropy_weight: float,
    conditional_entropy_weight: float,
    arithmetic: Arithmetic = "tf32x3",
    num_warps: int = 8,
    block: int = 128,
    num_stages: int = 1,
) -> None:
    """Take steps of TIM-GD; ``weights``, ``mean`` and ``square`` are written over. All float32.

    Parameters
    ----------
    z
        Support and queries, shape ``(task, sample, dim)``.
    y
        One-hot support labels, shape ``(task, class, support)``.
    weights, mean, square
        As in ``AdamState``, shape ``(task, class, dim)``, contiguous.
    log_prior
        Shape ``(task, class, 1)``.
    rates
        Of every step its rate and epsilon, shape ``(step, 2)``, see ``adam.corrected``.
    temperature, cross_entropy_weight, marginal_entropy_weight, conditional_entropy_weight
        As in ``TimGd``.
    arithmetic, num_warps, block, num_stages
        How a block works, how many coordinates it takes at a time, and how many such blocks of
        coordinates are on their way at once; the result is the same up to rounding.
    """
    (n_tasks, n, dim), (_, n_way, n_sup) = z.shape, y.shape
    if log_prior is None:
        log_prior = z.new_zeros(n_tasks, n_way)
    scale = temperature / (n - n_sup)
    with torch.cuda.device_of(z):
        _descent_kernel[(n_tasks,)](
            z.contiguous(),
            y.contiguous(),
            weights,
            mean,
            square,
            log_prior.contiguous(),
            rates,
            len(rates),
            n,
            n_sup,
            dim,
            float(temperature),
            temperature * cross_entropy_weight / n_sup,
            scale * marginal_entropy_weight,
            scale * conditional_entropy_weight,
            1 - BETA1,
            BETA2,
            1 - BETA2,
            K=n_way,
            ROWS=max(8, triton.next_power_of_2(n_way)),
            COLUMNS=max(16, triton.next_power_of_2(n)),
            BLOCK=block,
            PRODUCT=arithmetic,
            num_warps=num_warps,
            num_stages=num_stages,
        )


@triton.jit(do_not_specialize=["n_steps", "n", "n_sup"])
def _descent_kernel(
    z_ptr: tl.tensor,
    y_ptr: tl.tensor,
    weights_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    square_ptr: tl.tensor,
    log_prior_ptr: tl.tensor,
    rates_ptr: tl.tensor,
    n_steps: tl.tensor,
    n: tl.tensor,
    n_sup: tl.tensor,
    dim: tl.tensor,
    temperature: tl.tensor,
    of_support: tl.tensor,
    of_marginal: tl.tensor,
    of_each: tl.tensor,
    gain1: tl.tensor,
    decay2: tl.tensor,
    gain2: tl.tensor,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRODUCT: tl.constexpr,
):
    """Take all steps of one task."""
    task = tl.program_id(0).to(tl.int64)
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    z_ptr += task * n * dim
    weights_ptr += task * K * dim
    mean_ptr += task * K * dim
    square_ptr += task * K * dim
    y = tl.load(
        y_ptr + task * K * n_sup + row * n_sup + column,
        mask=(row < K) & (column < n_sup),
        other=0.0,
    )
    log_prior = tl.load(log_prior_ptr + task * K + row, mask=row < K, other=0.0)
    scores = tl.zeros((COLUMNS, ROWS), tl.float32)
    norms = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, dim, BLOCK):
        z = _load_block(z_ptr, start, n, dim, COLUMNS, BLOCK)
        w = _load_block(weights_ptr, start, K, dim, ROWS, BLOCK)
        scores += product(z, tl.trans(w), tl.zeros_like(scores), PRODUCT)
        norms += w * w
    for step in range(n_steps):
        norm = tl.sum(norms, 1, keep_dims=True)
        logits = temperature * (tl.trans(scores) - 0.5 * norm)
        g = _logit_gradient(
            logits, y, log_prior, n, n_sup, of_support, of_marginal, of_each, row < K, column
        )
        total = tl.sum(g, 1, keep_dims=True)
        rate, epsilon = tl.load(rates_ptr + 2 * step), tl.load(rates_ptr + 2 * step + 1)
        scores = tl.zeros((COLUMNS, ROWS), tl.float32)
        norms = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, dim, BLOCK):
            z = _load_block(z_ptr, start, n, dim, COLUMNS, BLOCK)
            w = _load_block(weights_ptr, start, K, dim, ROWS, BLOCK)
            mean = _load_block(mean_ptr, start, K, dim, ROWS, BLOCK)
            square = _load_block(square_ptr, start, K, dim, ROWS, BLOCK)
            gradient = product(tl.trans(z), tl.trans(g), tl.trans(-total * w), PRODUCT)
            gradient = tl.trans(gradient)
            mean += gain1 * (gradient - mean)
            square = decay2 * square + gain2 * gradient * gradient
            w -= rate * mean / (tl.sqrt(square) + epsilon)
            _store_block(weights_ptr, w, start, K, dim, ROWS, BLOCK)
            _store_block(mean_ptr, mean, start, K, dim, ROWS, BLOCK)
            _store_block(square_ptr, square, start, K, dim, ROWS, BLOCK)
            scores += product(z, tl.trans(w), tl.zeros_like(scores), PRODUCT)
            norms += w * w
        tl.debug_barrier()  # what was written is read by other threads in the next step


@triton.jit
def _load_block(
    ptr: tl.tensor,
    start: tl.tensor,
    n_rows: tl.tensor,
    dim: tl.tensor,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Load a block of coordinates of all rows, zeros around it."""
    row, column = tl.arange(0, ROWS)[:, None], start + tl.arange(0, BLOCK)[None, :]
    return tl.load(ptr + row * dim + column, mask=(row < n_rows) & (column < dim), other=0.0)


@triton.jit
def _store_block(
    ptr: tl.tensor,
    values: tl.tensor,
    start: tl.tensor,
    n_rows: tl.tensor,
    dim: tl.tensor,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store what ``_load_block`` loads."""
    row, column = tl.arange(0, ROWS)[:, None], start + tl.arange(0, BLOCK)[None, :]
    tl.store(ptr + row * dim + column, values, mask=(row < n_rows) & (column < dim))


@triton.jit
def _logit_gradient(
    logits: tl.tensor,
    y: tl.tensor,
    log_prior: tl.tensor,
    n: tl.tensor,
    n_sup: tl.tensor,
    of_support: tl.tensor,
    of_marginal: tl.tensor,
    of_each: tl.tensor,
    is_class: tl.tensor,
    column: tl.tensor,
):
    """Tau times the gradient over the logits, zero for samples and classes that only fill up."""
    is_query = (column >= n_sup) & (column < n)
    p, log_p = softmax(tl.where(is_class, logits, float("-inf")))
    log_p = tl.where(is_class, log_p, 0.0)
    u = of_marginal * (log_sum(log_p, is_query) - log_prior) - of_each * log_p
    g_query = p * (u - tl.sum(p * u, 0, keep_dims=True))
    g_support = (p - y) * of_support
    return tl.where(is_query, g_query, tl.where(column < n_sup, g_support, 0.0))
