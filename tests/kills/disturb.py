"""Run a command in a real process, send it a signal at a chosen moment, and say what is left.

Processes are forked from this one, which has imported everything and computed nothing: a new
interpreter would take longer to import than most commands take to work. A moment is a time since
the start, or the n-th change of the file system (an audit hook counts them), so that the short
time in which files are written is hit as often as the long time in which they are computed.
"""

import os
import pickle
import runpy
import secrets
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

import infoshot
from infoshot.core import leftovers
from tests.kills.commands import Command

Result = TypeVar("Result")
_LONGEST = 300.0  # seconds; a command that is still there is stuck
_CHANGES = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Moment:
    """When to send which signal: after some seconds, or before the n-th change of files."""

    signal: signal.Signals
    seconds: float | None = None
    change: int | None = None

    def __str__(self) -> str:
        when = f"after {self.seconds:.3f} s" if self.change is None else f"at change {self.change}"
        return f"{self.signal.name} {when}"


@dataclass(frozen=True)
class Ended:
    """How a process ended; ``code`` is negative for a signal."""

    code: int
    said: str
    seconds: float
    changes: int
    stuck: bool = False


def run(command: Command, folder: Path, moment: Moment | None = None) -> Ended:
    """Run a command in a folder, in a forked process, disturbed or not."""
    log, counted = folder.parent / "said", folder.parent / "changes"
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_in_child(command, folder, (log, counted, writing), moment)
    os.close(writing)
    os.read(reading, 2)
    os.close(reading)
    start = time.perf_counter()
    if moment is not None and moment.seconds is not None:
        time.sleep(moment.seconds)
        os.kill(pid, moment.signal)  # of a child that has not been waited for
    code, stuck = _wait(pid, start + _LONGEST)
    said = log.read_text(errors="replace")
    changes = int(counted.read_text() or 0) if counted.exists() else 0
    return Ended(code, said, time.perf_counter() - start, changes, stuck)


def in_child(function: Callable[[], Result]) -> Result:
    """Call a function in a forked process, so that this one starts no threads."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            answer: object = function()
        except Exception as error:
            answer = AssertionError(f"{type(error).__name__}: {error}")
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pickle.load(pipe)
    os.waitpid(pid, 0)
    if isinstance(found, AssertionError):
        raise found
    return found


_START = """
import os, runpy, sys
import infoshot.core.interrupts
os.write(int(sys.argv.pop(1)), b"up")
sys.argv[0] = "infoshot"
runpy.run_module("infoshot", run_name="__main__", alter_sys=True)
"""


def run_new_interpreter(command: Command, folder: Path, moment: Moment | None = None) -> Ended:
    """Run a command in a new interpreter; time counts from where an interrupt can be handled.

    Before that Python itself starts, and prints its own lines at an interrupt.
    """
    reading, writing = os.pipe()
    with (folder.parent / "said").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(writing), *map(str, command.arguments)],
            cwd=folder, stdout=log, stderr=log, pass_fds=[writing],
            env={**os.environ, "PYTHONPATH": str(Path(infoshot.__file__).parents[1])},
        )  # fmt: skip
        os.close(writing)
        os.read(reading, 2)
        os.close(reading)
        start = time.perf_counter()
        if moment is not None and moment.seconds is not None:
            time.sleep(moment.seconds)
            process.send_signal(moment.signal)
        code = process.wait(_LONGEST)
        log.seek(0)
        return Ended(code, log.read(), time.perf_counter() - start, changes=0)


def _wait(pid: int, deadline: float) -> tuple[int, bool]:
    stuck = False
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), stuck
        if time.perf_counter() > deadline and not stuck:
            stuck = True
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _run_in_child(
    command: Command, folder: Path, reports: tuple[Path, Path, int], moment: Moment | None
) -> None:
    """Become ``python -m infoshot ARGUMENTS``; never returns."""
    (log, counted, ready), code, counter = reports, 1, [0]
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["INFOSHOT_CACHE"] = str(folder / "cache")
        sys.argv = ["infoshot", *map(str, command.arguments)]
        leftovers._TOKEN = secrets.token_hex(8)  # every process draws its own when it starts
        torch.set_num_threads(
            1
        )  # now: PyTorch replaces the pool of the parent, not safe in threads
        if command.before:
            command.before()
        sys.addaudithook(lambda event, values: _count(event, values, counter, moment))
        os.write(ready, b"up")
        runpy.run_module("infoshot", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        code = _tell(error)
    finally:
        changes = counter[0]
        threading._shutdown()  # waits for threads, as Python does at its end
        sys.stdout.flush()
        sys.stderr.flush()
        counted.write_text(str(changes))
        os._exit(code)


def _tell(error: BaseException) -> int:
    """Print what Python would print; an interrupt before the first line of ours is no fault."""
    package = str(Path(infoshot.__file__).parent)
    places = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyboardInterrupt) and not any(
        p.filename.startswith(package) for p in places
    ):
        os.write(2, b"Interrupted: before the command.\n")
        return 130
    traceback.print_exception(error)
    return 1


def _count(event: str, values: tuple, counter: list[int], moment: Moment | None) -> None:
    """Count a change of files that is about to happen, and send the signal at the n-th."""
    if event == "open":
        if not isinstance(values[2], int) or not values[2] & _WRITING or values[0] == os.devnull:
            return
    elif event not in _CHANGES:
        return
    counter[0] += 1
    if moment is not None and counter[0] == moment.change:
        os.kill(os.getpid(), moment.signal)
