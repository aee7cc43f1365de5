"""``extract-shards`` and ``solve-shards`` on a Ray cluster against the same under ``torchrun``.

python -m perf.on_ray [--photos 1200] [--rows 800000] [--steps 20] [--rounds 2] [--json FILE]

Two processes of one core each: two nodes of a Ray cluster on this machine, and two processes of
``torchrun``. The commands run in turns, ``--rounds`` times each; figures are the best. Photos are
those of ``perf.encoding`` (500 x 375 pixels, efficientnet-lite0), shards those of ``perf.shards``
(100 classes, 128 features, float16). Seconds are the wall clock of the whole command, start
included; ``ray_seconds_killed`` is that of the command on Ray when one of its processes is killed
half way. The files of all runs must be equal. ``alone`` is what encoding costs without starting
anything, in one thread: images per second of processor time, best of the rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import torch

from infoshot import open_encoder
from infoshot.core.environment import environment
from infoshot.features.extract import Extraction
from infoshot.features.shard_files import write_shards
from infoshot.images.folders import find_images
from perf.encoding import make_photos
from perf.shards import make
from tests.ray_cluster import end_process, processes_of, two_nodes


def run(engine, address, arguments, process=None, half=None):
    """Seconds of a command; with ``half``, a process of Ray is killed after so many seconds."""
    start = [sys.executable, "-m", "infoshot"]
    more = ["--engine", "ray", "--address", address]
    if engine == "torchrun":
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        start, more = [*start, "--nproc-per-node", "2", "-m", "infoshot"], []
    begin = time.perf_counter()
    job = subprocess.Popen([*start, *map(str, arguments), *more], stdout=subprocess.DEVNULL)
    if half is not None:
        time.sleep(half)
        end_process(processes_of(process)[0])
    assert job.wait() == 0
    return time.perf_counter() - begin


def encode_alone(folder, n, rounds):
    """Rate of one thread, and sizes that depend on the number of images."""
    torch.set_num_threads(1)
    encoder, how = open_encoder("efficientnet-lite0"), Extraction(n_workers=1)
    images, seconds = find_images(folder / "photos"), []
    options = {"shard_size": 100, "dtype": torch.float16}
    write_shards(images[:20], encoder, how, folder / "first", **options)  # exports the network
    for number in range(rounds):
        begin = time.process_time()
        write_shards(images[:n], encoder, how, folder / f"alone{number}", **options)
        seconds.append(time.process_time() - begin)
    shards = [path.stat().st_size for path in (folder / "alone0").iterdir()]
    (folder / "many").mkdir()
    for number in range(20_000):
        (folder / "many" / f"{number:05}.jpg").touch()
    tracemalloc.start()
    listed = find_images(folder / "many")
    traced = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {
        "images_per_cpu_second": n / min(seconds),
        "bytes_per_jpeg": sum(image.file.stat().st_size for image in images) / len(images),
        "bytes_per_image_in_shards": sum(shards) / n,
        "bytes_per_image_in_list": traced / len(listed),
    }


def same(left, right):
    """Whether two folders have the same files, without hidden ones."""
    files = sorted(path.name for path in left.iterdir() if path.name[0] != ".")
    assert files == sorted(path.name for path in right.iterdir() if path.name[0] != ".")
    return all((left / name).read_bytes() == (right / name).read_bytes() for name in files)


def compare(address, folder, arguments, process, results, rounds):
    """Run a command with both engines, and once with a killed process; compare ``results``."""
    best = {}
    for number in range(rounds):
        for engine in ("torchrun", "ray"):
            out = folder / f"{engine}{number}"
            seconds = run(engine, address, [*arguments, "--out", out])
            best[engine] = min(best.get(engine, seconds), seconds)
    out = folder / "killed"
    killed = run("ray", address, [*arguments, "--out", out], process, 0.6 * best["ray"])
    expected = folder / "torchrun0" / results
    equal = all(same(folder / name / results, expected) for name in ("ray0", "killed"))
    return {
        "torchrun_seconds": best["torchrun"],
        "ray_seconds": best["ray"],
        "ray_seconds_killed": killed,
        "same_files": equal,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=1200)
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name, two_nodes() as cluster:
        folder = Path(name)
        for part in ("photos", "encoding", "rows", "solve"):
            (folder / part).mkdir()
        make_photos(folder / "photos", options.photos)
        alone = encode_alone(folder, min(400, options.photos), options.rounds)
        arguments = ["extract-shards", folder / "photos", "--shard-size", "50", "--device", "cpu"]
        encoding = compare(
            cluster.address, folder / "encoding", arguments, "_Worker.run", ".", options.rounds
        )
        make(folder / "rows", options.rows, 128, 100, "cpu")
        arguments = [
            "solve-shards", "--support", folder / "rows" / "support.safetensors",
            "--queries", folder / "rows" / "queries", "--set", f"n_steps={options.steps}",
            "--device", "cpu",
        ]  # fmt: skip
        solve = compare(
            cluster.address, folder / "solve", arguments, "_Rank.run", "labels", options.rounds
        )
        for engine in ("torchrun", "ray"):
            facts = json.loads((folder / "solve" / f"{engine}0" / "run.json").read_text())
            solve[f"{engine}_seconds_per_step"] = facts["seconds_per_step"]
    found = {
        "photos": options.photos, "rows": options.rows, "steps": options.steps,
        "rounds": options.rounds, "alone": alone, "encoding": encoding, "solve": solve,
        "environment": environment(),
    }  # fmt: skip
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
