"""The numbers printed in the paper's tables, to lay measured ones beside.

They are data, in ``published.csv``, so that a report compares with all of them and retypes none.
Only Table 1 and the run-times say which methods are transductive; in the other tables TIM and
LaplacianShot are taken as transductive and the rest as not.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from infoshot.core import checks


@dataclass(frozen=True, kw_only=True)
class Published:
    """One printed number: an accuracy in percent, or, in the table of run-times, seconds per task.

    Attributes
    ----------
    table
        ``table1`` (the state of the art), ``table2`` (domain shift), ``table3`` (more classes),
        ``table4`` (ablation), ``table5`` (run-times).
    method
        As printed, so "Neg-cosine" in one table is "Neg-Cosine" in another.
    dataset
        Where tasks come from; ``mini-to-cub`` are tasks of CUB with a network of mini-ImageNet.
    parameters
        What is adapted to a task, ``W`` or ``phi+W``; empty where the table does not say.
    loss
        The terms of the objective that are used, in the ablation; empty elsewhere.
    """

    table: str
    method: str
    backbone: str
    transductive: bool
    dataset: str
    parameters: str
    loss: str
    ways: int
    shots: int
    value: float


def published_rows(table: str | None = None) -> tuple[Published, ...]:
    """All printed numbers, or those of one table, in the order of the paper.

    Examples
    --------
    >>> [(row.method, row.value) for row in published_rows("table5")][:2]
    [('SimpleShot', 0.009), ('TIM-ADM', 0.12)]
    """
    rows = _all_rows()
    if table is None:
        return rows
    checks.one_of("table", table, list(dict.fromkeys(row.table for row in rows)))
    return tuple(row for row in rows if row.table == table)


@cache
def _all_rows() -> tuple[Published, ...]:
    text = (resources.files("infoshot.reproduction") / "published.csv").read_text(encoding="utf-8")
    return tuple(
        Published(
            table=line["table"],
            method=line["method"],
            backbone=line["backbone"],
            transductive=line["transductive"] == "yes",
            dataset=line["dataset"],
            parameters=line["parameters"],
            loss=line["loss"],
            ways=int(line["ways"]),
            shots=int(line["shots"]),
            value=float(line["value"]),
        )
        for line in csv.DictReader(text.splitlines())
    )
