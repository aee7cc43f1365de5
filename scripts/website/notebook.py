"""Run a script cell by cell, as a notebook would, and store what it prints and draws.

python scripts/website/notebook.py SCRIPT OUT.json

A line ``# %% [markdown]`` starts a cell of text, whose lines are comments; ``# %%`` starts a cell
of code. The value of a last expression is shown, unless it is ``None``. An exception ends the run.
"""

import ast
import base64
import contextlib
import io
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

_MARK = re.compile(r"^# %%(?P<text> \[markdown\])?.*\n", re.MULTILINE)


def split_cells(script: str) -> list[dict[str, Any]]:
    """Split a script into cells of ``kind`` ``markdown`` or ``code``, with their ``source``."""
    starts = list(_MARK.finditer(script))
    ends = [mark.start() for mark in starts[1:]] + [len(script)]
    cells = []
    for mark, end in zip(starts, ends, strict=True):
        source = script[mark.end() : end].strip("\n")
        if mark["text"]:
            source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        cells.append({"kind": "markdown" if mark["text"] else "code", "source": source})
    return cells


def run_cells(cells: list[dict[str, Any]], name: str) -> None:
    """Run the code in order, in a module of its own, and add ``text`` and ``figures`` to it."""
    module = sys.modules[name] = types.ModuleType(name)
    for number, cell in enumerate(cells):
        if cell["kind"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                _run(cell["source"], f"{name}, cell {number}", vars(module))
            cell["text"] = printed.getvalue()
            cell["figures"] = _take_figures()


def _run(source: str, place: str, names: dict[str, Any]) -> None:
    """Run code, and print the value of its last expression as a notebook does."""
    tree = ast.parse(source, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), place, "eval"), names)
        if value is not None:
            print(repr(value))


def _take_figures() -> list[str]:
    """Return the open figures of matplotlib as PNG in base64, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    from matplotlib import pyplot

    pictures = []
    for number in pyplot.get_fignums():
        stream = io.BytesIO()
        pyplot.figure(number).savefig(stream, format="png", dpi=120, bbox_inches="tight")
        pictures.append(base64.b64encode(stream.getvalue()).decode())
    pyplot.close("all")
    return pictures


def main() -> None:
    """Run the script that is named and write its cells."""
    script, out = map(Path, sys.argv[1:])
    cells = split_cells(script.read_text(encoding="utf-8"))
    run_cells(cells, script.stem)
    out.write_text(json.dumps(cells))


if __name__ == "__main__":
    main()
