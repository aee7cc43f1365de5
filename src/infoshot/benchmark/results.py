"""Result rows on disk."""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from infoshot.core.types import ResultRow


def rows_to_json(rows: Sequence[ResultRow]) -> str:
    """Rows as a JSON list; what is not known (the interval of one task) is null."""
    entries = [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in dataclasses.asdict(row).items()
        }
        for row in rows
    ]
    return (
        json.dumps(entries, indent=1, allow_nan=False, default=lambda array: array.tolist()) + "\n"
    )


def rows_from_json(text: str) -> list[ResultRow]:
    """Rows as :func:`rows_to_json` wrote them."""
    entries: list[dict[str, Any]] = json.loads(text)
    for entry in entries:
        entry.update((name, math.nan) for name, value in entry.items() if value is None)
    return [ResultRow(**entry) for entry in entries]
