# %% [markdown]
# # Label images
#
# You have a folder of pictures, and a few of them are labelled. This tutorial labels the others,
# looks at how sure the labels are, and corrects some of them. The pictures are the handwritten
# digits of scikit-learn, which are on your disk already.

# %% [markdown]
# ## Write the pictures
#
# Ten examples of each of the digits 0 to 4 go to `examples/`, one folder per class. 150 other
# pictures go to `photos/`. We keep their true classes to see how well the labels fit.

# %%
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from PIL import Image
from sklearn.datasets import load_digits

digits = load_digits(n_class=5)
order = np.random.default_rng(0).permutation(len(digits.target))
names = ["zero", "one", "two", "three", "four"]
truth, n_examples = {}, dict.fromkeys(names, 0)
for number in order[:250]:
    name = names[digits.target[number]]
    picture = Image.fromarray((255 - digits.images[number] * 255 / 16).astype(np.uint8))
    picture = picture.convert("RGB").resize((64, 64), Image.Resampling.BICUBIC)
    if n_examples[name] < 10:
        n_examples[name] += 1
        path = Path("examples") / name / f"{number}.png"
    elif len(truth) < 150:
        path = Path("photos") / f"{number}.png"
        truth[path.as_posix()] = name
    else:
        continue
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
len(truth)

# %% [markdown]
# ## Label them
#
# One call finds the pictures, computes their features with a network that was trained on other
# pictures (ImageNet), and classifies all of them together. The command
# `infoshot label examples photos --out run` does the same.

# %%
import infoshot

result = infoshot.label("examples", "photos", "run", progress=False)
result

# %% [markdown]
# The estimated accuracy comes from the examples: each is classified once as if it had no label. We
# can compare it with the truth here.

# %%
correct = np.array([result.labels[path] == name for path, name in truth.items()])
estimate = result.estimate
print(f"estimated {estimate.accuracy:.0%}, between {estimate.low:.0%} and {estimate.high:.0%}")
print(f"in truth  {correct.mean():.0%}")
assert estimate.low - 0.05 <= correct.mean() <= estimate.high + 0.05

# %% [markdown]
# ## Look at the least confident labels

# %%
doubtful = sorted(result.images, key=lambda image: image.confidence)[:10]
figure, axes = plt.subplots(2, 5, figsize=(8, 3.6))
for axis, image in zip(axes.flat, doubtful, strict=True):
    axis.imshow(Image.open(image.path))
    axis.set_title(f"{image.label} {image.confidence:.0%}", fontsize=9)
    axis.axis("off")

# %% [markdown]
# ## Correct some of them
#
# Corrections are examples from then on: all other labels are computed again. `infoshot review run`
# opens a page in the browser on which you do this with a key per picture.

# %%
corrections = {image.path: truth[image.path] for image in doubtful}
corrected = infoshot.add_labels("run", corrections, progress=False)
after = np.array([corrected.labels[path] == name for path, name in truth.items()])
print(f"correct before {correct.mean():.0%}, after ten corrections {after.mean():.0%}")
assert after.mean() >= correct.mean() - 0.02

# %% [markdown]
# ## Label new pictures
#
# The run has a classifier. It labels new pictures independently of each other.

# %%
[(image.path, image.label) for image in infoshot.predict("run", "examples/two", progress=False)][:3]

# %% [markdown]
# ## Where to go from here
#
# - [Label a folder of images](../label.md) has all options, what the files of a run hold, and
#   measurements.
# - [Review labels in the browser](../review.md) shows how to stop when the labels are accurate
#   enough.
