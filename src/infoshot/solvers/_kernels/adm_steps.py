r"""All steps of TIM-ADM in one launch, one thread block per task, in the Gram form.

The mathematics is that of ``tim_adm.py`` with N = \|S\| + \|Q\| samples, coefficients A of shape
(K, N) and G the Gram matrix times tau. A step is

.. math:: s = A G, \quad \ell_{ki} = s_{ki} - \tfrac12 \langle A_k, s_k \rangle, \quad
          A_k \leftarrow \frac{a_k A_k + b_k}{c_k}

with p the softmax of the logits over classes and a, b, c computed from p and the soft labels q. G,
A and the labels stay in registers for all steps, and only A is written, once; the PyTorch steps
read G from memory in each step. Classes are rows; rows and columns that pad to a power of two have
a probability, a coefficient and a weight of zero.

A G is computed class by class in float32 on the ordinary units. Tensor cores were slower, see
``docs/performance.md``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from infoshot.solvers._kernels.blocks import log_sum, softmax

_WARPS = 2


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
) -> None:
    """Take steps of TIM-ADM; overwrites ``coefficients``. Float32 throughout.

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
        Weight of a support sample relative to a query.
    step_size, linearized
        As in ``TimAdm``.
    """
    n_tasks, n_way, n = coefficients.shape
    if log_prior is None:
        log_prior = torch.zeros_like(y_count)
    if not isinstance(balance, Tensor):
        balance = y_count.new_full((n_tasks,), balance)
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
            COLUMNS=max(16, triton.next_power_of_2(n)),
            LINEARIZED=linearized,
            GUARDED=sigma == 0,
            num_warps=_WARPS,
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
    # A padding row has a count of one, which avoids division by zero.
    y_count = tl.load(y_count_ptr + task * K + row, mask=row < K, other=1.0)
    log_prior = tl.load(log_prior_ptr + task * K + row, mask=row < K, other=0.0)
    balance = tl.load(balance_ptr + task)
    is_query = (column >= n_sup) & (column < n)
    weight = tl.where(is_query, 1.0, tl.where(column < n_sup, sigma, 0.0))
    for _ in range(n_steps):
        scores = _scores(gram, coefficients, K, ROWS)
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
        if GUARDED:  # a class without queries keeps its coefficients
            keep, share = tl.where(c > 0, keep, 1.0), tl.where(c > 0, share, 0.0)
        coefficients = coefficients * keep + b * share
    tl.store(own, coefficients, mask=real)


@triton.jit
def _load_gram(gram_ptr: tl.tensor, task: tl.tensor, n: tl.tensor, SIZE: tl.constexpr):
    """Load the Gram matrix of a task, padded with zeros.

    The compiler does not know the divisors of n, so it does not vectorise the loads and gives whole
    columns to threads; the sums over columns in ``_scores`` then need few exchanges or none.
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
):
    """Coefficients times the Gram matrix, class by class."""
    row = tl.arange(0, ROWS)[:, None]
    scores = tl.zeros_like(coefficients)
    for k in tl.static_range(K):
        one = tl.sum(tl.where(row == k, coefficients, 0.0), 0)
        scores = tl.where(row == k, tl.sum(one[:, None] * gram, 0)[None, :], scores)
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
