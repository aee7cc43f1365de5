"""Speed of the default encoder by threads, batch size, memory layout and processes.

python -m perf.label_grid [results/label_grid.json]

Every setting runs in new processes. Each of ``processes`` encodes ``lanes`` batches at a time, with
``threads`` cores per batch. The default of ``infoshot label`` must be within 20 % of the best.
"""

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from infoshot.core.environment import environment

BATCHES = (4, 8, 16, 32, 64)
SECONDS = 4.0
DEFAULT = {"processes": 1, "lanes": 2, "threads": 1, "batch": 4, "channels_last": True}


def images_per_second(lanes, threads, batch, channels_last):
    """Speed of one process, after a warm-up."""
    import torch

    from infoshot.backbones import open_encoder
    from infoshot.core.memory import keep_freed_memory
    from infoshot.features.encoding import prepare_images

    keep_freed_memory()  # as infoshot label does

    torch.set_num_threads(threads)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    backbone = open_encoder("efficientnet-lite0").backbone.to(memory_format=layout)
    crop = backbone.input_spec.crop
    images = torch.randint(0, 256, (batch, 3, crop, crop), dtype=torch.uint8)

    @torch.inference_mode()
    def encode(stop):
        torch.set_num_threads(threads)
        n_encoded = 0
        while n_encoded < 3 * batch or time.perf_counter() < stop:
            x = prepare_images(images, backbone.input_spec).contiguous(memory_format=layout)
            backbone(x)
            n_encoded += batch
        return n_encoded

    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(encode, [0.0] * lanes))
        start = time.perf_counter()
        n_encoded = sum(pool.map(encode, [start + SECONDS] * lanes))
        return n_encoded / (time.perf_counter() - start)


def run(processes, lanes, threads, batch, channels_last):
    context = multiprocessing.get_context("spawn")
    setting = {"lanes": lanes, "threads": threads, "batch": batch, "channels_last": channels_last}
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [pool.submit(images_per_second, **setting) for _ in range(processes)]
        speed = sum(future.result() for future in futures)
    row = {"processes": processes, **setting, "images_per_second": round(speed, 1)}
    print(row, flush=True)
    return row


def main():
    conditions = environment()
    rows = [
        run(processes, lanes, threads, batch, channels_last)
        for processes, lanes, threads in ((1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1))
        for channels_last in (True, False)
        for batch in (BATCHES if channels_last else BATCHES[1::2])
    ]
    best = max(rows, key=lambda row: row["images_per_second"])
    own = next(row for row in rows if all(row[name] == DEFAULT[name] for name in DEFAULT))
    share = own["images_per_second"] / best["images_per_second"]
    report = {"best": best, "default": own, "share": round(share, 3), "rows": rows}
    text = json.dumps({**report, "environment": conditions}, indent=1) + "\n"
    print(f"the default reaches {share:.0%} of the best speed")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
