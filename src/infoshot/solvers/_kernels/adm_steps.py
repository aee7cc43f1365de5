r"""All steps of TIM-ADM in one launch, a block of threads per task, in the Gram form.

The maths is that of ``tim_adm.py`` with N = \|S\| + \|Q\| samples, coefficients A of shape (K, N)
and G the Gram matrix times tau. A step is

.. math:: s = A G, \quad \ell_{ki} = s_{ki} - \tfrac12 \langle A_k, s_k \rangle, \quad
          A_k \leftarrow \frac{a_k A_k + b_k}{c_k}

with p the softmax of the logits over classes and a, b, c made of p and the soft labels q. Only A
leaves the chip, once: G, A and the labels stay in registers for all steps, where the plain code
reads G from memory in each. Classes are rows; rows and columns that only fill up to a power of two
have a probability, a coefficient and a weight of zero.

How A G is taken: ``"tf32x3"`` and ``"ieee"`` as in ``blocks.py``, and since G is symmetric as
(G A^T)^T, so that samples fill the tensor cores' long side and the few classes their short one. It
keeps both parts of G in shared memory, which smaller GPUs do not have. ``"fma"``: class by class in
float32 on the ordinary units, with G in registers.
"""

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from infoshot.solvers._kernels.blocks import log_sum, product, softmax

Arithmetic = Literal["fma", "tf32x3", "ieee"]


def adm_steps(
    gram: Tensor,
    coefficients: Tensor,
    y_scaled: Tensor,
    y_count: Tensor,
    log_prior: Tensor | None,
    balance: float | Tensor,
    *,
    n_steps: int,
    sharpness: float,
    sigma: float,
    step_size: float,
    linearized: bool,
    arithmetic: Arithmetic = "fma",
    num_warps: int = 2,
) -> None:
    """Take steps of TIM-ADM; ``coefficients`` are written over. Float32 throughout.

    Parameters
    ----------
    gram
        Tau times the Gram matrix, shape ``(task, n, n)``.
    coefficients
        Of the samples in the class weights, shape ``(task, class, n)``, contiguous.
    y_scaled, y_count, log_prior, balance
        As in ``AdmState``.
    sharpness
        1 + alpha.
    sigma
        Weight of a support sample when a query weighs one.
    step_size, linearized
        As in ``TimAdm``.
    arithmetic, num_warps
        How a block works, see the module; the result is the same up to rounding.
    """
    n_tasks, n_way, n = coefficients.shape
    if log_prior is None:
        log_prior = torch.zeros_like(y_count)
    if not isinstance(balance, Tensor):
        balance = y_count.new_full((n_tasks,), balance)
    columns = max(16, triton.next_power_of_2(n))
    with torch.cuda.device_of(gram):
        _adm_kernel[(n_tasks,)](
            gram.contiguous(),
            coefficients,
            y_scaled.contiguous(),
            y_count.contiguous(),
            log_prior.contiguous(),
            balance.contiguous(),
            n_steps,
            n,
            y_scaled.shape[-1],
            float(sharpness),
            float(sigma),
            float(step_size),
            K=n_way,
            ROWS=max(8, triton.next_power_of_2(n_way)),
            COLUMNS=columns,
            LINEARIZED=linearized,
            GUARDED=sigma == 0,
            PRODUCT=arithmetic,
            num_warps=num_warps,
        )


@triton.jit(do_not_specialize=["n_steps", "n", "n_sup"])
def _adm_kernel(
    gram_ptr: tl.tensor,
    coefficients_ptr: tl.tensor,
    y_scaled_ptr: tl.tensor,
    y_count_ptr: tl.tensor,
    log_prior_ptr: tl.tensor,
    balance_ptr: tl.tensor,
    n_steps: tl.tensor,
    n: tl.tensor,
    n_sup: tl.tensor,
    sharpness: tl.tensor,
    sigma: tl.tensor,
    step_size: tl.tensor,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    LINEARIZED: tl.constexpr,
    GUARDED: tl.constexpr,
    PRODUCT: tl.constexpr,
):
    """Take all steps of one task."""
    task = tl.program_id(0).to(tl.int64)
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    gram = _load_gram(gram_ptr, task, n, COLUMNS)
    own = coefficients_ptr + task * K * n + row * n + column
    real = (row < K) & (column < n)
    coefficients = tl.load(own, mask=real, other=0.0)
    y = tl.load(
        y_scaled_ptr + task * K * n_sup + row * n_sup + column,
        mask=(row < K) & (column < n_sup),
        other=0.0,
    )
    # A row that fills up counts one, so that nothing is divided by zero.
    y_count = tl.load(y_count_ptr + task * K + row, mask=row < K, other=1.0)
    log_prior = tl.load(log_prior_ptr + task * K + row, mask=row < K, other=0.0)
    balance = tl.load(balance_ptr + task)
    is_query = (column >= n_sup) & (column < n)
    weight = tl.where(is_query, 1.0, tl.where(column < n_sup, sigma, 0.0))
    for _ in range(n_steps):
        scores = _scores(gram, coefficients, K, ROWS, PRODUCT)
        norm = tl.sum(coefficients * scores, 1, keep_dims=True)
        logits = tl.where(row < K, scores - 0.5 * norm, float("-inf"))
        p, log_p = softmax(logits)
        log_q = tl.where(row < K, log_p * sharpness, 0.0)
        q = _soft_labels(log_q, log_prior, balance, is_query, row < K)
        # a, b and c of the module's docstring.
        p *= weight
        c = tl.sum(q, 1, keep_dims=True) + y_count
        b = y + q
        keep = tl.zeros_like(c)
        if LINEARIZED:
            keep = tl.sum(p, 1, keep_dims=True) / c * step_size
            b -= p
        share = step_size / c
        keep += 1.0 - step_size
        if GUARDED:  # a class without queries or support stays where it is
            keep, share = tl.where(c > 0, keep, 1.0), tl.where(c > 0, share, 0.0)
        coefficients = coefficients * keep + b * share
    tl.store(own, coefficients, mask=real)


@triton.jit
def _load_gram(gram_ptr: tl.tensor, task: tl.tensor, n: tl.tensor, SIZE: tl.constexpr):
    """Load the Gram matrix of a task, zeros around it.

    The compiler knows no factor of n, so it cannot load four numbers at a time and gives whole
    columns to threads: sums over a column, of ``"fma"``, then pass between few threads or none.
    """
    row, column = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    inside = (row < n) & (column < n)
    return tl.load(gram_ptr + task * n * n + row * n + column, mask=inside, other=0.0)


@triton.jit
def _scores(
    gram: tl.tensor,
    coefficients: tl.tensor,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    PRODUCT: tl.constexpr,
):
    """Coefficients times the Gram matrix, see the module."""
    if PRODUCT == "fma":
        row = tl.arange(0, ROWS)[:, None]
        scores = tl.zeros_like(coefficients)
        for k in tl.static_range(K):
            one = tl.sum(tl.where(row == k, coefficients, 0.0), 0)
            scores = tl.where(row == k, tl.sum(one[:, None] * gram, 0)[None, :], scores)
    else:
        zeros = tl.zeros((gram.shape[0], ROWS), tl.float32)
        scores = tl.trans(product(gram, tl.trans(coefficients), zeros, PRODUCT))
    return scores


@triton.jit
def _soft_labels(
    log_q: tl.tensor,
    log_prior: tl.tensor,
    balance: tl.tensor,
    is_query: tl.tensor,
    is_class: tl.tensor,
):
    """Soft labels of the queries, zero elsewhere, see [Q-STEP]."""
    log_share = log_sum(log_q, is_query) - log_prior
    q, _ = softmax(tl.where(is_class, log_q - balance * log_share, float("-inf")))
    return tl.where(is_query, q, 0.0)
