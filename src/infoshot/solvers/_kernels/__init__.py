"""Triton kernels that take all steps of a solve in one launch, for tasks on a GPU.

They are optional: ``guard.py`` says where they run; elsewhere solvers take plain PyTorch steps.
Nothing here imports Triton before a kernel is needed.
"""

from infoshot.solvers._kernels.availability import available, fits, takes

__all__ = ["available", "fits", "takes"]
