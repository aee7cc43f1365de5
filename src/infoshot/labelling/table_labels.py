"""Label the unlabelled rows of a feature table, which is one task."""

import io
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.checks import few_queries
from infoshot.core.csv_file import csv_text
from infoshot.core.embedding_column import BATCH_ROWS
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.kept_columns import add_columns, write_batches
from infoshot.core.places import AnyPlace
from infoshot.core.spreadsheet import guard_formula
from infoshot.core.types import FeatureTable, Solution, Status, TaskBatch
from infoshot.features import ArrowTable, open_table, prepare
from infoshot.solvers import Method, Solver, resolve_method, solve_with_retry

_DTYPES = {"float32": torch.float32, "float64": torch.float64}

CSV_COLUMNS = ("row", "label", "confidence", "runner_up", "margin", "outlier_score")


@dataclass(frozen=True, eq=False)
class TableLabels:
    """Labels for the rows that had none.

    Parameters
    ----------
    table, method
        The table, and the name of the method.
    rows
        Numbers of the rows that were labelled, shape ``(query,)``.
    classes
        The labels that occur in the table, sorted, shape ``(class,)``.
    probabilities
        Probability of every class for every row, shape ``(query, class)``.
    solution
        The solution of the task.

    Examples
    --------
    >>> from infoshot import FeatureTable, label_table
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.2], [0.2, 0.9]])
    >>> table = FeatureTable(x, torch.tensor([0, 1, -1, -1]), class_names=("cat", "dog"))
    >>> found = label_table(table, method="prototype")
    >>> found.rows, found.labels
    (tensor([2, 3]), tensor([0, 1]))
    """

    table: FeatureTable
    method: str
    rows: Tensor
    classes: Tensor
    probabilities: Tensor
    solution: Solution

    @property
    def labels(self) -> Tensor:
        """The label of every row in ``rows``, shape ``(query,)``."""
        return self.classes[self.probabilities.argmax(-1)]

    def summary(self) -> dict[str, Any]:
        """Count rows and labels, for people and machines."""
        confidence, label = self.probabilities.max(-1)
        counts = label.bincount(minlength=len(self.classes)).tolist()
        return {
            "method": self.method,
            "labelled_before": int((self.table.labels >= 0).sum()),
            "labelled_now": len(self.rows),
            "mean_confidence": float(confidence.mean()),
            "n_steps": int(self.solution.n_steps[0]),
            "note": self.solution.notes[0] if self.solution.notes else "",
            "classes": dict(zip(self._class_names(), counts, strict=True)),
        }

    def to_csv(self, *, csv_safe: bool = False) -> str:
        """Format one line per row: label, confidence, runner-up, margin, outlier score.

        With ``csv_safe``, an apostrophe is put before a name that a spreadsheet program would run
        as a formula.
        """
        names = self._class_names()
        names = [guard_formula(name) for name in names] if csv_safe else names
        best, place = self.probabilities.topk(2, dim=-1)
        scores = self.solution.outlier_scores[0].tolist()
        lines = []
        for row, (first, second), (p, p_next), score in zip(
            self.rows.tolist(), place.tolist(), best.tolist(), scores, strict=True
        ):
            sure, margin, odd = f"{p:.6f}", f"{p - p_next:.6f}", f"{score:.6f}"
            lines.append((str(row), names[first], sure, names[second], margin, odd))
        return csv_text(CSV_COLUMNS, lines)

    def to_parquet(self) -> bytes:
        """Format the same columns as Parquet, behind the other columns of a Parquet file."""
        import pyarrow as pa

        names = pa.array(self._class_names(), pa.string())
        best, place = self.probabilities.double().topk(2, dim=-1)
        rows, scores = self.rows.numpy(), self.solution.outlier_scores[0].double().cpu().numpy()
        own = {
            "row": pa.array(rows),
            "label": names.take(pa.array(place[:, 0].numpy())),
            "confidence": pa.array(best[:, 0].numpy()),
            "runner_up": names.take(pa.array(place[:, 1].numpy())),
            "margin": pa.array((best[:, 0] - best[:, 1]).numpy()),
            "outlier_score": pa.array(scores),
        }
        batches: Iterable[Any] = [pa.RecordBatch.from_pydict(own)]
        if self.table.columns is not None:
            kept = self.table.columns.take(rows).to_batches(max_chunksize=BATCH_ROWS)
            batches = add_columns(kept, own)
        sink = io.BytesIO()
        write_batches(sink, batches)
        return sink.getvalue()

    def _class_names(self) -> list[str]:
        return [self.table.class_name(int(label)) for label in self.classes]


def label_table(
    features: AnyPlace | ArrowTable | FeatureTable,
    *,
    method: str | Method | Solver[Any] = "tim-auto",
    settings: Mapping[str, Any] | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    column: str | None = None,
    label_column: str | None = None,
) -> TableLabels:
    """Label every row whose label is -1 from the rows that have a label.

    A solve that diverges is repeated with smaller steps, and the note of the solution says so.

    Parameters
    ----------
    features
        A feature file or table, of any embedded data: images, text, audio. A folder or a pattern
        stands for its Parquet files. An Arrow table, such as a data frame of polars, has the same
        columns as Parquet.
    method
        Name of a method, ``package.module:Name``, a ``Method`` or a solver.
    settings
        Hyperparameters of the method to change.
    device, dtype
        Where to solve, in ``float32`` or ``float64``.
    column, label_column
        Columns of Parquet or of an Arrow table, as :func:`infoshot.read_features` takes them.

    Returns
    -------
    Labels, probabilities and the solution.

    Raises
    ------
    InvalidArgumentError, DataError
        If an argument is not allowed, fewer than two classes have labels, or no row is unlabelled.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.2], [0.2, 0.9]])
    >>> table = FeatureTable(x, torch.tensor([0, 1, -1, -1]))
    >>> label_table(table, method="prototype").labels.tolist()
    [0, 1]
    """
    chosen = resolve_method(method).with_settings(settings or {})
    checks.device(device)
    if dtype not in _DTYPES:
        raise InvalidArgumentError(checks.unknown_name("dtype", dtype, _DTYPES))
    table = open_table(features, column=column, label_column=label_column)
    unlabelled = table.labels < 0
    rows = unlabelled.nonzero().flatten()
    classes, y_sup = table.labels[~unlabelled].unique(return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"labelled rows of at least two classes are needed; got {len(classes)} (label -1 marks "
            "the unlabelled rows, in Parquet also an empty one, and every other label a class)."
        )
    if not len(rows):
        raise DataError(
            "there is nothing to label: no row has the label -1, or in Parquet an empty one."
        )
    few = few_queries(len(rows), len(classes))
    if few and chosen.expects_balance:
        warnings.warn(few, UserWarning, stacklevel=2)
    z = prepare(table, chosen.preparation).to(device, _DTYPES[dtype])
    tasks = TaskBatch(
        z[~unlabelled].unsqueeze(0), y_sup.unsqueeze(0), z[rows].unsqueeze(0), len(classes)
    )
    solution = solve_with_retry(chosen.solver, tasks)
    if solution.status[0] == Status.NON_FINITE:
        raise DataError(
            f"{chosen.name} did not stay finite on this table, so nothing was labelled; check its "
            "settings."
        )
    probabilities = solution.probabilities[0].cpu()
    return TableLabels(table, chosen.name, rows, classes, probabilities, solution)
