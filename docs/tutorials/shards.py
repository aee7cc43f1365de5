# %% [markdown]
# # Label rows that do not fit into memory
#
# With millions of samples the features are written to many files, *shards*, and one solve labels
# the rows of all of them. Only a block of a shard is in memory at any time. This tutorial does so
# with the features that come with the package, so that the answers can be compared with the truth.

# %% [markdown]
# ## Write shards
#
# We take five classes of the package's features, 600 rows each. Five rows of each class are the
# support. The others are shuffled and divided into six shards, `.npy` files in float16.
# `infoshot extract-shards photos/ --out shards/` writes such files for a folder of images.

# %%
from pathlib import Path

import numpy as np
import torch

import infoshot
from infoshot.features import default_features_path

table = infoshot.read_features(default_features_path())
rng = np.random.default_rng(0)
chosen = range(8, 13)
rows = [rng.permutation(np.flatnonzero(table.labels.numpy() == number)) for number in chosen]
support = np.concatenate([own[:5] for own in rows])
queries = rng.permutation(np.concatenate([own[5:] for own in rows]))

names = tuple(table.class_names[number] for number in chosen)
labels = table.labels - chosen[0]
few = infoshot.FeatureTable(table.features[support], labels[support], class_names=names)
infoshot.write_features("support.safetensors", few)

Path("shards").mkdir()
parts = np.array_split(queries, 6)
for number, part in enumerate(parts):
    np.save(f"shards/part{number}.npy", table.features[part].half().numpy())
print(f"{len(queries)} rows in {len(parts)} shards, {len(support)} in the support")

# %% [markdown]
# ## Solve
#
# The command is `infoshot solve-shards --support support.safetensors --queries shards --out run`.
# Each iteration reads all rows, and its state is the class weights only.

# %%
summary = infoshot.solve_shards(
    "support.safetensors", "shards", "run", device="cpu", progress=False
)
print(f"{summary.n_queries} rows, {summary.n_shards} shards, {summary.n_steps} iterations")
print(summary.counts)
assert summary.n_queries == len(queries)

# %% [markdown]
# ## Read the labels
#
# For every shard there is a file of the same name with label, confidence and margin of each row.

# %%
from safetensors.numpy import load_file


def read_labels(run, n_shards):
    """Labels of all shards, in their order."""
    files = [f"{run}/labels/part{number}.safetensors" for number in range(n_shards)]
    return np.concatenate([load_file(file)["labels"] for file in files])


found = read_labels("run", len(parts))
truth = labels[queries].numpy()
accuracy = (found == truth).mean()
print(f"{accuracy:.1%} of {len(truth)} labels are correct")

# %% [markdown]
# They are the labels of a solve in memory. Single labels may differ where two classes are equally
# likely, since the shards are in float16:

# %%
z = torch.nn.functional.normalize(table.features.float(), dim=-1)
task = infoshot.TaskBatch(
    z[support][None], labels[support][None], z[queries][None], n_way=len(names)
)
in_memory = infoshot.solve(infoshot.METHODS["tim-adm"].solver, task, quiet=True)
agreement = (in_memory.probabilities[0].argmax(-1).numpy() == found).mean()
print(f"{agreement:.2%} of the labels agree")
assert agreement > 0.995

# %% [markdown]
# ## Stop early, and resume
#
# With a tolerance the solve ends when no probability of 2,048 sampled queries changes by more. That
# saves most of the time; some labels are still on their way then.

# %%
early = infoshot.solve_shards(
    "support.safetensors", "shards", "early", tolerance=0.01, device="cpu", progress=False
)
stopped = read_labels("early", len(parts))
print(f"{early.n_steps} iterations instead of {summary.n_steps}")
print(f"{(stopped == truth).mean():.1%} correct, {(stopped == found).mean():.1%} as before")
assert early.converged
assert early.n_steps < summary.n_steps / 2

# %% [markdown]
# A solve that is killed resumes when the same call is repeated. A finished one is not computed
# again:

# %%
again = infoshot.solve_shards("support.safetensors", "shards", "run", device="cpu", progress=False)
print(f"finished before: {again.was_finished}")
assert again.was_finished
assert again.counts == summary.counts

# %% [markdown]
# ## Classes that are not equally frequent
#
# `tim-adm` assumes that they are. Here the first two classes keep all their rows, and the others a
# tenth. A sample of the queries is solved first, and a warning says what it shows.

# %%
import warnings

keep = (truth < 2) | (np.arange(len(truth)) % 10 == 0)
tail = queries[keep]
Path("tail").mkdir()
for number, part in enumerate(np.array_split(tail, 3)):
    np.save(f"tail/part{number}.npy", table.features[part].half().numpy())

shares = {}
for method in ("tim-adm", "tim-auto"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        infoshot.solve_shards(
            "support.safetensors", "tail", method, method=method, device="cpu", progress=False
        )
    labelled = read_labels(method, 3)
    shares[method] = np.bincount(labelled, minlength=5)
    print(f"{method:<9} {(labelled == truth[keep]).mean():.1%} correct")
    for warning in caught:
        print(f"  {warning.message}")
    assert bool(caught) == (method == "tim-adm")

# %%
from matplotlib import pyplot as plt

shares = {"truth": np.bincount(truth[keep], minlength=5)} | shares
figure, axis = plt.subplots(figsize=(6, 2.8))
for number, (name, counts) in enumerate(shares.items()):
    axis.bar(np.arange(5) + 0.27 * (number - 1), counts, 0.25, label=name)
axis.set(xticks=range(5), xlabel="class", ylabel="rows")
axis.legend()
figure.tight_layout()

# %%
errors = {name: np.abs(counts - shares["truth"]).sum() for name, counts in shares.items()}
assert errors["tim-auto"] < errors["tim-adm"] / 2

# %% [markdown]
# ## Where to go from here
#
# - [Label millions of rows](../shards.md) has formats, Parquet and remote files, several processes
#   and GPUs, and what the shards cost in accuracy.
# - [Speed and memory](../performance.md) says how large a pool in memory may be.
