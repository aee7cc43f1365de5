"""Options of the commands that run on a Ray cluster."""

from typing import Annotated, Any

import typer

from infoshot.core.errors import InvalidArgumentError
from infoshot.distributed import EngineLike, RayEngine

Engine = Annotated[
    str, typer.Option(help="torchrun: this process or those of torchrun; ray: a Ray cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(help="Ray: HOST:PORT, ray://HOST:PORT or auto; default: RAY_ADDRESS, or here."),
]
Workers = Annotated[
    int | None, typer.Option(help="Ray: processes to start; default: as many as fit.")
]
CpusPerWorker = Annotated[int | None, typer.Option(help="Ray: cores of each process; default: 1.")]
GpusPerWorker = Annotated[
    float | None,
    typer.Option(help="Ray: share of a GPU, such as 0.25; default: 1 if there are any."),
]


def parse_engine(
    engine: str,
    address: str | None,
    workers: int | None,
    cpus_per_worker: int | None,
    gpus_per_worker: float | None,
) -> EngineLike:
    """Return the engine that the options of a command describe."""
    options = {
        "address": address,
        "workers": workers,
        "cpus_per_worker": cpus_per_worker,
        "gpus_per_worker": gpus_per_worker,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if engine == "ray":
        return RayEngine(**given)
    if given:
        raise InvalidArgumentError(f"{next(iter(given))} must be left out without --engine ray.")
    return engine
