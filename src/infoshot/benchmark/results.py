"""Result rows on disk."""

import dataclasses
import json
import math
from collections.abc import Sequence

from infoshot.types import ResultRow


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
