"""The settings of episodic training, from registry, TOML file, options and single settings."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, final

import torch

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.tasks.sampler import TaskSpec
from infoshot.training.config_file import combine, make_tuples, read_config
from infoshot.training.episodic.registry import (
    make_head,
    resolve_head_settings,
    resolve_system,
)
from infoshot.training.optimizers import OPTIMIZERS
from infoshot.training.run_config import MOST_REPEATS, RunConfig

_HEAD = "head."  # prefix of the settings of the head


@final
@dataclass(frozen=True, kw_only=True)
class EpisodicConfig(RunConfig):
    """Gradient descent on the loss of episodes: tasks of the train classes.

    The defaults are the settings of W.-Y. Chen et al., A Closer Look at Few-shot Classification,
    ICLR 2019, for one example per class: 60,000 episodes, Adam, one episode per step. They train
    40,000 episodes for five examples; more do no harm, since validation chooses the epoch. The
    settings of the schedule and of the augmentation are those of
    :class:`~infoshot.training.run_config.RunConfig`.

    Parameters
    ----------
    system
        Name of the system, or ``package.module:Name`` of a class derived from ``Head``.
    epochs, episodes_per_epoch
        Number of epochs, after each of which the system is validated, and episodes in each.
        Episodes that do not fill a step are left out.
    tasks_per_step
        Episodes per step over all processes; batch normalisation is over all of them together.
    n_way, n_shot, n_query
        Classes of an episode, and examples and queries of each class.
    optimizer
        ``"adam"`` or ``"sgd"``; Adam ignores ``momentum`` and ``nesterov``.
    learning_rate
        Learning rate of the head in the first epoch.
    backbone_rate
        Factor on the learning rate for the backbone. 0 freezes it: then the features of all images
        are computed once, without augmentation, and episodes are drawn from them.
    val_shots
        Examples per class of the validation tasks, which have five classes and 15 queries per
        class; ``None``: as many as episodes have.
    head
        Hyperparameters of the head by name.

    Examples
    --------
    >>> config = EpisodicConfig(backbone="conv4", system="protonet", n_shot=5)
    >>> config.n_way, config.shots_of_validation(), config.steps_per_epoch()
    (5, 5, 1000)
    """

    system: str
    epochs: int = 60
    episodes_per_epoch: int = 1000
    tasks_per_step: int = 1
    n_way: int = 5
    n_shot: int = 1
    n_query: int = 15
    optimizer: Literal["sgd", "adam"] = "adam"
    learning_rate: float = 1e-3
    backbone_rate: float = 1.0
    val_shots: int | None = None
    head: Mapping[str, Any] = field(default_factory=dict)

    def batch(self) -> tuple[str, int]:
        """Return the name and the number of tasks per step."""
        return "tasks_per_step", self.tasks_per_step

    def defaults(self) -> Self:
        """Return the default settings for the same system and network."""
        return type(self)(backbone=self.backbone, system=self.system)

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a value is not allowed."""
        super().validate()
        checks.at_least("episodes_per_epoch", self.episodes_per_epoch, 1, MOST_REPEATS)
        self.task_spec().validate()
        checks.at_least("val_shots", self.shots_of_validation(), 1)
        checks.one_of("optimizer", self.optimizer, OPTIMIZERS)
        checks.not_negative("backbone_rate", self.backbone_rate)
        with torch.random.fork_rng(devices=[]):  # a head draws its weights
            make_head(self.system, dim=64, n_base_classes=2, settings=self.head)

    def task_spec(self) -> TaskSpec:
        """Return what an episode is."""
        return TaskSpec(n_way=self.n_way, n_shot=self.n_shot, n_query=self.n_query, seed=self.seed)

    def shots_of_validation(self) -> int:
        """Return the examples per class of validation tasks in use."""
        return self.n_shot if self.val_shots is None else self.val_shots

    def steps_per_epoch(self) -> int:
        """Return the number of steps of an epoch, at least one."""
        return max(1, self.episodes_per_epoch // self.tasks_per_step)

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON values, those of the head as ``head.NAME``."""
        values = {**super().to_json(), "val_shots": self.shots_of_validation()}
        head = values.pop("head")
        return {**values, **{f"{_HEAD}{name}": value for name, value in head.items()}}


SETTINGS = tuple(
    each.name for each in fields(EpisodicConfig) if each.name not in ("backbone", "system", "head")
)


def resolve_episodic_config(
    system: str,
    backbone: str,
    config: EpisodicConfig | str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> EpisodicConfig:
    """Combine the sources of a configuration.

    A later source replaces values of an earlier one: the published settings of the system,
    ``config``, ``options``, ``settings``. Settings of the head are called ``head.NAME``. A head
    that is made for a number of classes, ``head.n_way``, gets that of the episodes.

    Parameters
    ----------
    system, backbone
        Name of the system and of the network.
    config
        A configuration, or the path of a TOML file with fields of ``EpisodicConfig``.
    options
        Fields by name; those that are ``None`` are ignored.
    settings
        Fields by name.

    Raises
    ------
    InvalidArgumentError, DataError
        If a name is unknown, a value is not allowed, or the file cannot be read.

    Examples
    --------
    >>> config = resolve_episodic_config("protonet", "conv4", settings={"head.temperature": 10})
    >>> config.n_query, config.head
    (16, {'temperature': 10, 'per_dimension': False})
    """
    chosen = resolve_system(system)
    known = (*SETTINGS, *(f"{_HEAD}{name}" for name in chosen.head_settings()))
    values = {**({"backbone_rate": 0.0} if chosen.trains == "head" else {}), **chosen.settings}
    if isinstance(config, EpisodicConfig):
        values = asdict(config)
        values |= {f"{_HEAD}{name}": value for name, value in values.pop("head").items()}
    elif config is not None:
        values |= read_config(Path(config), (*known, "system"))
    if values.pop("system", system) != system:
        raise InvalidArgumentError(
            f"config must hold settings of {system}; got those of another system."
        )
    values |= combine(options, settings, known)
    head = {name: values.pop(name) for name in list(values) if name.startswith(_HEAD)}
    changes = {name.removeprefix(_HEAD): value for name, value in head.items()}
    if "n_way" in chosen.head_settings():
        changes.setdefault("n_way", values.get("n_way", EpisodicConfig.n_way))
    fixed = {"backbone": backbone, "system": system, "head": resolve_head_settings(system, changes)}
    resolved = EpisodicConfig(**{**make_tuples(values), **fixed})
    resolved.validate()
    return resolved
