"""The server's side of a worker: start it, ask it, notice when it ends."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import infoshot
from infoshot.core.errors import DataError

# Threads of PyTorch that wait for each other sleep: beside other work, such as the browser, a solve
# then takes half of the time.
_SLEEPING_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


class WorkerProcess:
    """A process that computes for a review; it is started when it is needed first.

    Parameters
    ----------
    run
        Folder of the run.
    scratch
        Folder for arrays that it returns.
    """

    def __init__(self, run: Path, scratch: Path) -> None:
        self._arguments = [str(run.absolute()), str(scratch)]
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._lock = threading.Lock()  # no process is started once it is closed

    def start(self) -> None:
        """Start it now, so that its imports are done when it is asked."""
        with self._lock:
            if self._closed or (self._process is not None and self._process.poll() is None):
                return
            source = str(Path(infoshot.__file__).parents[1])
            paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "infoshot.reviewing.worker", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**_SLEEPING_THREADS, **os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # Ctrl-C is for the server, which then closes this process
            )

    def ask(self, task: str, **request: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
        """Send a request; yield the replies to it.

        Raises
        ------
        DataError
            If the task failed, or the process ended.
        """
        self.start()
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise DataError("the review is closed.")
        try:
            process.stdin.write(json.dumps({"task": task, **request}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                reply = json.loads(line)
                if reply["kind"] == "done":
                    return
                if reply["kind"] == "failed":
                    raise DataError(reply["error"])
                yield reply
        except (OSError, ValueError) as error:
            raise DataError(f"the process that solves cannot be reached ({error}).") from error
        raise DataError("the process that solves ended unexpectedly; perhaps memory ran out.")

    def close(self) -> None:
        """End it now; a run that it was writing is whole."""
        with self._lock:
            self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
