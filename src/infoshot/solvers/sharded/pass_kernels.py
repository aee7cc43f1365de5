"""Triton kernels for what lies between the products of sharded TIM-ADM, see ``half.py``.

Each program processes a subset of the rows and keeps its sums in registers; the sums of all
programs are added in float64. Columns that pad to a power of two have a probability of zero.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from infoshot.solvers.sharded.passes import Classifier

SCALE = 4096.0  # factor on the differences that are stored in float16
_PROGRAMS, _TILE = 2112, 8192  # sixteen per multiprocessor of an H200; numbers at a time


def power_sums(products: Tensor, scales: Tensor, classifier: Classifier, power: float) -> Tensor:
    """Sum of the posterior to a power over the rows, float64, ``(class,)``."""
    n_rows, n_classes = products.shape
    columns = triton.next_power_of_2(n_classes)
    sums = products.new_empty(_PROGRAMS, n_classes)
    with torch.cuda.device_of(products):
        _power_sums_kernel[(_PROGRAMS,)](
            products,
            scales,
            classifier.offset,
            classifier.bias,
            sums,
            n_rows,
            n_classes,
            float(power),
            COLUMNS=columns,
            ROWS=max(1, _TILE // columns),
            num_warps=4,
        )
    return sums.sum(0, dtype=torch.float64)


def differences(
    products: Tensor, scales: Tensor, classifier: Classifier, power: float, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """Soft labels minus posterior, and the sums of both over the rows.

    Returns
    -------
    Differences times ``SCALE`` and the scale of their row, float16, ``(row, class)``; sums
    of p and of q, float64, ``(class, 2)``.
    """
    n_rows, n_classes = products.shape
    columns = triton.next_power_of_2(n_classes)
    moved = torch.empty_like(products, dtype=torch.float16)
    sums = products.new_empty(_PROGRAMS, 2, n_classes)
    with torch.cuda.device_of(products):
        _differences_kernel[(_PROGRAMS,)](
            products,
            scales,
            classifier.offset,
            classifier.bias,
            shift,
            moved,
            sums,
            n_rows,
            n_classes,
            float(power),
            SCALE,
            COLUMNS=columns,
            ROWS=max(1, _TILE // columns),
            num_warps=4,
        )
    return moved, sums.sum(0, dtype=torch.float64).T


@triton.jit
def _power_sums_kernel(
    products_ptr: tl.tensor,
    scales_ptr: tl.tensor,
    offset_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    n_rows: tl.tensor,
    n_classes: tl.tensor,
    power: tl.tensor,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Sum the posterior to a power over the rows of one program."""
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, COLUMNS)[None, :]
    is_class = column < n_classes
    offset = tl.load(offset_ptr + column, mask=is_class, other=0.0)
    bias = tl.load(bias_ptr + column, mask=is_class, other=float("-inf"))
    total = tl.zeros((1, COLUMNS), tl.float32)
    for first in range(program * ROWS, n_rows, n_programs * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        x, _ = _exponents(products_ptr, scales_ptr, offset, bias, row, column, n_rows, n_classes)
        log_sum = tl.log2(tl.sum(tl.exp2(x), 1, keep_dims=True))
        powers = tl.exp2(power * (x - log_sum))
        total += tl.sum(tl.where(row < n_rows, powers, 0.0), 0, keep_dims=True)
    tl.store(sums_ptr + program * n_classes + column, total, mask=is_class)


@triton.jit
def _differences_kernel(
    products_ptr: tl.tensor,
    scales_ptr: tl.tensor,
    offset_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    shift_ptr: tl.tensor,
    moved_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    n_rows: tl.tensor,
    n_classes: tl.tensor,
    power: tl.tensor,
    scale: tl.tensor,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Soft labels minus posterior of the rows of one program, and the sums of both."""
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, COLUMNS)[None, :]
    is_class = column < n_classes
    offset = tl.load(offset_ptr + column, mask=is_class, other=0.0)
    bias = tl.load(bias_ptr + column, mask=is_class, other=float("-inf"))
    shift = tl.load(shift_ptr + column, mask=is_class, other=0.0)
    p_total = tl.zeros((1, COLUMNS), tl.float32)
    q_total = tl.zeros((1, COLUMNS), tl.float32)
    for first in range(program * ROWS, n_rows, n_programs * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        x, scale_of_row = _exponents(
            products_ptr, scales_ptr, offset, bias, row, column, n_rows, n_classes
        )
        p = tl.exp2(x)
        p = p / tl.sum(p, 1, keep_dims=True)
        q = tl.exp2(power * x - shift)
        q = q / tl.sum(q, 1, keep_dims=True)
        p_total += tl.sum(tl.where(row < n_rows, p, 0.0), 0, keep_dims=True)
        q_total += tl.sum(tl.where(row < n_rows, q, 0.0), 0, keep_dims=True)
        place = moved_ptr + row.to(tl.int64) * n_classes + column
        moved = (q - p) * (scale_of_row * scale)
        tl.store(place, moved.to(tl.float16), mask=(row < n_rows) & is_class)
    own = sums_ptr + 2 * program * n_classes + column
    tl.store(own, p_total, mask=is_class)
    tl.store(own + n_classes, q_total, mask=is_class)


@triton.jit
def _exponents(
    products_ptr: tl.tensor,
    scales_ptr: tl.tensor,
    offset: tl.tensor,
    bias: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    n_rows: tl.tensor,
    n_classes: tl.tensor,
):
    """Base-2 logarithms of the posterior up to a constant, and the scales of the rows."""
    scale_of_row = tl.load(scales_ptr + row, mask=row < n_rows, other=0.0)
    place = products_ptr + row.to(tl.int64) * n_classes + column
    inside = (row < n_rows) & (column < n_classes)
    x = tl.load(place, mask=inside, other=0.0)
    x = (x - offset) * scale_of_row + bias
    return x - tl.max(x, 1, keep_dims=True), scale_of_row
