"""Result rows on disk, with the environment they were measured in."""

import dataclasses
import json
import math
import os
import platform
from collections.abc import Sequence
from typing import Any

import torch

from infoshot.types import ResultRow
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


def rows_to_json(rows: Sequence[ResultRow]) -> str:
    """Rows as a JSON list; what is not known (the interval of one task) is null."""
    entries = [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in dataclasses.asdict(row).items()
        }
        for row in rows
    ]
    return (
        json.dumps(entries, indent=1, allow_nan=False, default=lambda array: array.tolist()) + "\n"
    )


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
