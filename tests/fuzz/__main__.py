"""Run the fuzzer: ``python -m tests.fuzz --cases 10000 --seed 0 --out figures.json``.

``--kind npz --seed 1234`` repeats one case and says how it ended.
"""

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from pkgutil import iter_modules

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when PyTorch is imported
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # looking for them takes most of a command

import torch
from PIL import Image

import infoshot.cli
from tests.fuzz.kinds import KINDS
from tests.fuzz.runner import Outcome, open_folder, run_case

_LATE = (
    "jinja2", "matplotlib.figure", "matplotlib.backends.backend_agg", "pyarrow.parquet",
    "pyarrow.dataset", "pydantic.type_adapter", "typer._adapters", "sklearn.neighbors",
    "torch._dynamo", "infoshot.report.page", "infoshot.reproduction", "infoshot.training",
    "infoshot.labelling", "infoshot.shards",
)  # fmt: skip


def main() -> int:
    """Run cases, print a table and every failure; return how many failed, at most 1."""
    given = _parse()
    _import_everything()
    kinds = given.kind or sorted(KINDS)
    if given.cases is None:
        outcomes = _run([(kind, given.seed) for kind in kinds])
        print(*(outcome for outcome in outcomes if outcome.verdict != "failed"), sep="\n")
    else:
        cases = _share(kinds, given.cases, given.seed)
        outcomes = _run_processes(cases, given.processes)
    failures = [outcome for outcome in outcomes if outcome.verdict == "failed"]
    if given.cases is not None:
        print(table(outcomes))
    if given.out:
        figures = {"rows": summarise(outcomes), "failures": [f.as_json() for f in failures]}
        given.out.write_text(json.dumps(figures, indent=1) + "\n")
    return int(bool(failures))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, help="cases in all; default: one of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="default: all")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures and the failures as JSON")
    return parser.parse_args()


def _import_everything() -> None:
    """Import what commands import late, so that no case has to; compute nothing."""
    torch.set_num_threads(1)
    Image.init()
    commands = [f"infoshot.cli.{module.name}" for module in iter_modules(infoshot.cli.__path__)]
    for name in (*_LATE, *commands):
        with suppress(ImportError):
            importlib.import_module(name)


def _share(kinds: Sequence[str], n_cases: int, seed: int) -> list[tuple[str, int]]:
    """Share cases among kinds; kinds that take milliseconds get three times as many."""
    rounds = [kind for kind in kinds for _ in range(3 if KINDS[kind].fast else 1)]
    numbers = {kind: itertools.count(seed) for kind in kinds}
    return [(kind, next(numbers[kind])) for kind in islice(cycle(rounds), n_cases)]


def _run(cases: Sequence[tuple[str, int]]) -> list[Outcome]:
    """Run cases in this process; print failures when they occur."""
    outcomes = []
    with open_folder() as folder:
        for kind, seed in cases:
            outcomes.append(run_case(KINDS[kind], seed, folder))
            if outcomes[-1].verdict == "failed":
                print(outcomes[-1], flush=True)
    return outcomes


def _run_processes(cases: Sequence[tuple[str, int]], n: int) -> list[Outcome]:
    if n == 1:
        return _run(cases)
    with multiprocessing.get_context("fork").Pool(n) as pool:
        parts = pool.map(_run, [cases[number::n] for number in range(n)], chunksize=1)
    return [outcome for part in parts for outcome in part]


def summarise(outcomes: Sequence[Outcome]) -> list[dict]:
    """Count per kind, then over all kinds."""
    rows = []
    for kind in [*dict.fromkeys(sorted(o.kind for o in outcomes)), "all"]:
        own = [outcome for outcome in outcomes if kind in (outcome.kind, "all")]
        verdicts = Counter(outcome.verdict for outcome in own)
        counts = {name: verdicts[name] for name in ("refused", "accepted", "failed")}
        slowest, largest = max(o.seconds for o in own), max(o.megabytes for o in own)
        rows.append(
            {"kind": kind, "tried": len(own), **counts, "slowest_s": slowest, "most_mb": largest}
        )
    return rows


def table(outcomes: Sequence[Outcome]) -> str:
    """Format the counts as markdown."""
    lines = [
        "| kind | tried | refused | accepted | failed | slowest (s) | largest memory (MB) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in summarise(outcomes):
        *counts, slowest, largest = row.values()
        lines.append(f"| {' | '.join(map(str, counts))} | {slowest:.2f} | {largest:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    start = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    sys.exit(code)
