"""``solve-shards`` on Parquet against the same rows as .npy shards: time in all, and memory.

python -m perf.parquet [--rows 200000] [--dim 256] [--classes 100] [--steps 20]
    [--group-rows 0] [--dtype float32] [--device cpu] [--rounds 3] [--json FILE]

Gaussian classes in eight shards, which pyarrow writes with its defaults, as lists of fixed size
with a column of ids. ``--group-rows`` is the rows of a row group (0: pyarrow's default, here a
whole shard); several sizes can be given. Each solve runs in a separate process, set up as the
command sets it up, the formats in turn, ``--rounds`` times; figures are medians. The number of
threads is ``OMP_NUM_THREADS``. ``cpu_seconds`` are those of the process: other work on the machine
changes them less than the time. Memory is the peak of anonymous memory, see ``perf.shards``. With
Parquet the labels are written with the ids, and the times include decoding.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from infoshot.core.environment import environment
from perf.shards import SHARDS, Peak

AT_ONCE = 50_000


def make(folder, options):
    """Write a support file, and the same queries in all formats."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    from infoshot.core.types import FeatureTable
    from infoshot.features import write_features

    random = np.random.default_rng(0)
    centres = random.standard_normal((options.classes, options.dim)).astype(np.float32)

    def draw(labels):
        noise = random.standard_normal((len(labels), options.dim), dtype=np.float32)
        return (centres[labels] + 2 * noise).astype(options.dtype)

    y = np.arange(options.classes).repeat(5)
    table = FeatureTable(torch.from_numpy(draw(y)), torch.from_numpy(y))
    write_features(folder / "support.safetensors", table)
    for name in ("npy", *map(folder_name, options.group_rows)):
        (folder / name).mkdir()
    for number in range(SHARDS):
        n = options.rows // SHARDS
        labels = random.integers(options.classes, size=n)
        z = np.concatenate([draw(labels[i : i + AT_ONCE]) for i in range(0, n, AT_ONCE)])
        np.save(folder / "npy" / f"{number:03}.npy", z)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(z.ravel()), options.dim)
        ids = [f"photos/{number:03}/{row:08}.jpg" for row in range(n)]
        table = pa.table({"id": ids, "embedding": rows})
        for size in options.group_rows:
            path = folder / folder_name(size) / f"{number:03}.parquet"
            pq.write_table(table, path, row_group_size=size or None)


def folder_name(group_rows):
    return f"parquet-{group_rows}" if group_rows else "parquet"


def run(folder, name, number, options, queue):
    from infoshot.core.memory import keep_freed_memory
    from infoshot.shards import solve_shards

    keep_freed_memory()
    import pyarrow.parquet  # noqa: F401 - its import is not part of the time

    with Peak() as memory:
        start, cpu_start = time.perf_counter(), time.process_time()
        summary = solve_shards(
            folder / "support.safetensors",
            folder / name,
            folder / f"{name}-{number}",
            settings={"n_steps": options.steps},
            device=options.device,
        )
        cpu_seconds = time.process_time() - cpu_start
        seconds = time.perf_counter() - start
    queue.put(
        (seconds, cpu_seconds, summary.seconds_per_step, (memory.peak - memory.before) / 2**20)
    )


def measure(folder, options):
    """Solve in all formats in turn, each time in a new process."""
    context = multiprocessing.get_context("spawn")
    found = {name: [] for name in ("npy", *map(folder_name, options.group_rows))}
    for number in range(options.rounds):
        for name, rows in found.items():
            queue = context.Queue()
            process = context.Process(target=run, args=(folder, name, number, options, queue))
            process.start()
            rows.append(queue.get())
            process.join()
            print(name, *(round(value, 2) for value in rows[-1]), flush=True)
    keys = ("seconds_in_all", "cpu_seconds", "seconds_per_iteration", "own_memory_mb")
    return {
        name: {
            key: round(median(v), 3) for key, v in zip(keys, zip(*rows, strict=True), strict=True)
        }
        for name, rows in found.items()
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--group-rows", type=int, nargs="+", default=[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to write the shards")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        make(Path(name), options)
        found = measure(Path(name), options)
    ratios = {
        name: {
            key: round(figures[key] / found["npy"][key], 2)
            for key in ("seconds_in_all", "cpu_seconds", "own_memory_mb")
        }
        for name, figures in found.items()
        if name != "npy"
    }
    about = {
        key: getattr(options, key)
        for key in ("rows", "dim", "classes", "steps", "group_rows", "dtype", "rounds", "device")
    }
    text = {**about, **found, "ratios": ratios, "environment": environment(options.device)}
    print(json.dumps({**found, "ratios": ratios}))
    if options.json:
        options.json.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
