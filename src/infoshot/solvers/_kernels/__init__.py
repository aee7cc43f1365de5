"""Triton kernels that take all steps of a solve in one launch, for tasks on a GPU.

They are optional: ``availability.py`` says where they run; elsewhere solvers take PyTorch steps.
Triton is imported when the first kernel is needed.
"""

from infoshot.solvers._kernels.availability import available, fits, takes

__all__ = ["available", "fits", "takes"]
