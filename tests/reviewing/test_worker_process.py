"""The process that solves ends with its review, also if it was just being started."""

import subprocess
import sys
import threading
import time

from infoshot.reviewing.worker_process import WorkerProcess


def test_a_process_that_is_started_while_the_review_closes_ends_too(monkeypatch, tmp_path):
    real, begun, made = subprocess.Popen, threading.Event(), []

    def start_slowly(*_, stdin, stdout, **__):
        begun.set()
        time.sleep(0.3)  # the review is closed meanwhile
        code = "import sys; sys.stdin.read()"
        made.append(real([sys.executable, "-c", code], stdin=stdin, stdout=stdout, text=True))
        return made[0]

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    worker = WorkerProcess(tmp_path, tmp_path)
    starter = threading.Thread(target=worker.start)
    starter.start()
    begun.wait()
    worker.close()
    starter.join()
    ended = made[0].poll() is not None
    made[0].kill()
    made[0].wait()
    assert ended
