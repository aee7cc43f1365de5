"""Recipes: named sets of training settings."""

from collections.abc import Mapping
from typing import Any

# The settings that differ from the defaults of ``TrainConfig``, which are the published ones.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "small": {"batch_size": 64, "weight_decay": 5e-4},
    "strong": {
        "epochs": 120,
        "schedule": "cosine",
        "nesterov": True,
        "weight_decay": 5e-4,
        "label_smoothing": 0.0,
        "rotation_weight": 1.0,
        "mixup": 2.0,
    },
}
