"""What a review costs: python -m perf.review RUN [RUN ...] [--out results/review.json].

Measures on finished runs: the time until the server is up, the memory of the server process, the
time until a real browser shows the first photos, the requests while it scrolls, the time to save an
answer, and the time from the last answer until the pool is solved again.
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
from pathlib import Path
from typing import Any

from infoshot.core.environment import environment
from tests.reviewing.client import Client

_ANSWERS = 50
_SCREEN = 8  # photos
_SHOWN = """() => [...document.querySelectorAll('[role=gridcell] img')]
    .filter((image) => image.complete && image.naturalWidth).length"""
_CHROMIUM = "/usr/bin/chromium"


def measure(run: Path) -> dict[str, Any]:
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
            row |= _answer(client)
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


def _answer(client: Client) -> dict[str, Any]:
    """Answer photos one after the other, then wait for the solve."""
    ids = list(range(_ANSWERS))
    items = client.get(f"/api/items?ids={','.join(map(str, ids))}").json()["items"]
    state = client.get("/api/state").json()
    before, classes = state["solve"]["version"], [entry["name"] for entry in state["classes"]]
    times = []
    for item in items:
        label = item["predicted"] or classes[0]
        start = time.perf_counter()
        reply = client.post(
            "/api/answers",
            {"action": "label", "ids": [item["id"]], "label": label, "client": "perf",
             "seen": 10**9},
        )  # fmt: skip
        times.append(time.perf_counter() - start)
        assert reply.status == 200, reply.body
        time.sleep(0.1)
    last = time.perf_counter()
    while True:
        solve = client.get("/api/state").json()["solve"]
        if solve["state"] == "idle" and solve["version"] > before:
            break
        assert solve["state"] != "failed", solve
        time.sleep(0.05)
    waited = time.perf_counter() - last
    return {
        "answer_ms_median": round(1e3 * statistics.median(times), 1),
        "answer_ms_slowest": round(1e3 * max(times), 1),
        "solved_after_s": round(waited, 2),
        "solve_s": solve["seconds"],
    }


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
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    for run in given.runs:
        rows.append(measure(run))
        print(rows[-1], flush=True)
    if given.out:
        found = {"environment": environment(), "cores": os.cpu_count(), "rows": rows}
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
