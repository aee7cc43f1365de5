"""A Ray cluster: connecting to it, and how many workers fit into it.

Only Ray's core is used, no part that moves data: workers read images and write shards themselves.
So all nodes need the same files under the same paths, and the same packages. Ray is imported when
it is used.
"""

import math
import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoshot.core import checks
from infoshot.core.errors import DataError, InvalidArgumentError, MissingDependencyError
from infoshot.core.job_variables import job_size

ENGINES = ("torchrun", "ray")
_SECONDS = 5.0  # to reach a cluster
_MOST = 1_000_000  # workers, or cores of one
_OWN = ("auto", "local")  # addresses of Ray that are no host


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Which Ray cluster to use, and which part of it.

    Parameters
    ----------
    address
        ``HOST:PORT`` of a cluster that this machine belongs to, ``ray://HOST:PORT`` of another one,
        or ``auto``. ``None``: the variable ``RAY_ADDRESS``, else a cluster that runs on this
        machine, else a new one on this machine alone.
    workers
        Processes to start; ``None``: as many as fit into the cluster.
    cpus_per_worker
        Cores of each.
    gpus_per_worker
        Share of a GPU that each gets, such as 0.25. ``None``: a whole one if the cluster has any.

    Examples
    --------
    >>> RayEngine(address="head:6379", workers=64, gpus_per_worker=0.25).cpus_per_worker
    1
    """

    address: str | None = None
    workers: int | None = None
    cpus_per_worker: int = 1
    gpus_per_worker: float | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            checks.at_least("workers", self.workers, 1, _MOST)
        checks.at_least("cpus_per_worker", self.cpus_per_worker, 1, _MOST)
        if self.gpus_per_worker is not None:
            checks.between("gpus_per_worker", self.gpus_per_worker, 0, 1)


EngineLike = str | RayEngine


@dataclass(frozen=True)
class Workers:
    """How many workers to start, what each needs of its node, and where it computes."""

    number: int
    cpus: int
    gpus: float
    device: str

    @property
    def resources(self) -> dict[str, float]:
        """What each needs, as Ray names it."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of an actor; Ray sets ``OMP_NUM_THREADS`` to the cores."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


def find_engine(engine: EngineLike) -> RayEngine | None:
    """Return the Ray engine that an argument asks for; ``None`` for this process or ``torchrun``.

    Raises
    ------
    InvalidArgumentError
        If the engine is not known, or ``torchrun`` has started this process for Ray.
    """
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise InvalidArgumentError(checks.unknown_name("engine", engine, ENGINES))
        if engine == "torchrun":
            return None
        engine = RayEngine()
    if job_size() > 1:
        raise InvalidArgumentError(
            "engine must be 'torchrun' in the processes that torchrun starts; Ray starts its own."
        )
    return engine


@contextmanager
def open_cluster(engine: RayEngine) -> Iterator[Any]:
    """Connect to the cluster, unless this process is connected already; yields the module ``ray``.

    Raises
    ------
    MissingDependencyError
        If Ray is not installed.
    DataError
        If the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError(
            "engine='ray' needs Ray; install it with pip install 'infoshot[ray]'."
        ) from error
    if ray.is_initialized():
        yield ray
        return
    address = engine.address or os.environ.get("RAY_ADDRESS") or None
    if address is not None:
        _check_address(address)
    # A cluster that is started here does not report to Ray's makers unless the user wants it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=address, logging_level="error")
    except (Exception, SystemExit) as error:  # Ray exits after it has tried for minutes
        raise DataError(f"the Ray cluster cannot be reached ({first_line(error)}).") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def choose_workers(ray: Any, engine: RayEngine, device: str | None) -> Workers:  # noqa: ANN401
    """Choose how many workers to start, and what each gets.

    Raises
    ------
    InvalidArgumentError
        If they do not fit into the cluster, or the device is not one of its kinds.
    """
    if device not in (None, "cpu", "cuda"):
        raise InvalidArgumentError(
            f"device must be 'cpu' or 'cuda' with engine='ray'; got '{device}'."
        )
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = engine.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if device == "cuda" or any(node.get("GPU") for node in nodes) else 0.0
    if device == "cpu":
        gpus = 0.0
    elif device == "cuda" and not gpus:
        raise InvalidArgumentError("gpus_per_worker must be above 0 with device='cuda'; got 0.")
    cpus = engine.cpus_per_worker
    most = sum(_count_on_node(node, cpus, gpus) for node in nodes)
    wanted = engine.workers or most
    if not 1 <= wanted <= most:
        raise InvalidArgumentError(
            f"workers must fit into the Ray cluster, which has room for {most} of {cpus} CPUs and "
            f"{gpus:g} GPUs each; got {engine.workers or 'none'}."
        )
    return Workers(wanted, cpus, gpus, "cuda" if gpus else "cpu")


def enter_folder(folder: str) -> None:
    """Make a folder of the user's machine the current one of a worker, for relative paths.

    Raises
    ------
    DataError
        If the node does not have it.
    """
    try:
        os.chdir(folder)
    except OSError as error:
        raise DataError(
            f"{folder}: the node {socket.gethostname()} of the Ray cluster cannot open this folder "
            f"({error.strerror}); all nodes need the same files under the same paths."
        ) from error


def current_folder() -> str:
    """Return what :func:`enter_folder` takes."""
    return str(Path.cwd())


def first_line(error: BaseException) -> str:
    """Return what Ray says about an error, without what follows on many lines."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(". ")


def repeat_warnings(found: list[tuple[type[Warning], str]]) -> None:
    """Warn here of what a worker warned of."""
    for category, text in found:
        warnings.warn(text, category, stacklevel=4)


def _count_on_node(node: Mapping[str, float], cpus: int, gpus: float) -> int:
    """Count the workers that fit on a node; each uses one GPU or a part of one."""
    by_cpu = math.floor(node.get("CPU", 0) / cpus)
    if not gpus:
        return by_cpu
    return min(by_cpu, math.floor(node.get("GPU", 0)) * math.floor(1 / gpus + 1e-9))


def _check_address(address: str) -> None:
    """Require an address that answers; Ray itself would try for minutes, and then exit."""
    if address in _OWN:
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise InvalidArgumentError(
            "address must be HOST:PORT of a Ray cluster, ray://HOST:PORT or auto; got "
            f"{address!r:.80}."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise DataError(
            f"address {address}: the Ray cluster cannot be reached ({reason}); start it with ray "
            "start, or leave out address to use this machine alone."
        ) from error
