# %% [markdown]
# # Compare two methods
#
# Few-shot methods are compared on thousands of small random tasks. This tutorial draws such tasks
# from the features that come with the package (mini-ImageNet test classes, ResNet-18), evaluates
# methods, and says whether the difference of two methods could be chance.

# %% [markdown]
# ## Evaluate
#
# `bench` draws tasks with five classes, one or five examples of each class, and 15 queries per
# class. All methods get the same tasks.

# %%
import infoshot

result = infoshot.bench(
    methods=["prototype", "tim-adm", "tim-auto"], shots=[1, 5], tasks=500, progress=False
)
header, cells = result.table()
for line in [header, *cells]:
    print("".join(f"{cell:<16}" for cell in line[:2] + line[3:5] + line[7:8]))

# %% [markdown]
# The column *assumes* matters as much as the accuracy: a method that assumes balanced classes is
# right here, since these tasks are balanced. [Imbalanced and open pools](imbalanced_pools.py) shows
# what happens otherwise.

# %% [markdown]
# ## An interval for one accuracy
#
# Accuracy differs from task to task, so the mean over 500 tasks is uncertain. The 95 % interval is
# the mean ± 1.96 standard errors.

# %%
from matplotlib import pyplot as plt

name = "tim-adm/5-way/1-shot/balanced"
accuracies = 100 * result.accuracies[name]
mean, half_width = infoshot.metrics.mean_interval(accuracies)
print(f"{mean:.2f} ± {half_width:.2f}")

figure, axis = plt.subplots(figsize=(6, 2.8))
axis.hist(accuracies, bins=30, color="#5b7c8d")
axis.axvspan(mean - half_width, mean + half_width, color="#c96f3b", alpha=0.6)
axis.set(xlabel="accuracy of a task (%)", ylabel="tasks", title="TIM-ADM, one example per class")
figure.tight_layout()

# %% [markdown]
# ## An interval for a difference
#
# A task that is difficult for one method is difficult for the other. So compare the methods on each
# task and average the differences: their interval is much narrower than the intervals of the two
# accuracies. `against` does this.

# %%
paired = infoshot.bench(
    methods=["tim-adm", "tim-auto"], shots=[1, 5], tasks=500, against="tim-adm", progress=False
)
for difference in paired.differences:
    print(
        f"{difference.shots}-shot: {difference.method} - {difference.against} = "
        f"{difference.mean:+.2f} ± {difference.ci95:.2f} points"
    )

# %% [markdown]
# An interval that does not contain 0 is evidence of a difference. One that contains 0 says that the
# difference is at most as large as its ends; it does not say that the methods are equal.

# %%
one_shot = {row.method: row for row in result.rows if row.shots == 1}
unpaired = (one_shot["tim-adm"].ci95 ** 2 + one_shot["tim-auto"].ci95 ** 2) ** 0.5
print(f"half-width: paired {paired.differences[0].ci95:.2f}, of two separate means {unpaired:.2f}")
assert paired.differences[0].ci95 < unpaired

# %% [markdown]
# ## How many tasks?
#
# The half-width falls with the square root of the number of tasks: four times as many tasks halve
# it. Papers use 10,000, which takes seconds here for most methods.

# %%
import torch

for n_tasks in (125, 250, 500):
    _, width = infoshot.metrics.mean_interval(accuracies[:n_tasks])
    print(f"{n_tasks:4} tasks: ± {width:.2f}")
width_of_quarter = infoshot.metrics.mean_interval(accuracies[:125])[1]
assert torch.isclose(torch.tensor(width_of_quarter), torch.tensor(2 * half_width), rtol=0.25)

# %% [markdown]
# ## Where to go from here
#
# - The command is `infoshot bench --methods tim-adm,tim-auto --against tim-adm --json rows.json`.
# - [Evaluate few-shot methods](../evaluate.md) has your own features, other regimes, LaTeX tables,
#   and the tables of the paper.
# - [Choosing a method](../how-to-choose.md) says what to expect of each method.
