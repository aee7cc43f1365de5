"""Images and their splits, and the tasks that are drawn from features."""

from infoshot.data.datasets import DATASETS, ImageDataset, ImageSplit, open_dataset
from infoshot.data.synthetic import gaussian_tasks
from infoshot.data.tasks import TaskSampler, TaskSpec, sample_tasks

__all__ = [
    "DATASETS",
    "ImageDataset",
    "ImageSplit",
    "TaskSampler",
    "TaskSpec",
    "gaussian_tasks",
    "open_dataset",
    "sample_tasks",
]
