"""Runs the kernel tests in Triton's interpreter, so that they need no GPU.

The interpreter must be chosen before Triton is imported, and then the kernels run wherever they
can, slowly: hence a process of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
KERNEL_TESTS = ("tests/solvers/test_kernels.py", "tests/shards/test_shard_kernels.py")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel tests run on the GPU")
def test_kernels_pass_in_tritons_interpreter():
    pytest.importorskip("triton", reason="triton is not installed", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *KERNEL_TESTS],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout, done.stdout
