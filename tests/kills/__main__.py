"""Disturb every command at seeded moments: ``python -m tests.kills --moments 14``.

For each command it is first run without disturbance. Then, for each moment, it is started in a new
folder, gets SIGKILL, SIGINT or SIGTERM, and is run again. Checked are: what has its final name is
whole; a reader sees the state before or the state at the end; SIGINT and SIGTERM end the command
with at most one line and without a traceback; the second run succeeds, its outputs equal those of
the undisturbed run, and no other file is left but hidden temporary files, which are counted.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from pkgutil import iter_modules
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when PyTorch is imported

import torch
from PIL import Image

import infoshot.cli
from tests.kills.commands import COMMANDS, Command, look
from tests.kills.content import check_whole, list_files, read_content
from tests.kills.disturb import Ended, Moment, in_child, run, run_new_interpreter

_SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
_LATE = (
    "jinja2", "matplotlib.figure", "matplotlib.backends.backend_agg", "pyarrow.dataset",
    "sklearn.datasets", "pydantic.main", "torch._dynamo", "infoshot.cli.app", "infoshot.training",
    "infoshot.reproduction", "infoshot.report.page", "infoshot.labelling", "infoshot.shards",
)  # fmt: skip

_TEMPORARY = ".*.infoshot-part"  # of a process that was killed while it wrote
_LONG = ("demo", "train", "train, a system", "extract", "reproduce")


def main() -> int:
    """Disturb commands, print a table and every problem; return whether there was one."""
    given = _parse()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    Image.init()
    commands = [f"infoshot.cli.{module.name}" for module in iter_modules(infoshot.cli.__path__)]
    for name in (*_LATE, *commands):
        importlib.import_module(name)
    chosen = [c for c in COMMANDS if not given.command or c.name in given.command]
    jobs = [(command.name, given.moments, given.seed) for command in chosen]
    jobs.sort(key=lambda job: job[0] not in _LONG)  # first, so that both processes end together
    if given.processes == 1:
        rows = [_disturb_command(job) for job in jobs]
    else:
        with multiprocessing.get_context("fork").Pool(given.processes) as pool:
            rows = pool.map(_disturb_command, jobs, chunksize=1)
    print(table(rows))
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["problems"] for row in rows))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--moments", type=int, default=14, help="for each command")
    parser.add_argument("--seed", type=int, default=0)
    names = [command.name for command in COMMANDS]
    parser.add_argument("--command", action="append", choices=names, help="default: all")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser.parse_args()


def _disturb_command(job: tuple[str, int, int]) -> dict:
    name, n_moments, seed = job
    command = next(command for command in COMMANDS if command.name == name)
    root = Path(tempfile.mkdtemp(prefix="infoshot-kills-"))
    try:
        return Disturbances(command, root).run(n_moments, seed)
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        return {"command": name, "left": [], "problems": [repr(error)], "seconds": 0.0}
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Disturbances:
    """All disturbances of one command, below one folder."""

    def __init__(self, command: Command, root: Path) -> None:
        # Always the same path: some outputs contain their own.
        self.command, self.folder = command, root / "own"
        self.problems: list[str] = []
        self.left: list[str] = []
        (root / "inputs").mkdir()
        in_child(lambda: command.make(root / "inputs"))

    def run(self, n_moments: int, seed: int) -> dict:
        """Run undisturbed, then disturbed at every moment; return the counts."""
        self.command.enter(self.folder)
        at_first = self._look()
        ended = self._start()
        if ended.code or "Traceback" in ended.said:
            raise RuntimeError(f"the undisturbed command failed: {ended.said}")
        self.states = (at_first, self._look())
        self.expected = read_content(self.folder, self.command)
        self.names = list_files(self.folder)
        shutil.rmtree(self.folder)
        random = Random(f"{self.command.name}:{seed}")
        counts = dict.fromkeys(("SIGKILL", "SIGINT", "SIGTERM", "at work", "as undisturbed"), 0)
        for number in range(n_moments):
            moment = _draw_moment(random, number, ended)
            n_problems = len(self.problems)
            self.command.enter(self.folder)
            counts["at work"] += self._disturb(moment)
            shutil.rmtree(self.folder)
            counts[moment.signal.name] += 1
            counts["as undisturbed"] += len(self.problems) == n_problems
        return {
            "command": self.command.name, "seconds": round(ended.seconds, 2),
            "changes": ended.changes, **counts, "left": self.left, "problems": self.problems,
        }  # fmt: skip

    def _disturb(self, moment: Moment) -> bool:
        """Disturb one run and repeat it; return whether it was still at work."""
        ended = self._start(moment)
        for check in (partial(self._check_end, ended), self._check_state, self._check_again):
            try:
                check(moment)
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(place.filename).name}:{place.lineno}"
                self.problems.append(f"{moment}: {error} ({type(error).__name__}, {where})")
                print(f"{self.command.name}: {self.problems[-1]}", flush=True)
        return ended.code != 0

    def _check_state(self, _: Moment) -> None:
        in_child(lambda: check_whole(self.folder))
        seen = self._look()
        assert seen is None or seen in self.states, "a reader sees a mixed state"

    def _check_again(self, moment: Moment) -> None:
        ended = self._start()
        assert ended.code == 0, f"the second run failed: {ended.said[-500:]}"
        in_child(lambda: check_whole(self.folder))
        content = read_content(self.folder, self.command)
        differing = [name for name in self.expected if content.get(name) != self.expected[name]]
        assert not differing, f"differs from the undisturbed run: {differing}"
        assert self._look() == self.states[1], "a reader sees something else"
        left = list_files(self.folder) - self.names
        temporary = {name for name in left if Path(name).match(_TEMPORARY)}
        assert left == temporary, f"left behind: {sorted(left - temporary)}"
        self.left += [f"{moment}: {name}" for name in sorted(temporary)]

    def _check_end(self, ended: Ended, moment: Moment) -> None:
        assert not ended.stuck, "did not end"
        assert "Traceback" not in ended.said, f"a traceback: {ended.said[-1500:]}"
        assert "Exception ignored" not in ended.said, f"an exception: {ended.said[-1500:]}"
        lines = [
            line for line in ended.said.splitlines() if line.startswith(("Interrupted", "Error"))
        ]
        if ended.code == 0 or moment.signal == signal.SIGKILL:
            assert ended.code in (0, -signal.SIGKILL), (
                f"exit code {ended.code}: {ended.said[-500:]}"
            )
        elif moment.signal == signal.SIGINT and ended.code == -signal.SIGINT:
            done = read_content(self.folder, self.command) == self.expected
            assert done, "ended without a line before the work was done"
        elif moment.signal == signal.SIGINT:
            assert (ended.code, len(lines)) == (130, 1), f"exit code {ended.code}, {lines}"
        else:
            assert ended.code in (-signal.SIGTERM, 143), f"exit code {ended.code}, {lines}"
            assert len(lines) <= 1, lines

    def _start(self, moment: Moment | None = None) -> Ended:
        how = run_new_interpreter if self.command.new_interpreter else run
        return how(self.command, self.folder, moment)

    def _look(self) -> object:
        return in_child(lambda: look(self.command, self.folder))


def _draw_moment(random: Random, number: int, undisturbed: Ended) -> Moment:
    """Draw a moment: in turn by time and by the number of changes, with each signal in turn."""
    name = _SIGNALS[number // 2 % len(_SIGNALS)]
    if number % 2 and undisturbed.changes:
        return Moment(name, change=random.randint(1, max(undisturbed.changes, 1)))
    return Moment(name, seconds=random.uniform(0, undisturbed.seconds))


def table(rows: Sequence[dict]) -> str:
    """Format the counts as markdown."""
    names = ["SIGKILL", "SIGINT", "SIGTERM", "at work", "as undisturbed"]
    head = ["command", "seconds", *names, "temporary files left", "problems"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    total = {"command": "all", "seconds": sum(row["seconds"] for row in rows)}
    total |= {name: sum(row.get(name, 0) for row in rows) for name in names}
    total |= {key: [item for row in rows for item in row[key]] for key in ("left", "problems")}
    for row in [*rows, total]:
        counts = [str(row.get(name, 0)) for name in names]
        counts += [str(len(row["left"])), str(len(row["problems"]))]
        lines.append(f"| {row['command']} | {row['seconds']:.1f} | {' | '.join(counts)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    start = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    sys.exit(code)
