"""What a measured time must be read against."""

import os
import platform
from typing import Any

import torch

from infoshot.version import __version__


def environment(device: str = "cpu") -> dict[str, Any]:
    """Versions, processor, cores and load: what a time must be read against."""
    record: dict[str, Any] = {
        "infoshot": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
    }
    if hasattr(os, "getloadavg"):
        record["load_1min"] = round(os.getloadavg()[0], 2)
    if device.startswith("cuda"):
        record["gpu"] = torch.cuda.get_device_name(device)
    return record


def _processor() -> str:
    """Name of the processor where the system tells, else of its architecture."""
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123 - a system file, not a user's path
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
