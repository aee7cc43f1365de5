"""Pages of the tutorials and of the gallery: scripts that are run while the site is built.

A script ``docs/tutorials/name.py`` becomes a page and a notebook. In ``docs/gallery`` each script
draws one figure, which the page of the gallery shows.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("tutorials", "gallery")
_AT_ONCE = 2  # scripts; each runs on one core

Cells = list[dict[str, Any]]


def navigation() -> list[Any]:
    """Return the part of the navigation with the tutorials, and the gallery in it."""
    tutorials, gallery = (
        [
            f"{folder}/index.md",
            *({_title(path): f"{folder}/{path.stem}.md"} for path in find_scripts(folder)),
        ]
        for folder in _FOLDERS
    )
    return [*tutorials, {"Gallery": gallery}]


def find_scripts(folder: str) -> list[Path]:
    """Return the scripts of a folder, in the order of its page or else of their names."""
    place = ROOT / "docs" / folder
    index = place / "index.md"
    text = index.read_text(encoding="utf-8") if index.exists() else ""
    return sorted(place.glob("*.py"), key=lambda path: (text.find(path.name), path.name))


def write_pages() -> dict[str, str | bytes]:
    """Run all scripts; return pages, notebooks and pictures by their place in the site."""
    files: dict[str, str | bytes] = {}
    for path, cells in run_scripts().items():
        place = f"{path.parent.name}/{path.stem}"
        files[f"{place}.md"] = write_page(cells, path.stem)
        files[f"{place}.ipynb"] = write_notebook(cells)
        figures = [figure for cell in cells for figure in cell.get("figures", ())]
        for number, figure in enumerate(figures):
            files[f"{place}-{number}.png"] = base64.b64decode(figure)
    files["gallery/index.md"] = _write_gallery()
    return files


@cache
def run_scripts() -> dict[Path, Cells]:
    """Run every script in a process and a folder of its own."""
    scripts = [path for folder in _FOLDERS for path in find_scripts(folder)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(scripts, pool.map(run_script, scripts), strict=True))


def run_script(path: Path) -> Cells:
    """Run a script and return its cells with what they print and draw.

    Raises
    ------
    RuntimeError
        If the script raises an exception.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cells.json"
        own = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "INFOSHOT_CACHE": f"{folder}/cache"}
        runner = Path(__file__).with_name("notebook.py")
        command = [sys.executable, str(runner), str(path), str(out)]
        result = subprocess.run(
            command, cwd=folder, env=os.environ | own, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise RuntimeError(f"{path.name} failed:\n{result.stderr}")
        cells: Cells = json.loads(out.read_text())
        return cells


def write_page(cells: Cells, name: str) -> str:
    """Return the page of a script that has been run."""
    parts, number = [], 0
    for cell in cells:
        if cell["kind"] == "markdown":
            parts.append(cell["source"])
            continue
        parts.append(f"```python\n{cell['source']}\n```")
        if cell["text"].strip():
            parts.append(f"```text\n{cell['text'].rstrip()}\n```")
        for _ in cell["figures"]:
            parts.append(f"![Figure {number + 1} of this page]({name}-{number}.png)")
            number += 1
    links = (f'<a href="{name}.{kind}" download>{kind}</a>' for kind in ("ipynb", "py"))
    parts.append(f"Download this page: {', '.join(links)}")
    return "\n\n".join(parts) + "\n"


def write_notebook(cells: Cells) -> str:
    """Return a script that has been run as a Jupyter notebook."""
    written = []
    for number, cell in enumerate(cells):
        entry: dict[str, Any] = {
            "id": f"cell-{number}",
            "cell_type": cell["kind"],
            "metadata": {},
            "source": cell["source"],
        }
        if cell["kind"] == "code":
            outputs: list[dict[str, Any]] = []
            if cell["text"]:
                outputs.append({"output_type": "stream", "name": "stdout", "text": cell["text"]})
            for figure in cell["figures"]:
                picture = {"image/png": figure}
                outputs.append({"output_type": "display_data", "data": picture, "metadata": {}})
            entry |= {"execution_count": None, "outputs": outputs}
        written.append(entry)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {
        "cells": written,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1) + "\n"


def _write_gallery() -> str:
    """Return the page with all figures of the gallery."""
    shown = []
    for path in find_scripts("gallery"):
        title = _title(path)
        shown.append(
            f'<a class="figure" href="{path.stem}.html"><img src="{path.stem}-0.png" alt="">'
            f"<span>{title}</span></a>"
        )
    return (
        "# Gallery\n\nEach page is a short script that draws one figure, with the features that "
        "come with the package. The scripts run while this site is built.\n\n"
        '<div class="gallery">\n' + "\n".join(shown) + "\n</div>\n"
    )


def _title(script: Path) -> str:
    """Return the first heading of a script."""
    return script.read_text(encoding="utf-8").partition("# # ")[2].partition("\n")[0]
