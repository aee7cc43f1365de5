"""Recompute a sample of the committed accuracies, and compare them to the last printed digit.

python scripts/compare_results.py [--source SRC] [--out FILE] [--against FILE]

Runs ``infoshot bench`` in new processes, so that it works with any version of the package:
``--source`` is the ``src`` folder of the version to run, by default that of this clone. ``--out``
stores the numbers, ``--against`` compares them with stored numbers of another version, digit by
digit. Takes about two minutes on two cores. The exit code is 1 if a number differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METHODS = "prototype,simpleshot,tim-adm,tim-auto"
# Cells of results/core.json (10,000 tasks, CPU), and cells of every method with fewer tasks, which
# are compared between versions.
COMMITTED = ["--methods", METHODS, "--tasks", "10000"]
SAMPLE_METHODS = (
    "prototype,shrunken-prototype,simpleshot,matching,label-propagation,bd-cspn,laplacianshot,"
    "pt-map,soft-kmeans,paddle,oslo,tim-adm,tim-auto"
)
SAMPLES = [
    ["--methods", SAMPLE_METHODS, "--tasks", "300", "--regime", regime]
    for regime in ("balanced", "dirichlet:2", "effective:2", "few:5", "open:25")
]
SAMPLES.append(["--methods", "tim-gd,alpha-tim,baseline,baseline++,ostim", "--tasks", "12"])
SAMPLES.append(["--methods", "prototype,tim-adm", "--tasks", "200", "--ways", "10,20"])


def main() -> int:
    """Run the sample and compare it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=ROOT / "src")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    committed = bench(COMMITTED, arguments.source)
    numbers = dict(committed)
    for options in SAMPLES:
        numbers |= bench(options, arguments.source)
    if arguments.out:
        arguments.out.write_text(json.dumps(numbers, indent=1) + "\n")
    wrong = compare(committed, read_committed(), "results/core.json", digits=2)
    if arguments.against:
        other = json.loads(arguments.against.read_text())
        wrong += compare(numbers, other, str(arguments.against), digits=None)
    return 1 if wrong else 0


def bench(options: list[str], source: Path) -> dict[str, list[float]]:
    """Return mean and half-width of the interval for each cell."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "infoshot", "bench", *options, "--json", str(rows)]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return {cell_name(row): [row["mean"], row["ci95"]] for row in json.loads(rows.read_text())}


def read_committed() -> dict[str, list[float]]:
    """Read the rows of results/core.json."""
    rows = json.loads((ROOT / "results" / "core.json").read_text())
    return {cell_name(row): [row["mean"], row["ci95"]] for row in rows}


def cell_name(row: dict[str, object]) -> str:
    """Name a cell by everything that determines its number."""
    keys = ("method", "ways", "shots", "queries", "tasks", "seed", "regime")
    return " ".join(str(row[key]) for key in keys)


def compare(
    found: dict[str, list[float]], expected: dict[str, list[float]], name: str, digits: int | None
) -> int:
    """Print cells that differ, and how many do not."""
    shared = sorted(found.keys() & expected.keys())
    wrong = 0
    for cell in shared:
        pair = found[cell], expected[cell]
        if digits is not None:
            pair = tuple([f"{value:.{digits}f}" for value in values] for values in pair)
        if pair[0] != pair[1]:
            wrong += 1
            print(f"{cell}: {pair[0]}, {name} has {pair[1]}")
    print(f"{len(shared) - wrong} of {len(shared)} cells equal {name}.")
    return wrong + (not shared)


if __name__ == "__main__":
    sys.exit(main())
