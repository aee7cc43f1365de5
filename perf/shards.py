"""TIM-ADM over shards against three bare matrix products over the same chunks, and its memory.

python -m perf.shards [--rows 500000 1000000 2000000] [--dim 128] [--classes 100] [--steps 20]
    [--device cpu] [--whitened] [--json results/shards.json]

Every size runs in a separate process: features in float16 on disk, ``solve_shards``, then three
products per chunk of rows with the same reading, conversion and scaling. Memory is the peak of
anonymous memory (``RssAnon``, without the pages of mapped files) above that after the imports.

``--whitened`` compares TIM-auto on rows of unit length, on whitened rows, and on whitened rows that
are averaged with their nearest centres, in turns: seconds per iteration (the best of three solves),
what a solve takes besides its iterations, and memory beyond that of the solves before.
"""

import argparse
import dataclasses
import json
import multiprocessing
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from infoshot.core.environment import environment

SHARDS = 8


def make(folder, n_rows, dim, n_classes, device):
    """Gaussian classes on the sphere, five labelled rows each."""
    from infoshot.core.types import FeatureTable
    from infoshot.features import write_features

    generator = torch.Generator(device).manual_seed(0)

    def unit(*shape):
        rows = torch.randn(*shape, device=device, generator=generator)
        return torch.nn.functional.normalize(rows, dim=-1)

    centres = unit(n_classes, dim)

    def draw(labels):
        noise = unit(len(labels), dim)
        return torch.nn.functional.normalize(centres[labels] + noise, dim=1).half().cpu()

    y_sup = torch.arange(n_classes, device=device).repeat(5)
    table = FeatureTable(draw(y_sup), y_sup.cpu(), None)
    write_features(folder / "support.safetensors", table)
    base = {"base_mean": unit(dim).cpu() / 4, "base_scatter": 2 * unit(min(128, dim), dim).cpu()}
    write_features(folder / "whitened.safetensors", dataclasses.replace(table, **base))
    (folder / "queries").mkdir()
    for number in range(SHARDS):
        n_own = n_rows // SHARDS
        labels = torch.randint(n_classes, (n_own,), device=device, generator=generator)
        rows = torch.cat([draw(part) for part in labels.split(250_000)])
        save_file({"features": rows}, folder / "queries" / f"{number:03}.safetensors")


def own_memory():
    """Bytes of this process without the pages of mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    return 0


class Peak:
    """Samples the memory every few milliseconds."""

    def __enter__(self):
        self.before = self.peak = own_memory()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._end.wait(0.005):
            self.peak = max(self.peak, own_memory())

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def bare_seconds(folder, device):
    """Three products over all chunks of the solve."""
    from infoshot.distributed import Ranks
    from infoshot.shards.shard_queries import own_queries
    from infoshot.shards.shard_task import read_task
    from infoshot.solvers import METHODS

    support, queries = folder / "support.safetensors", folder / "queries"
    task = read_task(support, queries, METHODS["tim-adm"], Ranks(device=device))
    rows = own_queries(task, task.preparation())
    weights = task.support.means().float().to(device)
    if rows.as_stored:
        weights = weights.half()

    def once(z, *_):
        return torch.mm(z, weights.T)

    def twice(z, *_):
        scores = torch.mm(z, weights.T)
        return torch.mm(scores.T, z)

    def all_chunks():
        start = time.perf_counter()
        for work in (once, twice):
            for _ in rows.map(work):
                pass
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    all_chunks()
    return min(all_chunks() for _ in range(3))


def compare_preparations(folder, options):
    """Seconds of TIM-auto per iteration, and of the rest of a solve, by preparation."""
    from infoshot.shards import solve_shards

    kinds = {
        "unit_length": ("support", {}),
        "whitened": ("whitened", {"smoothing": 0.0}),
        "whitened_and_averaged": ("whitened", {}),
    }
    found = {kind: [] for kind in kinds}
    for _ in range(3):
        for kind, (name, settings) in kinds.items():
            with Peak() as memory:
                start = time.perf_counter()
                summary = solve_shards(
                    folder / f"{name}.safetensors", folder / "queries", folder / kind, force=True,
                    method="tim-auto", settings={"n_steps": options.steps, **settings},
                    device=options.device,
                )  # fmt: skip
                seconds = time.perf_counter() - start
            step = summary.seconds_per_step
            rest = seconds - step * summary.n_steps
            found[kind].append((step, rest, (memory.peak - memory.before) / 2**20))
    best = {kind: [*map(min, zip(*runs, strict=True))] for kind, runs in found.items()}
    # Memory that one solve frees is kept for the next, so the first needs the most.
    for kind, runs in found.items():
        best[kind][-1] = max(memory for *_, memory in runs)
    return {
        kind: {
            "seconds_per_iteration": round(step, 4),
            "ratio": round(step / best["unit_length"][0], 2),
            "seconds_besides": round(rest, 2),
            "own_memory_mb": round(memory),
        }
        for kind, (step, rest, memory) in best.items()
    }


def run(folder, options, queue):
    from infoshot.core.memory import keep_freed_memory
    from infoshot.shards import solve_shards

    keep_freed_memory()
    solve = partial(
        solve_shards, folder / "support.safetensors", folder / "queries", device=options.device
    )
    with Peak() as memory:
        solve(folder / "first", settings={"n_steps": 1})  # builds kernels
        start = time.perf_counter()
        summary = solve(folder / "out", settings={"n_steps": options.steps})
        seconds = time.perf_counter() - start
    bare = bare_seconds(folder, options.device)
    by_preparation = {"tim_auto": compare_preparations(folder, options)} if options.whitened else {}
    queue.put(
        {
            **by_preparation,
            "rows": summary.n_queries,
            "seconds_per_iteration": round(summary.seconds_per_step, 4),
            "three_products": round(bare, 4),
            "ratio": round(summary.seconds_per_step / bare, 2),
            "seconds_in_all": round(seconds, 2),
            "own_memory_mb": round((memory.peak - memory.before) / 2**20),
        }
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[500_000, 1_000_000, 2_000_000])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--whitened", action="store_true")
    parser.add_argument("--folder", help="where to write the shards")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    context, rows = multiprocessing.get_context("spawn"), []
    for n_rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            make(Path(name), n_rows, options.dim, options.classes, options.device)
            queue = context.Queue()
            process = context.Process(target=run, args=(Path(name), options, queue))
            process.start()
            rows.append(queue.get())
            process.join()
        print(rows[-1], flush=True)
    if options.json:
        about = {name: getattr(options, name) for name in ("dim", "classes", "steps", "device")}
        text = {**about, "sizes": rows, "environment": environment(options.device)}
        options.json.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
