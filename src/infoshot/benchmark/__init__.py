"""The few-shot protocol: tasks in, accuracies with intervals out."""

from infoshot.benchmark.api import bench
from infoshot.benchmark.cell import Protocol, score_cell
from infoshot.benchmark.results import (
    BenchResult,
    PairedDifference,
    read_accuracies,
    result_table,
    rows_from_json,
    rows_to_json,
    with_interval,
)

__all__ = [
    "BenchResult",
    "PairedDifference",
    "Protocol",
    "bench",
    "read_accuracies",
    "result_table",
    "rows_from_json",
    "rows_to_json",
    "score_cell",
    "with_interval",
]
