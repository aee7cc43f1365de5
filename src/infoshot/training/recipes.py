"""Recipes: named sets of training settings.

``paper`` to ``strong`` are for the features of TIM. The others are the base trainings of systems
in the tables of the TIM paper, as far as our training has their settings. None of them smooths
labels. All of them use our crops at the resolution of the backbone and choose the epoch by the
nearest prototype on validation classes, and descend by SGD. What else differs:

- ``baseline++``: Baseline++ (W.-Y. Chen et al., A Closer Look at Few-shot Classification, ICLR
  2019). The original uses Adam (1e-3, batches of 16, 400 epochs) and images of 224 pixels; length
  and learning rate here are those of ``paper``. Their Baseline is ``paper`` with
  ``label_smoothing=0``.
- ``neg-cosine``: Neg-cosine (B. Liu et al., Negative Margin Matters, ECCV 2020), with scale, margin
  and weight decay of the authors' ResNet-18 run for 5 shots; the one for 1 shot has -0.05 and 5e-5.
  The original uses Adam with a warm-up for 400 epochs, DropBlock and images of 224 pixels.
- ``cc-rot``: CC+rot (S. Gidaris et al., Boosting Few-Shot Visual Learning with Self-Supervision,
  ICCV 2019), without additional unlabelled images. The original turns every image by all four
  angles, where one turned copy is added here, and predicts the angle with a residual block and a
  cosine classifier, where a linear layer predicts it here. 43 epochs of mini-ImageNet are its 26
  times 1,000 batches of 64.
- ``bd-cspn``: the cosine classifier of BD-CSPN (J. Liu et al., Prototype Rectification for Few-Shot
  Learning, ECCV 2020), with one learned scale. Its other settings are those of ``paper``.
- ``distill``: Distill (Y. Tian et al., Rethinking Few-Shot Image Classification, ECCV 2020). Train
  once without a teacher, then with the run before as teacher; the original does so once or twice.
  The original crops 84 pixels out of images padded by 8 on each side.
"""

from collections.abc import Mapping
from typing import Any

# The settings that differ from the defaults of ``TrainConfig``, which are the published ones.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "small": {"epochs": 200, "batch_size": 64, "weight_decay": 5e-4, "train_crop": 72},
    "strong": {
        "epochs": 75,
        "schedule": "cosine",
        "nesterov": True,
        "weight_decay": 5e-4,
        "label_smoothing": 0.0,
        "rotation_weight": 1.0,
        "mixup": 2.0,
        "mixup_start": 0.6,
        "train_crop": 64,
    },
    "baseline++": {
        "label_smoothing": 0.0,
        "classifier": "cosine",
        "classifier_scale": 2.0,
        "classifier_scaling": "per-class",
    },
    "neg-cosine": {
        "schedule": "cosine",
        "label_smoothing": 0.0,
        "classifier": "cosine",
        "classifier_scale": 30.0,
        "classifier_scaling": "fixed",
        "margin": -0.02,
    },
    "cc-rot": {
        "epochs": 43,
        "batch_size": 64,
        "drops": (20 / 26, 23 / 26),
        "nesterov": True,
        "weight_decay": 5e-4,
        "label_smoothing": 0.0,
        "classifier": "cosine",
        "rotation_weight": 1.0,
    },
    "bd-cspn": {"label_smoothing": 0.0, "classifier": "cosine"},
    "distill": {
        "epochs": 100,
        "batch_size": 64,
        "learning_rate": 0.05,
        "drops": (0.6, 0.8),
        "weight_decay": 5e-4,
        "label_smoothing": 0.0,
    },
}
