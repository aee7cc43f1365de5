"""The few-shot protocol: tasks in, accuracies with intervals out."""

from infoshot.benchmark.cell import Protocol, run_cell, score_cell
from infoshot.benchmark.results import rows_from_json, rows_to_json
from infoshot.benchmark.tables import result_table

__all__ = ["Protocol", "result_table", "rows_from_json", "rows_to_json", "run_cell", "score_cell"]
