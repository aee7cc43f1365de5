"""How fast the default encoder sees images, by threads, batch, memory layout and processes.

python -m perf.label_grid [results/label_grid.json]

Every setting runs in processes of its own: one with all cores, or one per core with one thread. The
default of ``infoshot label`` must be within 20 % of the best.
"""

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from infoshot.environment import environment

BATCHES = (4, 8, 16, 32, 64)
SECONDS = 4.0
DEFAULT = {"processes": 1, "threads": 2, "batch": 8, "channels_last": True}


def images_per_second(threads, batch, channels_last):
    """Of one process, after a warm-up."""
    import torch

    from infoshot.backbones.registry import pretrained_backbone
    from infoshot.features.extract import prepared_images

    torch.set_num_threads(threads)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    backbone = pretrained_backbone("efficientnet-lite0").to(memory_format=layout)
    crop = backbone.input_spec.crop
    images = torch.randint(0, 256, (batch, 3, crop, crop), dtype=torch.uint8)
    n_seen = 0
    with torch.inference_mode():
        for _ in range(3):
            backbone(prepared_images(images, backbone.input_spec).contiguous(memory_format=layout))
        start = time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            x = prepared_images(images, backbone.input_spec).contiguous(memory_format=layout)
            backbone(x)
            n_seen += batch
        return n_seen / (time.perf_counter() - start)


def run(processes, threads, batch, channels_last):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [
            pool.submit(images_per_second, threads, batch, channels_last) for _ in range(processes)
        ]
        speed = sum(future.result() for future in futures)
    setting = {
        "processes": processes,
        "threads": threads,
        "batch": batch,
        "channels_last": channels_last,
    }
    print(setting, f"{speed:.1f} images/s", flush=True)
    return {**setting, "images_per_second": round(speed, 1)}


def main():
    conditions = environment()
    rows = [
        run(processes, threads, batch, channels_last)
        for processes, threads in ((1, 1), (1, 2), (2, 1))
        for channels_last in (True, False)
        for batch in (BATCHES if channels_last else BATCHES[1::2])
    ]
    best = max(rows, key=lambda row: row["images_per_second"])
    own = next(row for row in rows if all(row[name] == DEFAULT[name] for name in DEFAULT))
    share = own["images_per_second"] / best["images_per_second"]
    report = {"best": best, "default": own, "share": round(share, 3), "rows": rows}
    text = json.dumps({**report, "environment": conditions}, indent=1) + "\n"
    print(f"the default has {share:.0%} of the best")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
