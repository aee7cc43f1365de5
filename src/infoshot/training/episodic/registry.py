"""The few-shot systems by name, and heads of the user by ``package.module:Name``."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InfoshotError, InvalidArgumentError
from infoshot.core.plugins import is_reference, load_reference
from infoshot.training.episodic.head import Head
from infoshot.training.episodic.matchnet import MatchNet
from infoshot.training.episodic.protonet import ProtoNet

Trains = Literal["network", "scale-and-shift", "head"]
Start = Literal["scratch", "base-network", "frozen-base-network"]

TRAINS: Mapping[Trains, str] = {
    "network": "the whole network",
    "scale-and-shift": "scale and shift of every filter of the backbone, and the head",
    "head": "the head only",
}
STARTS: Mapping[Start, str] = {
    "scratch": "random weights",
    "base-network": "a base-trained network",
    "frozen-base-network": "the features of a base-trained network, which stays as it is",
}


@dataclass(frozen=True, kw_only=True)
class System:
    """A few-shot system that trains a network on episodes.

    Parameters
    ----------
    name
        How commands and files call it, in lower case.
    title
        How papers print it, such as ``ProtoNet``.
    summary
        What it does, in one line.
    reference
        Where it was published.
    head
        Returns the head for a number of features and of base classes: a class derived from
        ``Head``. Its keyword-only arguments are the settings ``head.NAME``.
    trains
        What is trained: a key of ``TRAINS``.
    starts_from
        Where training starts: a key of ``STARTS``.
    settings
        The published training settings that differ from the defaults of ``EpisodicConfig``; names
        such as ``head.temperature`` are settings of the head. A system that trains the head only
        has ``backbone_rate`` 0.
    """

    name: str
    title: str
    summary: str
    reference: str
    head: Callable[..., Head]
    trains: Trains = "network"
    starts_from: Start = "scratch"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_init(self) -> bool:
        """Whether training starts from a trained network."""
        return self.starts_from != "scratch"

    def head_settings(self) -> dict[str, Any]:
        """Return the hyperparameters of the head with their defaults."""
        arguments = inspect.signature(self.head).parameters.values()
        return {
            argument.name: argument.default
            for argument in arguments
            if argument.kind is argument.KEYWORD_ONLY
        }


_ALL = (
    System(
        name="protonet",
        title="ProtoNet",
        summary="nearest class mean, with features trained for it",
        reference="J. Snell, K. Swersky, R. Zemel. Prototypical Networks for Few-shot Learning. "
        "NIPS 2017",
        head=ProtoNet,
        settings={"n_query": 16},
    ),
    System(
        name="matchnet",
        title="MatchNet",
        summary="vote of the labelled samples weighted by their cosine, with features trained "
        "for it",
        reference="O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra. Matching "
        "Networks for One Shot Learning. NIPS 2016",
        head=MatchNet,
        settings={"n_query": 16},
    ),
)
SYSTEMS: Mapping[str, System] = {system.name: system for system in _ALL}


def resolve_system(name: str) -> System:
    """Return the system of a name, or a system around the user's head ``package.module:Name``.

    Raises
    ------
    InvalidArgumentError
        If the name is unknown, or what it names is not a class derived from ``Head``.

    Examples
    --------
    >>> resolve_system("protonet").title
    'ProtoNet'
    """
    if name in SYSTEMS:
        return SYSTEMS[name]
    if not is_reference(name):
        raise InvalidArgumentError(unknown_name("system", name, (*SYSTEMS, "package.module:Name")))
    head = load_reference(name)
    if not (isinstance(head, type) and issubclass(head, Head)):
        raise InvalidArgumentError(
            f"'{name}' must be a class derived from infoshot.training.episodic.head.Head; "
            f"got {head!r:.60}."
        )
    lines = (head.__doc__ or "").strip().splitlines()
    summary = lines[0].rstrip(".") if lines else head.__name__
    return System(name=name, title=head.__name__, summary=summary, reference="", head=head)


def resolve_head_settings(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return all hyperparameters of the head of a system, some of them changed, as JSON values.

    Raises
    ------
    InvalidArgumentError
        If a name is unknown, or JSON cannot hold a value.
    """
    defaults = resolve_system(name).head_settings()
    for setting in changes:
        if setting not in defaults:
            known = [f"head.{known}" for known in defaults] or ["none"]
            raise InvalidArgumentError(unknown_name(f"setting of {name}", f"head.{setting}", known))
    settings = {**defaults, **changes}
    missing = [setting for setting, value in settings.items() if value is inspect.Parameter.empty]
    if missing:
        raise InvalidArgumentError(
            f"'{name}' needs a value of head.{missing[0]}, which has no default."
        )
    try:
        plain: dict[str, Any] = json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name}: its settings must be plain values ({error})."
        ) from error
    return plain


def make_head(
    name: str, dim: int, n_base_classes: int, settings: Mapping[str, Any] | None = None
) -> Head:
    """Build the head of a system, to train it or to load weights into it.

    Parameters
    ----------
    name
        Name of a system, or ``package.module:Name`` of a class derived from ``Head``.
    dim, n_base_classes
        Number of features, and of base classes.
    settings
        Hyperparameters of the head by name; the others have their defaults.

    Raises
    ------
    InvalidArgumentError
        If the name or a setting is unknown, or a value is not allowed.

    Examples
    --------
    >>> make_head("protonet", dim=512, n_base_classes=64, settings={"temperature": 10}).temperature
    10
    """
    system = resolve_system(name)
    defaults, values = system.head_settings(), resolve_head_settings(name, settings or {})
    for setting, default in defaults.items():
        if isinstance(default, tuple) and isinstance(values[setting], list):
            values[setting] = tuple(values[setting])
    try:
        head = system.head(dim, n_base_classes, **values)
    except InfoshotError as error:
        raise InvalidArgumentError(f"{name}: {error}") from error
    except Exception as error:  # whatever the user's code raises
        raise InvalidArgumentError(
            f"{name}: its head cannot be made; it raised {type(error).__name__}: {error}."
        ) from error
    if not isinstance(head, Head):
        raise InvalidArgumentError(f"{name}: must return a Head; got {type(head).__name__}.")
    return head
