"""What a review costs: python -m perf.review RUN [RUN ...] [--out FILE].

Measures on finished runs: the time until the server is up, the memory of the server process, the
time until a real browser shows the first photos, the requests while it scrolls, the time to save an
answer, and the time from the last answer until the pool is solved again, each after 20 answers and
with the map computed before.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infoshot.core.environment import environment
from tests.reviewing.client import Client

_ANSWERS, _PACE = 20, 0.1  # seconds between answers
_SCREEN = 8  # photos
_SHOWN = """() => [...document.querySelectorAll('[role=gridcell] img')]
    .filter((image) => image.complete && image.naturalWidth).length"""
_CHROMIUM = "/usr/bin/chromium"


def measure(run: Path, n_rounds: int) -> dict[str, Any]:
    """Measure a review of a copy of a run."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copytree(run, Path(scratch) / "run")
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "infoshot", "review", str(copy), "--no-browser"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            seconds_up = time.perf_counter() - start
            client = Client(lines[1].strip())
            n_photos = client.get("/api/state").json()["n_photos"]
            row = {"photos": n_photos, "server_up_s": round(seconds_up, 2)}
            row |= _look(client.url)
            _wait_for_map(client)
            row |= _answer(client, n_rounds)
            row["server_mb"] = _peak_memory(process.pid)
            return row
        finally:
            process.terminate()
            process.wait()


def _look(url: str) -> dict[str, Any]:
    """Open the page in a browser, and scroll."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        start = time.perf_counter()
        page.goto(url)
        while page.evaluate(_SHOWN) < _SCREEN:  # wait_for_function would need eval
            page.wait_for_timeout(20)
        first = time.perf_counter() - start
        page.wait_for_timeout(1500)
        n_first = sum("/image/" in name for name in asked)
        page.keyboard.press("End")
        page.wait_for_timeout(3000)
        n_pictures = sum("/image/" in name for name in asked) - n_first
        browser.close()
    return {"first_screen_s": round(first, 2), "pictures_at_first": n_first,
            "pictures_after_end": n_pictures}  # fmt: skip


def _wait_for_map(client: Client) -> None:
    """Wait until the map is computed, which takes a core, or for a minute."""
    until = time.monotonic() + 60
    while client.get("/api/state").json()["projection"] != "tsne" and time.monotonic() < until:
        time.sleep(0.5)


def _answer(client: Client, n_rounds: int) -> dict[str, Any]:
    """Answer photos one after the other, and wait for the solve; several times."""
    classes = [entry["name"] for entry in client.get("/api/state").json()["classes"]]
    times, waits = [], []
    with client.events(since=10**9) as read:
        for number in range(n_rounds):
            ids = range(number * _ANSWERS, (number + 1) * _ANSWERS)
            items = client.get(f"/api/items?ids={','.join(map(str, ids))}").json()["items"]
            for item in items:
                body = {"action": "label", "ids": [item["id"]], "client": "perf", "seen": 10**9}
                start = time.perf_counter()
                reply = client.post(
                    "/api/answers", {**body, "label": item["predicted"] or classes[0]}
                )
                times.append(time.perf_counter() - start)
                assert reply.status == 200, reply.body
                time.sleep(_PACE)
            last = time.perf_counter()
            _wait_for_solve(read)
            waits.append(time.perf_counter() - last)
    return {
        "answer_ms_median": round(1e3 * statistics.median(times), 1),
        "answer_ms_slowest": round(1e3 * max(times), 1),
        "solved_after_s": [round(wait, 2) for wait in waits],
    }


def _wait_for_solve(read: Callable[[], dict[str, str]]) -> None:
    """Read events until a solve has ended."""
    solving = False
    while True:
        event = read()
        if event.get("event") == "solve":
            state = json.loads(event["data"])["state"]
            assert state != "failed", event
            if solving and state == "idle":
                return
            solving = solving or state == "solving"


def _peak_memory(pid: int) -> int:
    """Return the largest memory of a process so far, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    return 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3, help="answers and solves")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for run in given.runs:
        rows.append(measure(run, given.rounds))
        print(rows[-1], flush=True)
    if given.out:
        found = {"environment": environment(), "cores": os.cpu_count(), "rows": rows}
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
