"""What the kernels share: softmax and log-sum for one task, with classes as rows."""

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
    """Log-sum-exp over the columns that are inside."""
    x = tl.where(inside, x, float("-inf"))
    top = tl.max(x, 1, keep_dims=True)
    total = tl.sum(tl.exp(x - top), 1, keep_dims=True)
    return tl.log(total) + top
