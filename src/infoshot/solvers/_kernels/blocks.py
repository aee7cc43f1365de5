"""What the kernels share, for a block of one task with classes as rows.

Products of float32 matrices: ``"ieee"`` takes them on the ordinary units. ``"tf32x3"`` takes them
on the tensor cores, which look at the first 11 of float32's 24 bits of precision: every number is
split into a big part of so many bits and a small rest, and of the four products of parts the three
that matter are summed, in float32. What is left out is 2^-22 of a term, less than the sum rounds.
"""

import triton
import triton.language as tl


@triton.jit
def softmax(logits: tl.tensor):
    """Softmax over the rows, and its logarithm."""
    shifted = logits - tl.max(logits, 0, keep_dims=True)
    e = tl.exp(shifted)
    total = tl.sum(e, 0, keep_dims=True)
    return e * (1.0 / total), shifted - tl.log(total)


@triton.jit
def log_sum(x: tl.tensor, inside: tl.tensor):
    """Logarithm of the sum of exponentials of those columns that are inside."""
    x = tl.where(inside, x, float("-inf"))
    top = tl.max(x, 1, keep_dims=True)
    total = tl.sum(tl.exp(x - top), 1, keep_dims=True)
    return tl.log(total) + top


@triton.jit
def product(a: tl.tensor, b: tl.tensor, c: tl.tensor, PRODUCT: tl.constexpr):
    """Matrix product a b + c to the precision of float32, see the module."""
    if PRODUCT == "tf32x3":
        a_big, a_small = _split(a)
        b_big, b_small = _split(b)
        c = tl.dot(a_small, b_big, c, input_precision="tf32")
        c = tl.dot(a_big, b_small, c, input_precision="tf32")
        c = tl.dot(a_big, b_big, c, input_precision="tf32")
    else:
        c = tl.dot(a, b, c, input_precision="ieee")
    return c


@triton.jit
def _split(x: tl.tensor):
    """Split a number into the nearest that has 11 bits of precision, and the rest."""
    bits = x.to(tl.int32, bitcast=True)
    big = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return big, x - big
