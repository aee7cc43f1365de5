"""Where tasks come from."""

from infoshot.data.synthetic import gaussian_tasks
from infoshot.data.tasks import TaskSampler, TaskSpec, sample_tasks

__all__ = ["TaskSampler", "TaskSpec", "gaussian_tasks", "sample_tasks"]
