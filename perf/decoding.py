"""How large JPEGs are decoded: speed against the change of features.

python -m perf.decoding [--out results/decoding.json]

Large photos are made from the two photographs of scikit-learn, enlarged to 3200 x 2400 pixels with
sensor noise, since the features of a small photo do not depend on the decoding. For each factor,
JPEGs are decoded at half, a quarter or an eighth of their size while both sides keep at least so
many times the pixels of the resized image. Prints CPU milliseconds per photo on one core (the best
of four rounds), how many times faster that is than decoding all pixels, and the cosine of the
features with those of whole decoding. The package uses the factor 2.
"""

import argparse
import io
import json
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from infoshot import open_encoder
from infoshot.core.environment import environment
from infoshot.core.pixels import decode
from infoshot.features.encoding import encode_batch
from infoshot.images.decoding import resize_and_crop

FACTORS = (None, 4, 2, 1)
N_PHOTOS, ROUNDS = 16, 4


def make_photos():
    generator = np.random.default_rng(0)
    photos = []
    for number in range(N_PHOTOS):
        pixels = load_sample_images().images[number % 2]
        left, top = generator.integers(0, 120), generator.integers(0, 80)
        image = Image.fromarray(pixels).crop((left, top, left + 500, top + 340))
        image = image.resize((3200, 2400), Image.Resampling.LANCZOS)
        noisy = np.asarray(image) + generator.normal(0, 8, (2400, 3200, 3))
        file = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=92)
        photos.append(file.getvalue())
    return photos


def read(photo, factor, spec):
    at_least = None if factor is None else factor * spec.resize
    return resize_and_crop(decode(photo, "", at_least=at_least), spec.resize, spec.crop)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    backbone = open_encoder("efficientnet-lite0").backbone
    spec, photos = backbone.input_spec, make_photos()
    best = dict.fromkeys(FACTORS, float("inf"))
    crops = {}
    for _ in range(ROUNDS):  # in turns, so that other load of the machine affects all alike
        for factor in FACTORS:
            start = time.process_time()
            crops[factor] = [read(photo, factor, spec) for photo in photos]
            seconds = (time.process_time() - start) / len(photos)
            best[factor] = min(best[factor], 1000 * seconds)
    rows, whole = [], None
    for factor, milliseconds in best.items():
        images = torch.from_numpy(np.stack(crops[factor])).permute(0, 3, 1, 2).contiguous()
        with torch.inference_mode():
            z = torch.nn.functional.normalize(encode_batch(backbone, images), dim=-1)
        whole = z if whole is None else whole
        cosine = (z * whole).sum(-1)
        row = {
            "factor": factor,
            "cpu_ms": milliseconds,
            "times_faster": best[None] / milliseconds,
            "cosine_mean": float(cosine.mean()),
            "cosine_min": float(cosine.min()),
        }
        rows.append(row)
        print(
            f"factor {factor or 'whole':>5}: {milliseconds:6.1f} ms, "
            f"{row['times_faster']:.2f} times as fast, cosine {row['cosine_mean']:.5f} "
            f"(lowest {row['cosine_min']:.5f})"
        )
    if arguments.out:
        arguments.out.write_text(
            json.dumps({"rows": rows, "environment": environment()}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
