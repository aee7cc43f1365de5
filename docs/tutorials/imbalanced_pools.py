# %% [markdown]
# # Imbalanced and open pools
#
# Benchmarks usually have as many queries of every class. Your photos do not: some classes are rare,
# some do not occur, and some photos belong to no class at all. This tutorial shows what that does
# to methods, on the features that come with the package.

# %% [markdown]
# ## One pool
#
# We draw one task with five examples of each of five classes and 75 queries, of which most belong
# to two classes.

# %%
import torch

import infoshot
from infoshot import METHODS, TaskSpec, read_features, sample_tasks, solve
from infoshot.features import default_features_path, prepare
from infoshot.metrics import accuracy
from infoshot.tasks.regimes import Regime

table = read_features(default_features_path())
unit = infoshot.FeatureTable(prepare(table, "l2"), table.labels)
spec = TaskSpec(n_way=5, n_shot=5, regime=Regime("effective", 2))
tasks, query_labels = sample_tasks(unit, spec, n_tasks=200)
print("queries of each class:", query_labels[0].bincount(minlength=5).tolist())

# %%
for name in ("prototype", "tim-adm", "tim-auto"):
    solution = solve(METHODS[name].solver, tasks, quiet=True)
    counts = solution.probabilities[0].argmax(-1).bincount(minlength=5).tolist()
    mean = float(accuracy(solution.probabilities, query_labels).mean())
    print(f"{name:<10} labels of the first pool {counts}, accuracy over 200 pools {mean:.1%}")

# %% [markdown]
# `tim-adm` assumes that all classes are equally frequent. It spreads its labels over five classes
# where there are two. `tim-auto` estimates from the features how balanced the classes are.

# %% [markdown]
# ## How much imbalance?
#
# Regimes say how queries are distributed. In `dirichlet:A` the proportions are drawn from a
# Dirichlet distribution: the smaller A, the more imbalanced.

# %%
from matplotlib import pyplot as plt

amounts = [0.5, 1, 2, 5, 20]
methods = ["prototype", "tim-adm", "tim-auto"]
regimes = [f"dirichlet:{amount}" for amount in amounts]
result = infoshot.bench(methods=methods, shots=5, tasks=300, regimes=regimes, progress=False)

figure, axis = plt.subplots(figsize=(6, 3.4))
for method in methods:
    rows = [row for row in result.rows if row.method == method]
    axis.errorbar(
        amounts, [r.mean for r in rows], [r.ci95 for r in rows], marker="o", capsize=3, label=method
    )
axis.set(xscale="log", xlabel="A (left: imbalanced)", ylabel="accuracy (%)", title="5-way 5-shot")
axis.legend()
figure.tight_layout()

# %% [markdown]
# The classes with few queries matter too. *Macro F1* averages over classes, so a method cannot hide
# that it ignores the rare ones.

# %%
for row in result.rows:
    if row.regime == regimes[0]:
        print(f"{row.method:<10} accuracy {row.mean:.1f}, macro F1 {row.macro_f1:.1f}")

# %%
cells = {(row.method, row.regime): row.mean for row in result.rows}
first, last = (str(Regime("dirichlet", amount)) for amount in (amounts[0], amounts[-1]))
skewed = cells["tim-adm", first] - cells["prototype", first]
balanced = cells["tim-adm", last] - cells["prototype", last]
print(f"tim-adm against prototype: {skewed:+.1f} points if imbalanced, {balanced:+.1f} if balanced")
assert skewed < 0 < balanced

# %% [markdown]
# ## If you know the proportions
#
# `tim-adm` accepts them as `class_prior`. Approximate proportions are enough, but values close to 0
# are dangerous: a class that is said to be absent gets no labels.

# %%
pool, labels = tasks[:1], query_labels[:1]
shares = (labels[0].bincount(minlength=5) + 2.0) / (len(labels[0]) + 10.0)
known = METHODS["tim-adm"].with_settings({"class_prior": tuple(shares.tolist())})
for method in (METHODS["tim-adm"], known):
    right = accuracy(solve(method.solver, pool, quiet=True).probabilities, labels)
    prior = "with" if method.solver.class_prior else "without"
    print(f"{prior} proportions: {float(right[0]):.0%} of the first pool")

# %% [markdown]
# ## Samples of no class
#
# In the regime `open:25`, 25 queries more belong to other classes. Every method labels them too, so
# look at the *outlier scores*: samples of no class should have
# higher ones. The AUROC is the probability that they do, 50 % for a guess.

# %%
opened = infoshot.bench(
    methods=["prototype", "tim-auto"], shots=5, tasks=300, regimes="open:25", progress=False
)
for row in opened.rows:
    print(f"{row.method:<10} AUROC {row.auroc:.1f} ± {row.auroc_ci95:.1f}")
    assert row.auroc - row.auroc_ci95 > 50

# %%
spec = TaskSpec(n_way=5, n_shot=5, regime=Regime("open", 25))
tasks, query_labels = sample_tasks(unit, spec, n_tasks=200)
scores = solve(METHODS["tim-auto"].solver, tasks, quiet=True).outlier_scores
outlier = query_labels < 0

figure, axis = plt.subplots(figsize=(6, 3))
bins = torch.linspace(float(scores.min()), float(scores.max()), 40).numpy()
axis.hist(scores[~outlier], bins, density=True, alpha=0.6, label="of the five classes")
axis.hist(scores[outlier], bins, density=True, alpha=0.6, label="of other classes")
axis.set(xlabel="outlier score", ylabel="density")
axis.legend()
figure.tight_layout()

# %% [markdown]
# The two overlap: some samples of other classes look like one of the five. If many photos may
# belong to no class, add a class "other" with examples of them
# ([out-of-class images](../label.md#out-of-class-images)).

# %% [markdown]
# ## Where to go from here
#
# - [Choosing a method](../how-to-choose.md) has all methods, and what each assumes.
# - [How tim-auto estimates the class balance](../tim-auto.md) explains how it decides.
# - [Single pools of images](../pools.md) shows how much results differ from pool to pool.
