"""A minimal kernel, to find out whether Triton can build and launch one here."""

import torch
import triton
import triton.language as tl


def runs(device: torch.device) -> bool:
    """Whether a kernel that writes one number works on this device."""
    number = torch.zeros(1, device=device)
    with torch.cuda.device_of(number):
        _write_one[(1,)](number)
    return number.item() == 1


@triton.jit
def _write_one(number_ptr: tl.tensor):
    """Write the number one."""
    tl.store(number_ptr, 1.0)
