"""Label the rows of many files of features as one task."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.places import AnyPlace, local_path, locate
from infoshot.core.progress import ProgressLike, open_progress
from infoshot.distributed import EngineLike, find_engine, join_processes
from infoshot.distributed.ray_ranks import run_on_ranks
from infoshot.shards.output_folder import COPIES_NAME
from infoshot.shards.parquet_shard import ParquetColumns
from infoshot.shards.shard_solve import ShardSummary, solve_task
from infoshot.shards.shard_task import read_task
from infoshot.solvers import Method, method_by_name


def solve_shards(
    support: AnyPlace,
    queries: AnyPlace,
    out: str | os.PathLike[str],
    *,
    method: str | Method = "tim-adm",
    settings: Mapping[str, Any] | None = None,
    prior: Mapping[str, float] | None = None,
    tolerance: float | None = None,
    device: str | None = None,
    force: bool = False,
    column: str | None = None,
    label_column: str | None = None,
    keep: Sequence[str] | None = None,
    engine: EngineLike = "torchrun",
    progress: ProgressLike = None,
) -> ShardSummary:
    """Label the rows of many files of features (shards) as one task.

    Shards are read in chunks, so that they need not fit into memory. Called in every process that
    ``torchrun`` starts, the processes share the shards and give the labels of a single process.
    The same call resumes a solve that was interrupted.

    Parameters
    ----------
    support
        Feature file with labels; rows with the label -1 are skipped.
    queries
        Folder of shards: safetensors with ``features`` [n, D], or ``.npy`` files [n, D], in float16
        or float32, or Parquet with a column of embeddings. A pattern such as ``parts/*.parquet``
        stands for its files; Parquet may be remote.
    out
        Folder for ``labels/NAME.safetensors`` of every shard NAME (``labels/NAME.parquet`` of
        Parquet), the state and ``run.json``.
    method
        ``"tim-adm"`` or ``"tim-auto"``. ``"tim-auto"`` whitens features where the base classes of
        the network are known from the support; both must then be as the encoder gives them.
    settings
        Hyperparameters to change, such as ``{"n_steps": 50}``.
    prior
        For ``tim-adm``: share of each class by name, above 0 and in any scale. ``None``: all equal.
    tolerance
        For ``tim-adm``: stop when no probability of 2,048 queries changes by more than this in an
        iteration. ``None``: take all iterations.
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...; ``None``: a GPU if there is one.
    force
        Replace another solve in ``out``.
    column, label_column
        Embeddings in Parquet, and labels in a Parquet support, as
        :func:`infoshot.read_features` takes them.
    keep
        Columns of Parquet shards that go with the labels; ``None``: all but lists, structs and
        bytes.
    engine
        ``torchrun``: this process, or those that ``torchrun`` started. ``ray``, or a
        :class:`infoshot.RayEngine`: as many processes on a Ray cluster, which give the same
        results. If one is lost, all are started again and resume; with ``force`` they begin again.
    progress
        See :mod:`infoshot.core.progress`.

    Returns
    -------
    Class counts, number of iterations, and whether the solve converged.

    Raises
    ------
    InvalidArgumentError
        If the method or a setting cannot be used with shards.
    DataError
        If a file cannot be used; the message names it. Finished results are kept.
    LostProcessError
        If another process of the same ``torchrun`` has ended, or those on a Ray cluster end again
        and again.

    Warns
    -----
    ImbalanceWarning
        If a sample of the queries suggests that the classes are not equally frequent although
        the method assumes it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from infoshot import FeatureTable
    >>> from infoshot.features import write_features
    >>> temporary = tempfile.TemporaryDirectory()
    >>> folder = Path(temporary.name)
    >>> z, y = torch.eye(2).repeat(4, 1), torch.tensor([0, 1]).repeat(4)
    >>> write_features(folder / "few.safetensors", FeatureTable(z, y, None, ("cat", "dog")))
    >>> (folder / "shards").mkdir()
    >>> np.save(folder / "shards" / "part0.npy", z.numpy())
    >>> summary = solve_shards(folder / "few.safetensors", folder / "shards", folder / "run")
    >>> summary.counts, summary.n_steps
    ({'cat': 4, 'dog': 4}, 150)
    >>> temporary.cleanup()
    """
    on_ray = find_engine(engine)
    if on_ray is not None:
        same = partial(
            solve_shards,
            support,
            queries,
            out,
            method=method,
            settings=settings,
            prior=prior,
            tolerance=tolerance,
            force=force,
            column=column,
            label_column=label_column,
            keep=keep,
        )
        return run_on_ranks(same, on_ray, device=device, progress=progress)
    support, queries, out = locate(support), locate(queries), local_path("out", out)
    if isinstance(queries, Path) and out.resolve() == queries.resolve():
        raise DataError(f"{out}: out and queries must be different folders.")
    chosen = _method(method, settings or {}, tolerance)
    columns = ParquetColumns(out / COPIES_NAME, column, keep)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with (
        join_processes(device) as ranks,
        open_progress(progress, shown=ranks.is_main) as bar,
    ):
        task = read_task(
            support, queries, chosen, ranks, prior=prior, columns=columns, label_column=label_column
        )
        return solve_task(task, out, force=force, progress=bar)


def _method(name: str | Method, settings: Mapping[str, Any], tolerance: float | None) -> Method:
    """Method with its settings."""
    method = method_by_name(name) if isinstance(name, str) else name
    if tolerance is not None:
        if "tolerance" not in method.solver.settings():
            raise InvalidArgumentError(
                f"tolerance must be left out for the method '{method.name}', which does not use "
                "one."
            )
        settings = {**settings, "tolerance": tolerance}
    return method.with_settings(settings)
