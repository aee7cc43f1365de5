"""Label the unlabelled rows of one feature table: the whole table is one task."""

import csv
import io
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import DataError
from infoshot.core.types import FeatureTable, Solution, Status, TaskBatch
from infoshot.features import prepare
from infoshot.solvers import Method, solve

CSV_COLUMNS = ("row", "label", "confidence", "runner_up", "margin", "outlier_score")


@dataclass(frozen=True, eq=False)
class Labelling:
    """Labels for the rows that had none.

    Parameters
    ----------
    rows
        Positions in the table of the rows that were labelled here, shape ``(query,)``.
    classes
        The labels that occur in the table, in order, shape ``(class,)``.
    probabilities
        Of every class for every row, shape ``(query, class)``.
    solution
        What the solver says of this task.
    """

    table: FeatureTable
    rows: Tensor
    classes: Tensor
    probabilities: Tensor
    solution: Solution

    def to_csv(self) -> str:
        """A line per row: label and runner-up by name, confidence, margin, outlier score."""
        names = [self.table.class_name(int(label)) for label in self.classes]
        best, place = self.probabilities.topk(2, dim=-1)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        scores = self.solution.outlier_scores[0].tolist()
        for row, (first, second), (p, p_next), score in zip(
            self.rows.tolist(), place.tolist(), best.tolist(), scores, strict=True
        ):
            margin = f"{p - p_next:.6f}"
            writer.writerow((row, names[first], f"{p:.6f}", names[second], margin, f"{score:.6f}"))
        return text.getvalue()


def label_table(
    table: FeatureTable,
    method: Method,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Labelling:
    """Label every row whose label is -1 from the rows that have one.

    Raises
    ------
    DataError
        If there is nothing to learn from or nothing to label.
    """
    checks.device(device)
    unlabelled = table.labels < 0
    rows = unlabelled.nonzero().flatten()
    classes, y_sup = table.labels[~unlabelled].unique(return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"labelled rows of at least two classes are needed; got {len(classes)} "
            "(label -1 marks the unlabelled rows, every other label a class)."
        )
    if not len(rows):
        raise DataError("there is nothing to label: no row has the label -1.")
    z = prepare(table, method.preparation).to(device, dtype)
    tasks = TaskBatch(
        z[~unlabelled].unsqueeze(0), y_sup.unsqueeze(0), z[rows].unsqueeze(0), len(classes)
    )
    solution = solve(method.solver, tasks)
    if solution.status[0] == Status.NON_FINITE:
        raise DataError(
            f"{method.name} went non-finite on this table; nothing was labelled. Are the settings "
            "extreme?"
        )
    return Labelling(table, rows, classes, solution.probabilities[0].cpu(), solution)
