r"""All steps of TIM-GD in one launch, one thread block per task.

The mathematics is that of ``descent.py`` with Shannon's entropy and of ``adam.py``. A step is two
products with the features z, of shape (N, d): the logits take :math:`w z^\top`, the gradient over
the weights takes :math:`g z` with g the gradient over the logits. The features of a task do not fit
into a multiprocessor, but those of all running tasks nearly fit into the second-level cache. Each
step reads them *once*, in blocks of coordinates: the gradient of a block updates its weights, and
the new weights immediately give the block's part of the next logits. This is possible because Adam
works per coordinate. The PyTorch steps read the features twice, from memory.

The weights and Adam's two means of a task, a seventh of its features for five classes and a hundred
samples, are read and written in place in every step; all other values stay on the chip. Classes are
rows; rows and columns that pad to a power of two have a probability and a gradient of zero.

Products run on the tensor cores, which use the first 11 of float32's 24 bits of precision: every
number is split into a part of 11 bits and a remainder, and three of the four products of parts are
summed in float32. The omitted one is 2^-22 of a term, less than the rounding of the sum. The
features are the left factor, so that samples or coordinates fill the tensor cores' long side and
the few classes their short one. Tensor cores truncate sums instead of rounding them, so the sums
over blocks of coordinates are added outside.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from infoshot.solvers._kernels.blocks import log_sum, softmax
from infoshot.solvers.adam import BETA1, BETA2

_WARPS, _BLOCK = 8, 128  # coordinates at a time


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
) -> None:
    """Take steps of TIM-GD; overwrites ``weights``, ``mean`` and ``square``. All float32.

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
        Rate and epsilon of every step, shape ``(step, 2)``, see ``adam.corrected``.
    temperature, cross_entropy_weight, marginal_entropy_weight, conditional_entropy_weight
        As in ``TimGd``.
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
            BLOCK=_BLOCK,
            num_warps=_WARPS,
            num_stages=1,
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
        scores += _product(z, tl.trans(w), tl.zeros_like(scores))
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
            gradient = _product(tl.trans(z), tl.trans(g), tl.trans(-total * w))
            gradient = tl.trans(gradient)
            mean += gain1 * (gradient - mean)
            square = decay2 * square + gain2 * gradient * gradient
            w -= rate * mean / (tl.sqrt(square) + epsilon)
            _store_block(weights_ptr, w, start, K, dim, ROWS, BLOCK)
            _store_block(mean_ptr, mean, start, K, dim, ROWS, BLOCK)
            _store_block(square_ptr, square, start, K, dim, ROWS, BLOCK)
            scores += _product(z, tl.trans(w), tl.zeros_like(scores))
            norms += w * w
        tl.debug_barrier()  # other threads read these values in the next step


@triton.jit
def _load_block(
    ptr: tl.tensor,
    start: tl.tensor,
    n_rows: tl.tensor,
    dim: tl.tensor,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Load a block of coordinates of all rows, padded with zeros."""
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
    """Store a block of coordinates of all rows."""
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
    """Tau times the gradient over the logits, zero for padding samples and classes."""
    is_query = (column >= n_sup) & (column < n)
    p, log_p = softmax(tl.where(is_class, logits, float("-inf")))
    log_p = tl.where(is_class, log_p, 0.0)
    u = of_marginal * (log_sum(log_p, is_query) - log_prior) - of_each * log_p
    g_query = p * (u - tl.sum(p * u, 0, keep_dims=True))
    g_support = (p - y) * of_support
    return tl.where(is_query, g_query, tl.where(column < n_sup, g_support, 0.0))


@triton.jit
def _product(a: tl.tensor, b: tl.tensor, c: tl.tensor):
    """Matrix product a b + c to the precision of float32, see the module."""
    a_big, a_small = _split(a)
    b_big, b_small = _split(b)
    c = tl.dot(a_small, b_big, c, input_precision="tf32")
    c = tl.dot(a_big, b_small, c, input_precision="tf32")
    return tl.dot(a_big, b_big, c, input_precision="tf32")


@triton.jit
def _split(x: tl.tensor):
    """Split a number into the nearest one of 11 bits of precision, and the remainder."""
    bits = x.to(tl.int32, bitcast=True)
    big = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return big, x - big
