"""Where the kernels run: on CUDA devices where Triton works, in float32, for small tasks.

With ``TRITON_INTERPRET=1`` they run on any machine, interpreted and slow; the tests use that.
"""

import functools
import os

import torch
from torch import Tensor

_MOST_SAMPLES, _MOST_CLASSES = 128, 16  # the matrices of a task must fit into a thread block


def takes(features: Tensor, n_samples: int, n_way: int) -> bool:
    """Whether there are kernels for tasks of this size with tensors like this one."""
    return features.dtype == torch.float32 and fits(n_samples, n_way) and available(features.device)


def fits(n_samples: int, n_way: int) -> bool:
    """Whether a task is small enough for a thread block."""
    return n_samples <= _MOST_SAMPLES and n_way <= _MOST_CLASSES


def available(device: torch.device) -> bool:
    """Whether kernels run on tensors of this device."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return (device.type == "cuda" or (device.type == "cpu" and interpreted)) and _works(device)


@functools.cache
def _works(device: torch.device) -> bool:
    """Build and launch a minimal kernel, once; Triton also needs a C compiler."""
    try:
        from infoshot.solvers._kernels.trial import runs

        return runs(device)
    except Exception:  # any failure: solvers take PyTorch steps
        return False
