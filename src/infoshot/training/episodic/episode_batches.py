"""Batches of episodes, reproducible from the seed.

Episode i is task i of the train classes, drawn from (seed, i) by the sampler of all tasks; the
augmentation of an image is drawn from (seed, episode, image). Neither depends on restarts, on the
number of tasks per step, or on the number of processes. Everything is drawn on the device.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.core.types import FeatureTable
from infoshot.distributed import Ranks
from infoshot.tasks.sampler import TaskSampler, TaskSpec
from infoshot.training.batches import prepare_ahead
from infoshot.training.episodic.episodic_config import EpisodicConfig

Samples = Callable[[Tensor, Tensor], Tensor]
"""Returns samples ``(n, ...)``, given the episode and the number of each, both ``(n,)``."""


@dataclass(frozen=True, eq=False)
class EpisodeBatch:
    """A batch of episodes before the backbone.

    Parameters
    ----------
    samples
        Images or features of support and queries, in this order, shape ``(task, sample, ...)``.
    y_sup, y_qry
        Labels from 0 to ``n_way - 1``, shapes ``(task, support)`` and ``(task, query)``.
    classes
        The base class of each of the ways, shape ``(task, n_way)``.
    """

    samples: Tensor
    y_sup: Tensor
    y_qry: Tensor
    classes: Tensor


class EpisodeBatches:
    """All episodes of a training run.

    Parameters
    ----------
    samples
        Returns the samples of an episode.
    labels
        The base class of every sample.
    config
        What an episode is, how many there are, and the seed.
    ranks
        The processes; each takes an equal part of the tasks of every step.
    """

    def __init__(
        self, samples: Samples, labels: Tensor, config: EpisodicConfig, ranks: Ranks
    ) -> None:
        self._samples, self._config, self._ranks = samples, config, ranks
        self._labels = labels.to(ranks.device)
        self._sampler = make_sampler(self._labels, config.task_spec())

    def epoch(self, epoch: int) -> Iterator[EpisodeBatch]:
        """Yield the episodes of this process in an epoch, counted from 0, step by step."""
        size, n_steps = self._config.tasks_per_step, self._config.steps_per_epoch()
        starts = range(epoch * n_steps * size, (epoch + 1) * n_steps * size, size)
        rank = self._ranks.rank
        steps = [range(start + rank, start + size, self._ranks.size) for start in starts]
        return prepare_ahead(self._draw, steps, self._ranks.device)

    def _draw(self, tasks: range) -> EpisodeBatch:
        support, query = self._sampler.draw(tasks)
        y_sup, y_qry = self._sampler.labels(tasks)
        positions = torch.cat((support, query), 1)
        episodes = torch.arange(tasks.start, tasks.stop, tasks.step, device=positions.device)
        episodes = episodes.unsqueeze(1).expand_as(positions)
        samples = self._samples(episodes.flatten(), positions.flatten())
        classes = self._labels[support].view(len(tasks), -1, self._config.n_shot)[..., 0]
        return EpisodeBatch(samples.unflatten(0, positions.shape), y_sup, y_qry, classes)


def make_sampler(labels: Tensor, spec: TaskSpec, class_names: tuple[str, ...] = ()) -> TaskSampler:
    """Return the sampler of episodes.

    Raises
    ------
    DataError
        If there are too few classes or images.
    """
    table = FeatureTable(labels.new_empty(len(labels), 0), labels, class_names=class_names)
    try:
        return TaskSampler(table, spec)
    except DataError as error:
        reason = str(error).removeprefix("sample_tasks: ")
        raise DataError(f"episodes cannot be drawn from the split 'train': {reason}") from error
