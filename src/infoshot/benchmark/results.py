"""Results of a benchmark: rows, per-task accuracies, paired differences, and files of them."""

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from infoshot.benchmark.latex import latex_table
from infoshot.core.csv_file import csv_text
from infoshot.core.outputs import is_stream, write_output
from infoshot.core.tensor_file import format_tensors, read_tensor_file
from infoshot.core.types import ResultRow
from infoshot.metrics import mean_interval

Cells = list[list[str]]
_PathLike = str | os.PathLike[str]
_DASH = "-"


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference of two methods on the same tasks, in percentage points.

    ``mean`` is the accuracy of ``method`` minus that of ``against``, averaged over the tasks, and
    ``ci95`` the half-width of its 95 % interval, 1.96 std / sqrt(tasks) of the differences.

    Examples
    --------
    >>> from infoshot import bench
    >>> result = bench(methods=["prototype", "tim-adm"], shots=5, tasks=20, against="prototype")
    >>> difference = result.differences[0]
    >>> difference.method, difference.against, difference.mean > 0
    ('tim-adm', 'prototype', True)
    """

    method: str
    against: str
    ways: int
    shots: int
    regime: str
    tasks: int
    mean: float
    ci95: float


@dataclass(frozen=True, eq=False, repr=False)
class BenchResult:
    """What :func:`infoshot.bench` returns; it is shown as a table.

    Parameters
    ----------
    rows
        A row per method and kind of task.
    accuracies
        Accuracy of each task between 0 and 1, shape ``(task,)``, float64; the key is the
        ``accuracies_key`` of the row, such as ``tim-adm/5-way/1-shot/balanced``.
    skipped
        Methods that cannot run on these features, with the reason.
    differences
        Paired differences to one of the methods, if the benchmark was run ``against`` it.

    Examples
    --------
    >>> from infoshot import bench
    >>> result = bench(methods=["prototype", "tim-adm"], shots=5, tasks=20)
    >>> header, cells = result.table()
    >>> header
    ['method', 'assumes', 'ways', 'tasks', '5-shot', 'F1', 'ms/task']
    >>> [cell[0] for cell in cells]
    ['prototype', 'tim-adm']
    """

    rows: Sequence[ResultRow]
    accuracies: Mapping[str, Tensor] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    differences: Sequence[PairedDifference] = ()

    def __repr__(self) -> str:
        header, cells = self.table()
        lines = [header, *cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*text, *self.notes()])

    def table(self) -> tuple[list[str], Cells]:
        """Header and cells of the table of accuracies; see :func:`result_table`."""
        return result_table(self.rows)

    def difference_table(self) -> tuple[list[str], Cells]:
        """Header and cells of the table of paired differences."""
        header = ["method", "ways", "shots", "regime", "tasks", "difference"]
        cells = [
            [
                item.method, str(item.ways), str(item.shots), item.regime, str(item.tasks),
                f"{item.mean:+.2f}" + _interval(item.ci95),
            ]
            for item in self.differences
        ]  # fmt: skip
        return header, cells

    def notes(self) -> list[str]:
        """Notes of the rows, each with the kind of task that it is about."""
        notes = (f"{_task(row)}: {note}" for row in self.rows for note in _row_notes(row))
        return list(dict.fromkeys(notes))

    def to_json(self) -> str:
        """Rows as JSON, with ``against``, ``difference`` and ``difference_ci95`` if known."""
        return _dump(self._entries())

    def to_csv(self) -> str:
        """Rows as CSV with a header; settings, environment and assumptions are JSON."""
        entries = self._entries()
        header = list(dict.fromkeys(name for entry in entries for name in entry))
        return csv_text(header, [[_text(entry.get(name)) for name in header] for entry in entries])

    def to_latex(self) -> str:
        """Accuracies as a LaTeX table; skipped methods get dashes."""
        return latex_table(self.rows, self.skipped)

    def write(
        self,
        *,
        json: _PathLike | None = None,
        accuracies: _PathLike | None = None,
        csv: _PathLike | None = None,
        latex: _PathLike | None = None,
    ) -> None:
        """Write files, each in one move.

        Parameters
        ----------
        json
            Rows as a JSON list.
        accuracies
            Per-task accuracies as safetensors, float64, under the keys of ``accuracies``. ``None``
            and a JSON file: :func:`accuracies_path` of it; nothing if that is a pipe or a device.
        csv, latex
            Rows as CSV, and the table as LaTeX.

        Raises
        ------
        DataError
            If a file cannot be written.
        """
        if json is not None and accuracies is None and not is_stream(json):
            accuracies = accuracies_path(json)
        if accuracies is not None:
            write_accuracies(accuracies, self.accuracies)
        for path, make in ((json, self.to_json), (csv, self.to_csv), (latex, self.to_latex)):
            if path is not None:
                write_output(path, make())

    def _entries(self) -> list[dict[str, Any]]:
        differences = {(d.method, d.ways, d.shots, d.regime): d for d in self.differences}
        entries = []
        for row in self.rows:
            entry = dataclasses.asdict(row)
            found = differences.get((row.method, row.ways, row.shots, row.regime))
            if found:
                entry |= {
                    "against": found.against,
                    "difference": found.mean,
                    "difference_ci95": found.ci95,
                }
            entries.append(entry)
        return entries


def _row_notes(row: ResultRow) -> Iterator[str]:
    if row.note:
        yield row.note
    if row.diverged:
        yield (
            f"{row.diverged:,} of {row.tasks:,} tasks diverged with {row.method}: their objective "
            "ended higher than it was on the way, because steps overshoot."
        )


def accuracies_key(row: ResultRow) -> str:
    """Key of the per-task accuracies of a row, such as ``tim-adm/5-way/1-shot/balanced``."""
    return f"{row.method}/{row.ways}-way/{row.shots}-shot/{row.regime}"


def accuracies_path(json: _PathLike) -> Path:
    """Path of the per-task accuracies beside a JSON file of rows.

    Examples
    --------
    >>> accuracies_path("results/rows.json").as_posix()
    'results/rows.accuracies.safetensors'
    """
    path = Path(json)
    return path.parent / f"{path.stem}.accuracies.safetensors"


def write_accuracies(path: _PathLike, accuracies: Mapping[str, Tensor]) -> None:
    """Write per-task accuracies by key."""
    facts = {"unit": "accuracy, 0 to 1"}
    write_output(path, format_tensors(accuracies, facts, kind="accuracies"))


def read_accuracies(path: _PathLike) -> dict[str, Tensor]:
    """Read per-task accuracies that :func:`write_accuracies` wrote.

    Examples
    --------
    >>> import tempfile
    >>> from infoshot import bench
    >>> result = bench(methods="prototype", shots=1, tasks=20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.write(json=f"{folder}/rows.json")
    ...     accuracies = read_accuracies(f"{folder}/rows.accuracies.safetensors")
    >>> accuracies["prototype/5-way/1-shot/balanced"].shape
    torch.Size([20])
    """
    return read_tensor_file(Path(path), kind="accuracies")[0]


def paired_differences(
    rows: Sequence[ResultRow], accuracies: Mapping[str, Tensor], against: str
) -> list[PairedDifference]:
    """Differences of all other rows to the method ``against`` on the same tasks."""
    reference = {
        (row.ways, row.shots, row.regime): accuracies[row.accuracies_key]
        for row in rows
        if row.method == against
    }
    differences = []
    for row in rows:
        where = (row.ways, row.shots, row.regime)
        if row.method != against and where in reference:
            values = 100 * (accuracies[row.accuracies_key] - reference[where])
            mean, half = mean_interval(values)
            differences.append(
                PairedDifference(row.method, against, *where, len(values), mean, half)
            )
    return differences


def rows_to_json(rows: Sequence[ResultRow]) -> str:
    """Rows as a JSON list; unknown values (such as the interval of one task) are null.

    Examples
    --------
    >>> from infoshot import bench
    >>> rows = bench(methods="prototype", shots=1, tasks=20).rows
    >>> rows_from_json(rows_to_json(rows))[0].method
    'prototype'
    """
    return _dump([dataclasses.asdict(row) for row in rows])


def rows_from_json(text: str) -> list[ResultRow]:
    """Read rows that :func:`rows_to_json` wrote; other keys are ignored.

    Examples
    --------
    >>> from infoshot import bench
    >>> result = bench(methods="prototype", shots=[1, 5], tasks=20)
    >>> [row.shots for row in rows_from_json(result.to_json())]
    [1, 5]
    """
    known = {item.name for item in dataclasses.fields(ResultRow)}
    rows = []
    for entry in json.loads(text):
        values: dict[str, Any] = {name: entry[name] for name in entry if name in known}
        values.update((name, math.nan) for name, value in values.items() if value is None)
        rows.append(ResultRow(**values))
    return rows


def result_table(rows: Sequence[ResultRow]) -> tuple[list[str], Cells]:
    """Header and cells of a table: a line per method, number of ways and regime.

    Each number of shots has columns for accuracy, macro F1, AUROC (open sets only) and time. The
    column of regimes appears if there are several.

    Examples
    --------
    >>> from infoshot import bench
    >>> header, cells = result_table(bench(methods="prototype", shots=[1, 5], tasks=20).rows)
    >>> header
    ['method', 'assumes', 'ways', 'tasks', '1-shot', 'F1', 'ms/task', '5-shot', 'F1', 'ms/task']
    >>> cells[0][:4]
    ['prototype', 'nothing', '5', '20']
    """
    shots = sorted({row.shots for row in rows})
    optional = {
        "regime": len({row.regime for row in rows}) > 1,
        "F1": not all(math.isnan(row.macro_f1) for row in rows),
        "AUROC": not all(math.isnan(row.auroc) for row in rows),
    }
    header = ["method", "assumes", "ways", "regime", "tasks"]
    for shot in shots:
        header += [f"{shot}-shot", "F1", "AUROC", "ms/task"]
    shown = [optional.get(name, True) for name in header]
    lines = [header]
    for method, ways, regime in dict.fromkeys((row.method, row.ways, row.regime) for row in rows):
        of_line = {
            row.shots: row
            for row in rows
            if (row.method, row.ways, row.regime) == (method, ways, regime)
        }
        first = next(iter(of_line.values()))
        line = [method, ", ".join(first.assumes) or "nothing", str(ways), regime, str(first.tasks)]
        for shot in shots:
            line += _row_cells(of_line.get(shot))
        lines.append(line)
    header, *cells = (
        [cell for cell, keep in zip(line, shown, strict=True) if keep] for line in lines
    )
    return header, cells


def with_interval(mean: float, half_width: float) -> str:
    """Format a mean with its interval; NaN for the half-width leaves the interval out.

    Examples
    --------
    >>> with_interval(67.5, 0.251)
    '67.50 ± 0.25'
    """
    return f"{mean:.2f}" + _interval(half_width)


def _row_cells(row: ResultRow | None) -> list[str]:
    """Accuracy, macro F1, AUROC and time of a row, or dashes."""
    if row is None:
        return [_DASH] * 4
    return [
        with_interval(row.mean, row.ci95),
        _DASH if math.isnan(row.macro_f1) else f"{row.macro_f1:.2f}",
        _DASH if math.isnan(row.auroc) else with_interval(row.auroc, row.auroc_ci95),
        f"{row.per_task_ms:.3g}",
    ]


def _interval(half_width: float) -> str:
    return "" if math.isnan(half_width) else f" ± {half_width:.2f}"


def _task(row: ResultRow) -> str:
    return f"{row.ways}-way {row.shots}-shot {row.regime}"


def _dump(entries: Sequence[Mapping[str, Any]]) -> str:
    """Rows as JSON text."""
    plain = [{name: _plain(value) for name, value in entry.items()} for entry in entries]
    return json.dumps(plain, indent=1, allow_nan=False, default=lambda array: array.tolist()) + "\n"


def _plain(value: object) -> object:
    return None if isinstance(value, float) and math.isnan(value) else value


def _text(value: object) -> str:
    """Cell of a CSV file: empty if unknown, JSON for lists and mappings."""
    value = _plain(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, default=lambda array: array.tolist())
