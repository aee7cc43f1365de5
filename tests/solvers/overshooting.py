"""Synthetic tasks on which full steps of TIM-ADM overshoot, found by search.

Eight Gaussian classes share a large common component, as features of networks do: the cosine of
two samples is about 0.95. The share of a class then reacts so strongly to its weight that
deviations grow with every step. From the size of rounding errors they take about 55 steps
(float32) or 75 steps (float64) until predictions collapse; the next 15 to 20 steps lead back.
"""

import torch

from infoshot import TaskBatch
from infoshot.tasks import gaussian_tasks

# Steps after which all tasks have collapsed and none has recovered.
STEPS = {torch.float32: 70, torch.float64: 88}


def overshooting_tasks(n_tasks, dtype):
    """Tasks of 8 classes, 5 shots and 8 queries per class, and their query labels."""
    tasks, labels = gaussian_tasks(
        n_tasks, n_way=8, n_shot=5, n_query=8, dim=16, separation=0.7, dtype=torch.float64
    )
    common = 4 * torch.eye(16, dtype=torch.float64)[0]
    z_sup, z_qry = (
        torch.nn.functional.normalize(z + common, dim=-1).to(dtype)
        for z in (tasks.z_sup, tasks.z_qry)
    )
    return TaskBatch(z_sup, tasks.y_sup, z_qry, 8), labels
