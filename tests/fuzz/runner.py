"""Run cases, each in a process of its own: a kind of input and a seed.

A case is *refused* with an error of this package in one line, *accepted* (then the result is
checked), or it *failed*: another exception, a failed check, a signal, more than 5 seconds or more
than 1 GB. The process is forked from this one, which has imported everything and computed nothing,
so that a case takes milliseconds and a crash, a hang or a leak touches no other case. Seconds are
those of the processor, so that a busy machine does not matter; the clock only ends a case that
waits without end.
"""

import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from typer.testing import CliRunner

from infoshot.cli.app import app
from infoshot.core.errors import InfoshotError

MOST_SECONDS, MOST_MEGABYTES = 5.0, 1000.0
_KILLED_AFTER = 10  # seconds of the processor
_HANGS_AFTER = 60.0  # seconds of the clock
_ADDRESSES = 6 * 2**30  # bytes that a case may reserve, so that it cannot exhaust the machine
_LARGEST_FILE = 2**30
_WORK = Path("case", "some", "files")  # so deep that "../.." stays inside
_LONGEST = 600  # characters of a message that are kept


@dataclass
class Case:
    """What an attempt gets: its random numbers, the intact files, and an empty folder."""

    random: Random
    intact: Path
    work: Path
    pipe: int = -1

    def note(self, text: str) -> None:
        """Record what was done to the input, also for a case that crashes."""
        _send(self.pipe, {"note": text[:_LONGEST]})

    def copy(self, *names: str) -> None:
        """Copy intact files or folders into the folder of this case."""
        for name in names:
            source, target = self.intact / name, self.work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target)


class Kind(ABC):
    """A kind of input; kinds with the same ``made`` share their intact files."""

    name: str
    made = ""
    fast = False

    @abstractmethod
    def prepare(self, intact: Path) -> None:
        """Make the intact files, once; in a process of its own."""

    def check(self, case: Case) -> None:
        """Use the intact files as the attempts do, without damage; nothing may be refused."""
        return

    @abstractmethod
    def attempt(self, case: Case) -> None:
        """Damage a copy and use it; raise what the package raises, or fail an assertion."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    kind: str
    seed: int
    verdict: str
    seconds: float
    megabytes: float
    detail: str = ""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        done = "; ".join(self.notes)
        repeat = f"python -m tests.fuzz --kind {self.kind} --seed {self.seed}"
        return f"{self.kind} {self.verdict}: {self.detail}\n    input: {done}\n    repeat: {repeat}"

    def as_json(self) -> dict:
        return asdict(self)


class RefusedError(Exception):
    """A command ended with exit code 2."""


class CommandFailedError(Exception):
    """A command ended with another exit code, or its output is not plain."""


def run_command(*arguments: object) -> str:
    """Run a command in this process and return what it printed.

    Raises
    ------
    RefusedError
        If it ends with exit code 2 and one sentence.
    CommandFailedError
        If it ends in any other way but success, or prints control characters.
    """
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    odd = [c for c in result.output if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    if odd:
        raise CommandFailedError(f"prints the control character {odd[0]!r}: {result.output!r}")
    errors = [line for line in result.stderr.split("\n") if line.startswith("Error: ")]
    if result.exit_code == 2:
        last = result.stderr.rstrip("\n").rpartition("\n")[2]
        if "Usage: " not in result.stderr and errors != [last]:
            raise CommandFailedError(f"is refused with more than one sentence: {result.stderr!r}")
        raise RefusedError(last)
    if result.exit_code:
        said = errors[-1] if errors else f"{result.stderr[-300:]!r} {result.exception!r}"
        raise CommandFailedError(f"exit code {result.exit_code}: {said}")
    return result.output


@contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder for the cases of one process, and remove it at the end.

    Its path always has the same length, since some files contain their own path.
    """
    folder = Path(tempfile.mkdtemp(prefix="infoshot-fuzz-", dir="/tmp"))
    try:
        yield folder
    finally:
        _remove(folder)


def _prepare(kind: Kind, folder: Path) -> Path:
    """Make and check the intact files of a kind, once."""
    intact, checked = folder / (kind.made or kind.name), folder / f"{kind.name} checked"
    if not intact.exists():
        _make(kind, folder / _WORK, intact)
    if not checked.exists():
        checked.touch()
        outcome = _run(kind.check, (kind.name, -1), intact, folder)
        if outcome.verdict != "accepted":
            raise RuntimeError(f"the intact files of '{kind.name}' are {outcome}")
    return intact


def _make(kind: Kind, work: Path, intact: Path) -> None:
    """Make the intact files of a kind, where the cases use their copies."""
    pid = os.fork()
    if pid == 0:
        try:
            _enter(work)
            kind.prepare(work)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        log = (work.parents[1] / "log").read_text(errors="replace")
        raise RuntimeError(f"the intact files of '{kind.name}' could not be made: {log}")
    work.rename(intact)
    _remove(work.parents[1])


def run_case(kind: Kind, seed: int, folder: Path) -> Outcome:
    """Run one case; ``folder`` is that of :func:`open_folder`."""
    return _run(kind.attempt, (kind.name, seed), _prepare(kind, folder), folder)


def _run(
    attempt: Callable[[Case], None], name: tuple[str, int], intact: Path, folder: Path
) -> Outcome:
    """Run an attempt in a forked process, and say how it ended."""
    idle = _idle_megabytes()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        random = Random("{}:{}".format(*name))
        _run_in_child(attempt, Case(random, intact, folder / _WORK, writing))
    os.close(writing)
    try:
        messages, hangs = _listen(reading)
        if hangs:
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        log = (folder / "case" / "log").read_text(errors="replace")
    finally:
        os.close(reading)
        _remove(folder / "case")
    seconds = usage.ru_utime + usage.ru_stime
    megabytes = max(0.0, usage.ru_maxrss / 1000 - idle)
    last = messages[-1] if messages else {}
    verdict, detail = last.get("verdict", "failed"), last.get("detail", "")
    if hangs:
        verdict, detail = "failed", f"does not end in {_HANGS_AFTER:.0f} s"
    elif os.WIFSIGNALED(status):
        received = signal.Signals(os.WTERMSIG(status)).name
        verdict, detail = "failed", f"{received} after {seconds:.1f} s; {_innermost(log)}"
    elif verdict != "failed" and seconds > MOST_SECONDS:
        verdict, detail = "failed", f"{verdict} after {seconds:.1f} s"
    elif verdict != "failed" and megabytes > MOST_MEGABYTES:
        verdict, detail = "failed", f"{verdict} with {megabytes:.0f} MB"
    notes = [message["note"] for message in messages if "note" in message]
    return Outcome(*name, verdict, round(seconds, 3), round(megabytes, 1), detail, notes)


def _run_in_child(attempt: Callable[[Case], None], case: Case) -> None:
    """Run the attempt and report how it ended; never returns."""
    try:
        _limit()
        _enter(case.work)
        attempt(case)
        verdict, detail = "accepted", ""
    except (InfoshotError, RefusedError) as error:
        verdict, detail = "refused", str(error)
        if "\n" in detail or not detail:
            verdict, detail = "failed", f"refused with other than one line: {detail!r}"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        verdict = "failed"
        detail = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    _send(case.pipe, {"verdict": verdict, "detail": detail[:_LONGEST]})
    os._exit(0)


def _limit() -> None:
    """Set the limits of a case."""
    os.setsid()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    addresses = pages * resource.getpagesize() + _ADDRESSES
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, _KILLED_AFTER),
        (resource.RLIMIT_AS, addresses),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
    ):
        resource.setrlimit(limit, (most, most))


def _enter(work: Path) -> None:
    """Make the folder of a case the current one, and write all output beside it."""
    work.mkdir(parents=True)
    os.chdir(work)
    os.environ["INFOSHOT_CACHE"] = str(work / "cache")
    log = os.open(work.parents[1] / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    faulthandler.enable(sys.stderr)
    warnings.simplefilter("ignore")


def _listen(reading: int) -> tuple[list[dict], bool]:
    """Read the messages of a case until it ends; also return whether it hangs."""
    deadline, text = time.monotonic() + _HANGS_AFTER, b""
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(reading, 2**16) if ready else b""
        text += part
        if not part:
            return [json.loads(line) for line in text.splitlines()], not ready


def _send(pipe: int, message: dict) -> None:
    if pipe >= 0:
        os.write(pipe, json.dumps(message).encode() + b"\n")


def _innermost(log: str) -> str:
    """Find the innermost line of Python that faulthandler wrote."""
    lines = [line.strip() for line in log.splitlines() if line.startswith("  File ")]
    return lines[0] if lines else "no traceback"


def _remove(folder: Path) -> None:
    """Remove a folder, whatever permissions a case has left."""

    def allow(function, path, _):
        Path(path).parent.chmod(0o700)
        function(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=allow)


_idle: list[float] = []


def _idle_megabytes() -> float:
    """Memory of a forked process that does nothing."""
    if not _idle:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        _idle.append(os.wait4(pid, 0)[2].ru_maxrss / 1000)
    return _idle[0]
