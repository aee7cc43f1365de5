"""Write the table of results/core.json into README.md; a test checks that they agree.

python scripts/readme_table.py
"""

import re
from pathlib import Path

from infoshot.benchmark import result_table, rows_from_json

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_tables(readme: str) -> str:
    """Return the text with every marked table replaced by the table of its rows."""
    return MARKED.sub(lambda match: match[1] + _table(ROOT / match[2]) + match[3], readme)


def _table(path: Path) -> str:
    header, cells = result_table(rows_from_json(path.read_text()))
    lines = [header, ["---"] * len(header), *cells]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


if __name__ == "__main__":
    (ROOT / "README.md").write_text(fill_tables((ROOT / "README.md").read_text()))
