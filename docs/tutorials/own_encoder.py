# %% [markdown]
# # Bring your own encoder
#
# An encoder turns a picture into a vector. Any network of PyTorch can be one, and so can a rule
# that needs no training. This tutorial writes one, compares it with the default encoder, and labels
# pictures with it. Nothing in the package has to be changed.

# %% [markdown]
# ## Pictures
#
# The handwritten digits of scikit-learn are on your disk already. Five random ones of each class
# are written to `examples/` and 900 others to `digits/`, with one folder per class.

# %%
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

digits = load_digits()
names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
n_examples = dict.fromkeys(names, 0)
for number in np.random.default_rng(0).permutation(len(digits.target))[:950]:
    picture = Image.fromarray((255 - digits.images[number] * 255 / 16).astype(np.uint8))
    name = names[digits.target[number]]
    n_examples[name] += 1
    folder = Path("examples" if n_examples[name] <= 5 else "digits") / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number}.png"
    picture.convert("RGB").resize((32, 32), Image.Resampling.BICUBIC).save(path)

# %% [markdown]
# ## Write it
#
# An encoder is a `torch.nn.Module` that maps a batch of images, `(batch, 3, height, width)`, to
# vectors, `(batch, dim)`. Ours describes strokes: at every pixel the direction of the gradient, of
# eight, weighted by its length, and summed in each cell of a grid. The histogram of oriented
# gradients (HOG) is built like this. It has no weights.
#
# `input_spec` says which images the encoder expects: `resize` is the length of the shorter side,
# then the central square of `crop` pixels is cut out, and pixels between 0 and 1 are normalised by
# `mean` and `std`. Without it, images have 84 pixels.

# %%
import math

import torch
from torch import nn

from infoshot import InputSpec


class Strokes(nn.Module):
    input_spec = InputSpec(crop=32, resize=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

    def __init__(self, n_directions=8, n_cells=4):
        super().__init__()
        self.n_directions, self.n_cells = n_directions, n_cells

    def forward(self, images):
        grey = images.mean(1)  # (batch, height, width)
        dy, dx = torch.gradient(grey, dim=(1, 2))
        direction = torch.atan2(dy, dx) * self.n_directions / (2 * math.pi)
        bins = torch.arange(self.n_directions, device=images.device).view(-1, 1, 1)
        away = (direction.unsqueeze(1) - bins + self.n_directions / 2) % self.n_directions
        share = (1 - (away - self.n_directions / 2).abs()).clamp(min=0)  # of two neighbouring bins
        length = (dx.square() + dy.square()).sqrt().unsqueeze(1)
        cells = nn.functional.adaptive_avg_pool2d(share * length, self.n_cells)
        return cells.flatten(1).sqrt()  # the square root: long strokes weigh less


# %% [markdown]
# Four pictures, and the strongest direction in each cell as a line along the stroke:

# %%
from matplotlib import pyplot as plt

figure, axes = plt.subplots(1, 4, figsize=(8, 2.2))
for axis, name in zip(axes, names[2:6], strict=True):
    picture = np.asarray(Image.open(min(Path("examples", name).iterdir())))
    pixels = torch.tensor(picture / 255, dtype=torch.float32).permute(2, 0, 1)[None]
    histograms = Strokes()(Strokes.input_spec.normalise(pixels)).view(8, 4, 4).numpy()
    strength = histograms.max(0) / histograms.max()
    angle = histograms.argmax(0) * 2 * math.pi / 8 + math.pi / 2  # across the gradient
    centres = np.arange(4) * 8 + 3.5
    axis.imshow(picture, alpha=0.5)
    axis.quiver(
        *np.meshgrid(centres, centres),
        strength * np.cos(angle),
        strength * np.sin(angle),
        angles="xy",
        pivot="mid",
        headwidth=0,
        headlength=0,
        headaxislength=0,
        color="C3",
        scale=5,
        width=0.015,
    )
    axis.axis("off")

# %% [markdown]
# ## Compare encoders
#
# Wherever an encoder is named, a module is accepted too. `extract` computes the features of all
# pictures; `efficientnet-lite0` is the default for labelling, and was trained on photos. `bench`
# draws task i from the same pictures in each table.

# %%
import infoshot

accuracies = {}
for name, encoder in {"strokes": Strokes(), "efficientnet-lite0": "efficientnet-lite0"}.items():
    table = infoshot.extract("folder", "digits", backbone=encoder, device="cpu", progress=False)
    found = infoshot.bench(table, methods="tim-auto", shots=[1, 5], tasks=300, progress=False)
    for row in found.rows:
        key = f"tim-auto/5-way/{row.shots}-shot/balanced"
        accuracies[name, row.shots] = 100 * found.accuracies[key]
        print(
            f"{name:<20} {table.features.shape[1]:5} numbers, {row.shots}-shot: "
            f"{row.mean:.1f} ± {row.ci95:.1f}"
        )

# %% [markdown]
# Both encoders saw the same tasks, so the differences are paired. An encoder that fits the pictures
# is worth more here than a large network: these digits are unlike the photos that the network was
# trained on. Compare encoders on pictures of your own kind.

# %%
for shots in (1, 5):
    differences = accuracies["strokes", shots] - accuracies["efficientnet-lite0", shots]
    mean, half_width = infoshot.metrics.mean_interval(differences)
    print(f"{shots}-shot: strokes {mean:+.1f} ± {half_width:.1f} points over efficientnet-lite0")
    assert mean - half_width > 5, f"strokes gain {mean:.1f} ± {half_width:.1f} points only"

# %% [markdown]
# ## Label with it
#
# Five examples of each of the ten classes, and the 900 pictures:

# %%
result = infoshot.label("examples", "digits", "run", backbone=Strokes(), progress=False)
truth = {path: Path(path).parent.name for path in result.labels}
correct = np.mean([label == truth[path] for path, label in result.labels.items()])
print(f"{correct:.0%} of {len(truth)} labels are correct")
print(f"estimated {result.estimate.accuracy:.0%}, from the examples alone")
assert correct > 0.8
assert result.estimate.low <= correct <= result.estimate.high

# %% [markdown]
# A run remembers a digest of its encoder. A module has no name under which it could be opened
# again, so pass it to `predict` too; another encoder is refused.

# %%
again = infoshot.predict("run", "examples/two", backbone=Strokes(), progress=False)
print([image.label for image in again])

try:
    infoshot.predict("run", "examples/two", backbone=Strokes(n_cells=2), progress=False)
except infoshot.DataError as error:
    print(error)
else:
    raise AssertionError("another encoder must be refused")

# %% [markdown]
# ## Give it a name
#
# In a file `my_encoders.py`, the encoder has the name `my_encoders:Strokes` everywhere, also on the
# command line, and runs open it again by this name:
#
# ```
# infoshot label examples/ photos/ --backbone my_encoders:Strokes --out run/
# infoshot extract --dataset folder --root photos --backbone my_encoders:Strokes --out f.safetensors
# ```

# %% [markdown]
# ## Where to go from here
#
# - [Choose an encoder](../encoders.md) lists those that have names, with sizes and licences.
# - [Bring your own method and network](../extend.md) says how a package registers a name.
# - [Train a network and reproduce a table](train_network.py) trains one instead.
