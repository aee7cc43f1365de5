"""The device that kernel tests use; they are skipped where there is none."""

import os

import pytest
import torch


def kernel_device():
    """Return the GPU, or the CPU in Triton's interpreter; skip the calling module otherwise."""
    pytest.importorskip("triton", reason="triton is not installed", exc_type=ImportError)
    if os.environ.get("TRITON_INTERPRET") == "1":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        reason = "no GPU here; test_interpreted_kernels.py runs these tests in Triton's interpreter"
        pytest.skip(reason, allow_module_level=True)
    return torch.device("cuda")
