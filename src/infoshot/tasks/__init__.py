"""Few-shot tasks drawn from a feature table with a seed."""

from infoshot.tasks.sampler import TaskSampler, TaskSpec, sample_tasks
from infoshot.tasks.synthetic import gaussian_tasks

__all__ = ["TaskSampler", "TaskSpec", "gaussian_tasks", "sample_tasks"]
