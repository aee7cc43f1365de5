"""Photos to features on a CPU: PyTorch against ONNX Runtime, Pillow against simplejpeg.

python -m perf.encoding [--photos 2000] [--out results/encoding.json]

Photos of 500 x 375 pixels are made from the two photographs of scikit-learn, each with another
section, brightness and noise. Three comparisons, each with both sides in turns:

- the network, on one core: CPU milliseconds per photo, best of the rounds, and how far features of
  the two differ;
- JPEG decoding with resizing and cropping, on one core, by Pillow and, if it is installed, by
  simplejpeg. The package decodes with Pillow: see ``decoding_share``, the time that decoding takes
  of decoding and encoding;
- ``infoshot label`` on two cores, from the folder to the labels, without cached features: seconds
  of wall clock, in new processes.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from infoshot import open_encoder
from infoshot.core.environment import environment
from infoshot.features.encoding import encode_batch
from infoshot.features.onnx_network import FOLDER as NETWORKS
from infoshot.features.onnx_network import open_session
from infoshot.images.decoding import FileLocation, read_crop, resize_and_crop

WIDTH, HEIGHT, BATCH, ROUNDS, SECONDS = 500, 375, 4, 5, 3.0
RUN = """
import sys, time
import torch
torch.set_num_threads(2)
from infoshot.features import encoding
if sys.argv[1] == "pytorch":
    encoding.is_exportable = lambda _: False
import infoshot
start = time.perf_counter()
result = infoshot.label(sys.argv[2], sys.argv[3], sys.argv[4])
print(time.perf_counter() - start, len(result.labels))
"""


def make_photos(folder, n):
    """Write ``n`` JPEGs in two classes, one of each photograph."""
    generator = np.random.default_rng(0)
    originals = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    for number in range(n):
        original = originals[number % 2]
        width = int(generator.integers(350, 640))
        height = width * HEIGHT // WIDTH
        left = generator.integers(0, original.width - width + 1)
        top = generator.integers(0, max(1, original.height - height + 1))
        part = original.crop((left, top, left + width, top + height)).resize((WIDTH, HEIGHT))
        noisy = np.asarray(part) * generator.uniform(0.7, 1.2)
        noisy = noisy + generator.normal(0, 6, (HEIGHT, WIDTH, 3))
        image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        image.save(folder / f"{number:05}.jpg", quality=90)


def compare_networks(name, crops):
    """Time the network on one core with both, and compare the features."""
    torch.set_num_threads(1)
    encoder = open_encoder(name)
    session = open_session(encoder, encoder.backbone.input_spec.crop)
    backbone = encoder.backbone.to(memory_format=torch.channels_last)
    pixels = np.stack(crops[:BATCH])

    @torch.inference_mode()
    def by_pytorch(pixels):
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        return encode_batch(backbone, images).numpy()

    best = {}
    for _ in range(ROUNDS):
        for engine, forward in (("pytorch", by_pytorch), ("onnxruntime", session)):
            forward(pixels)
            begin, n = time.process_time(), 0
            while n == 0 or time.process_time() - begin < SECONDS / ROUNDS:
                forward(pixels)
                n += BATCH
            milliseconds = 1000 * (time.process_time() - begin) / n
            best[engine] = min(best.get(engine, milliseconds), milliseconds)
    many = np.stack(crops[:32])
    theirs, ours = by_pytorch(many), session(many)
    difference = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    return {
        "network": name,
        "pytorch_ms": best["pytorch"],
        "onnxruntime_ms": best["onnxruntime"],
        "ratio": best["pytorch"] / best["onnxruntime"],
        "largest_difference": float(difference.max()),
    }


def compare_decoders(paths, spec):
    """Time decoding, resizing and cropping on one core."""

    def by_pillow(path):
        return read_crop(FileLocation(path), spec.resize, spec.crop)[1]

    decoders = {"pillow": by_pillow}
    if importlib.util.find_spec("simplejpeg"):
        import simplejpeg

        def by_simplejpeg(path):
            at_least = {"min_width": 2 * spec.resize, "min_height": 2 * spec.resize}
            pixels = simplejpeg.decode_jpeg(path.read_bytes(), **at_least)
            return resize_and_crop(pixels, spec.resize, spec.crop)

        decoders["simplejpeg"] = by_simplejpeg
    best = {}
    for _ in range(ROUNDS):
        for name, decode in decoders.items():
            begin = time.process_time()
            for path in paths:
                decode(path)
            milliseconds = 1000 * (time.process_time() - begin) / len(paths)
            best[name] = min(best.get(name, milliseconds), milliseconds)
    return {f"{name}_ms": milliseconds for name, milliseconds in best.items()}


def compare_runs(examples, photos, n_photos):
    """Time ``infoshot label`` with both, without cached features; the better of two runs of each.

    The first run exports the network, which the others find in the cache.
    """
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        first = _time_run("onnxruntime", examples, photos, Path(folder))
        print(f"label for the first time: {first:.1f} s", flush=True)
        for _ in range(2):
            for engine in ("pytorch", "onnxruntime"):
                took = _time_run(engine, examples, photos, Path(folder))
                print(
                    f"label by {engine}: {took:.1f} s, {n_photos / took:.0f} photos/s", flush=True
                )
                seconds[engine] = min(seconds.get(engine, took), took)
    return {
        "photos": n_photos,
        **{f"{engine}_s": took for engine, took in seconds.items()},
        "first_time_s": first,
        "ratio": seconds["pytorch"] / seconds["onnxruntime"],
    }


def _time_run(engine, examples, photos, folder):
    """Label in a new process, without cached features; return seconds."""
    cache, out = folder / "cache", folder / "run"
    for path in (out, *(path for path in cache.glob("*") if path.name != NETWORKS)):
        shutil.rmtree(path, ignore_errors=True)
    found = subprocess.run(
        [sys.executable, "-c", RUN, engine, examples, photos, out],
        env={**os.environ, "INFOSHOT_CACHE": str(cache)},
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return float(found.stdout.split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--networks", default="efficientnet-lite0")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    conditions = environment()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("made", "examples/0", "examples/1", "photos"):
            (folder / name).mkdir(parents=True)
        make_photos(folder / "made", arguments.photos + 10)
        for number, path in enumerate(sorted((folder / "made").iterdir())):
            place = f"examples/{number % 2}" if number < 10 else "photos"
            path.rename(folder / place / path.name)
        paths = sorted((folder / "photos").iterdir())
        os.environ["INFOSHOT_CACHE"] = str(folder / "cache")
        networks = []
        for name in arguments.networks.split(","):
            spec = open_encoder(name).backbone.input_spec
            crops = [
                read_crop(FileLocation(path), spec.resize, spec.crop)[1] for path in paths[:32]
            ]
            networks.append(compare_networks(name, crops))
            print(networks[-1], flush=True)
        decoders = compare_decoders(
            paths[:64], open_encoder("efficientnet-lite0").backbone.input_spec
        )
        share = decoders["pillow_ms"] / (decoders["pillow_ms"] + networks[0]["onnxruntime_ms"])
        decoders["decoding_share"] = share
        print(decoders, flush=True)
        runs = compare_runs(folder / "examples", folder / "photos", len(paths))
        print(runs)
    if arguments.out:
        report = {"networks": networks, "decoders": decoders, "label": runs}
        text = json.dumps({**report, "environment": conditions}, indent=1)
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
