"""Small sets of class folders whose classes differ clearly."""

import numpy as np
from PIL import Image

SPLITS = {"train": "abcd", "val": "efg", "test": "hij"}


def make_folders(root, n_images=10, size=(84, 84), splits=SPLITS):
    """Write split/class/number.png; images of a class are noisy versions of one pattern."""
    generator = np.random.default_rng(0)
    for split, classes in splits.items():
        for class_name in classes:
            pattern = generator.integers(0, 256, (6, 6, 3))
            folder = root / split / class_name
            folder.mkdir(parents=True)
            for number in range(n_images):
                noisy = pattern + generator.integers(-60, 60, pattern.shape)
                image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
                height, width = size
                image.resize((width, height), Image.Resampling.BICUBIC).save(
                    folder / f"{number}.png"
                )
    return root
