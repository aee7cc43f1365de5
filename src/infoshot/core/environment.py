"""The machine: what a measured time depends on, and the device to use by default."""

import os
import platform
from typing import Any

import torch

from infoshot.version import __version__


def default_device() -> str:
    """Return ``cuda`` if there is a GPU that PyTorch can use, else ``cpu``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def environment(device: str = "cpu") -> dict[str, Any]:
    """Return versions, processor, cores and load: what a measured time depends on."""
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
    """Name the processor if the system says, else its architecture."""
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123 - a system file, not a user's path
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
