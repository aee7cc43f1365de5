"""``bench``: evaluate methods on many few-shot tasks drawn from one table of features."""

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from infoshot.benchmark.cell import Protocol, check_features, check_task_count, score_cell
from infoshot.benchmark.results import BenchResult, accuracies_key, paired_differences
from infoshot.benchmark.variants import MethodSpec, expand, resolve_variants
from infoshot.core import checks
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.places import AnyPlace, locate
from infoshot.core.progress import ProgressLike, open_progress
from infoshot.core.text import escape_name
from infoshot.core.types import FeatureTable, ResultRow
from infoshot.features import ArrowTable, default_features_path, digest, open_table
from infoshot.solvers import Method
from infoshot.tasks import TaskSpec
from infoshot.tasks.regimes import Regime, parse_regime

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def bench(
    features: AnyPlace | ArrowTable | FeatureTable | None = None,
    methods: MethodSpec | Sequence[MethodSpec] = ("prototype", "tim-adm"),
    *,
    ways: int | Sequence[int] = 5,
    shots: int | Sequence[int] = (1, 5),
    queries: int = 15,
    tasks: int = 10_000,
    regimes: str | Regime | Sequence[str | Regime] = "balanced",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    against: MethodSpec | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    threads: int | None = None,
    column: str | None = None,
    label_column: str | None = None,
    on_cell: Callable[[BenchResult], None] | None = None,
    progress: ProgressLike = None,
) -> BenchResult:
    """Evaluate methods on random few-shot tasks: accuracy with 95 % interval, and time per task.

    All methods get the same tasks. Task ``i`` depends only on the seed and on ``i``.

    Parameters
    ----------
    features
        A feature file, a folder or pattern of Parquet files, or a table in memory, which may be an
        Arrow table. ``None``: the features that the package contains (mini-ImageNet test classes,
        ResNet-18).
    methods
        Names of methods (``infoshot methods`` lists them), ``package.module:Name``,
        ``system:FOLDER`` of a trained system, ``Method`` objects or solvers. A pair of a method and
        a mapping is a variant with other settings: ``("tim-adm", {"temperature": 10})``, or
        ``"tim-adm(temperature=10)"`` as text.
        ``"all"`` stands for every registered method.
    ways, shots
        Classes per task, and labelled samples per class; one number or several.
    queries
        Queries per class. Imbalanced regimes have the same total number of queries.
    tasks
        Number of tasks.
    regimes
        How queries are distributed over classes; one or several (text with commas, or a list) of
        ``balanced``, ``dirichlet:A``, ``effective:K`` (queries from K of the classes only),
        ``few:N`` (N queries in total) and ``open:N`` (N of the queries from classes without
        support). If a class has too few samples, its remaining queries come from the other classes
        of the task; the row has a ``note``.
    seed
        Seed of the tasks.
    settings
        Changed settings of methods: ``{"temperature": 10}`` for every method that has the setting,
        ``{"tim-adm.n_steps": 50}`` for one method. Names of methods do not show them.
    against
        Compare all methods with this one on the same tasks. It is added if ``methods`` lacks it.
    device
        Device to solve on, such as ``cpu`` or ``cuda:1``.
    dtype
        ``float32`` or ``float64``.
    threads
        Number of threads. ``None``: that of PyTorch. Accuracies do not depend on it.
    column, label_column
        Columns of Parquet or of an Arrow table, as :func:`infoshot.read_features` takes them.
    on_cell
        Called after each method and kind of task with the result so far, for instance to store it.
    progress
        ``None`` draws a bar in a terminal or a notebook; see :mod:`infoshot.core.progress`.

    Returns
    -------
    Rows, per-task accuracies, skipped methods, and paired differences to ``against``.

    Raises
    ------
    InvalidArgumentError
        If a method is unknown or a number is not allowed.
    DataError
        If the features cannot be read, have too few classes or samples, or none of the methods (or
        not ``against``) can run on them. If only some methods cannot run, a warning names them.

    Examples
    --------
    >>> result = bench(methods=["prototype", "tim-adm"], shots=5, tasks=20, against="prototype")
    >>> [row.method for row in result.rows]
    ['prototype', 'tim-adm']
    >>> result.accuracies["tim-adm/5-way/5-shot/balanced"].shape
    torch.Size([20])
    >>> result.differences[0].mean > 0  # TIM-ADM is better
    True
    """
    chosen, reference = _resolve(methods, against, settings)
    protocols = _protocols(
        ways=ways, shots=shots, regimes=regimes, queries=queries, tasks=tasks, seed=seed,
        device=device, dtype=dtype, threads=threads,
    )  # fmt: skip
    table, about = _open_features(features, column, label_column)
    runnable, skipped = _find_runnable(table, chosen, reference)
    cells = [
        (method, protocol)
        for regime in dict.fromkeys(protocol.spec.regime for protocol in protocols)
        for method in runnable
        for protocol in protocols
        if protocol.spec.regime == regime
    ]
    for method, protocol in cells:
        protocol.validate(table, method)
    result = BenchResult((), {}, skipped)
    with open_progress(progress) as bar:
        for method, protocol in cells:
            spec = protocol.spec
            name = f"{method.name} {spec.n_way}-way {spec.n_shot}-shot {spec.regime}"
            bar.start(name, total=tasks, unit="tasks")
            row, scores = score_cell(table, method, protocol, **about, on_progress=bar.advance)
            bar.say(f"{name}: {row.mean:.2f} after {row.seconds:.1f} s")
            result = _add(result, row, scores, reference)
            if on_cell is not None:
                on_cell(result)
    return result


def _resolve(
    methods: MethodSpec | Sequence[MethodSpec],
    against: MethodSpec | None,
    settings: Mapping[str, Any] | None,
) -> tuple[list[Method], str]:
    """Methods with their settings, and the name of the one to compare with, which is in them."""
    entries = expand(methods)
    if against is None:
        return resolve_variants(entries, settings), ""
    reference = resolve_variants(against)
    if len(reference) != 1:
        raise InvalidArgumentError(f"against must be one method; got {against!r}.")
    name = reference[0].name
    if name not in [method.name for method in resolve_variants(entries)]:
        entries = [against, *entries]
    return resolve_variants(entries, settings), name


def _protocols(
    *,
    ways: int | Sequence[int],
    shots: int | Sequence[int],
    regimes: str | Regime | Sequence[str | Regime],
    queries: int,
    tasks: int,
    seed: int,
    device: str,
    dtype: str,
    threads: int | None,
) -> list[Protocol]:
    """One protocol per regime, number of ways and number of shots."""
    all_ways, all_shots = _list_numbers("ways", ways, 2), _list_numbers("shots", shots, 1)
    checks.at_least("queries", queries, 1)
    check_task_count("tasks", tasks)
    if threads is not None:
        checks.at_least("threads", threads, 1, checks.MOST_THREADS)
    if dtype not in _DTYPES:
        raise InvalidArgumentError(checks.unknown_name("dtype", str(dtype), _DTYPES))
    return [
        Protocol(
            spec=TaskSpec(n_way=n_way, n_shot=n_shot, n_query=queries, seed=seed, regime=regime),
            n_tasks=tasks, device=device, dtype=_DTYPES[dtype], n_threads=threads,
        )
        for regime, n_way, n_shot in product(_list_regimes(regimes), all_ways, all_shots)
    ]  # fmt: skip


def _list_numbers(name: str, values: int | Sequence[int], least: int) -> list[int]:
    """List one number or several, each once."""
    listed = list(dict.fromkeys(values)) if isinstance(values, Iterable) else [values]
    if not listed:
        raise InvalidArgumentError(f"{name} must hold at least one number; got none.")
    for value in listed:
        checks.at_least(name, value, least)
    return listed


def _list_regimes(regimes: str | Regime | Sequence[str | Regime]) -> list[Regime]:
    """List one regime or several, each once; a text may hold several, separated by commas."""
    parsed: list[Regime] = []
    for item in [regimes] if isinstance(regimes, (str, Regime)) else regimes:
        if isinstance(item, Regime):
            parsed.append(item)
        else:
            parsed += [parse_regime(text.strip()) for text in item.split(",")]
    if not parsed:
        raise InvalidArgumentError("regimes must hold at least one regime; got none.")
    return list(dict.fromkeys(parsed))


def _open_features(
    features: AnyPlace | ArrowTable | FeatureTable | None,
    column: str | None,
    label_column: str | None,
) -> tuple[FeatureTable, dict[str, str]]:
    """Read the features, with the name and the digest that rows report."""
    given = default_features_path() if features is None else features
    table = open_table(given, column=column, label_column=label_column)
    if isinstance(given, (FeatureTable, ArrowTable)):
        return table, {"features_name": "in memory", "features_digest": ""}
    name = escape_name(locate(given).name)
    return table, {"features_name": name, "features_digest": digest(given)}


def _find_runnable(
    table: FeatureTable, methods: Sequence[Method], reference: str
) -> tuple[list[Method], dict[str, str]]:
    """Split methods into those that can run on these features, and reasons for the others."""
    runnable: list[Method] = []
    skipped: dict[str, str] = {}
    for method in methods:
        try:
            check_features(table, method)
        except DataError as error:
            skipped[method.name] = str(error)
        else:
            runnable.append(method)
    for name, reason in skipped.items():
        if name == reference or not runnable:
            raise DataError(f"the method '{name}' cannot run on these features: {reason}")
        warnings.warn(f"the method '{name}' is skipped: {reason}", UserWarning, stacklevel=3)
    return runnable, skipped


def _add(result: BenchResult, row: ResultRow, scores: Tensor, reference: str) -> BenchResult:
    """Return the result with one more row; warn of its note unless an earlier row has it.

    Tasks that diverge are part of a published method: they are counted, without a warning.
    """
    row = dataclasses.replace(row, accuracies_key=accuracies_key(row))
    rows, accuracies = [*result.rows, row], {**result.accuracies, row.accuracies_key: scores}
    differences = paired_differences(rows, accuracies, reference) if reference else ()
    extended = BenchResult(rows, accuracies, result.skipped, differences)
    for note in extended.notes()[len(result.notes()) :]:
        if row.note and note.endswith(row.note):
            warnings.warn(note, UserWarning, stacklevel=3)
    return extended
