"""Speed of the default encoder on a CPU by engine, threads, batch size and processes.

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

import numpy as np

from infoshot.core.environment import environment

BATCHES = (1, 4, 8, 16, 32)
SECONDS = 4.0
ENGINES = ("onnxruntime", "pytorch", "pytorch, channels first")
DEFAULT = {"engine": "onnxruntime", "processes": 1, "lanes": 2, "threads": 1, "batch": 4}


def images_per_second(engine, lanes, threads, batch):
    """Speed of one process, after a warm-up."""
    import torch

    from infoshot.backbones import open_encoder
    from infoshot.core.memory import keep_freed_memory

    keep_freed_memory()  # as infoshot label does
    torch.set_num_threads(threads)
    encoder = open_encoder("efficientnet-lite0")
    crop = encoder.backbone.input_spec.crop
    pixels = np.random.default_rng(0).integers(0, 256, (batch, crop, crop, 3), np.uint8)
    open_forward = _by_onnxruntime if engine == "onnxruntime" else _by_pytorch
    forward = open_forward(encoder, engine, threads)

    @torch.inference_mode()
    def encode(stop):
        torch.set_num_threads(threads)
        n_encoded = 0
        while n_encoded < 3 * batch or time.perf_counter() < stop:
            forward(pixels)
            n_encoded += batch
        return n_encoded

    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(encode, [0.0] * lanes))
        start = time.perf_counter()
        n_encoded = sum(pool.map(encode, [start + SECONDS] * lanes))
        return n_encoded / (time.perf_counter() - start)


def _by_pytorch(encoder, engine, _):
    import torch

    from infoshot.features.encoding import prepare_images

    first = engine.endswith("channels first")
    layout = torch.contiguous_format if first else torch.channels_last
    backbone = encoder.backbone.to(memory_format=layout)

    def forward(pixels):
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        backbone(prepare_images(images, backbone.input_spec).contiguous(memory_format=layout))

    return forward


def _by_onnxruntime(encoder, _, threads):
    import onnxruntime

    from infoshot.features import onnx_network

    content = onnx_network._export(encoder.backbone, encoder.backbone.input_spec.crop)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda pixels: session.run(None, {"crops": pixels})


def run(engine, processes, lanes, threads, batch):
    context = multiprocessing.get_context("spawn")
    setting = {"lanes": lanes, "threads": threads, "batch": batch}
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [pool.submit(images_per_second, engine, **setting) for _ in range(processes)]
        speed = sum(future.result() for future in futures)
    row = {
        "engine": engine,
        "processes": processes,
        **setting,
        "images_per_second": round(speed, 1),
    }
    print(row, flush=True)
    return row


def main():
    conditions = environment()
    rows = [
        run(engine, processes, lanes, threads, batch)
        for engine in ENGINES
        for processes, lanes, threads in ((1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1))
        for batch in (BATCHES[1::2] if "first" in engine else BATCHES)
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
