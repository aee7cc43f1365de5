# %% [markdown]
# # Features of a task, before and after
#
# The features of one task on their two principal directions. On the left a query has the colour of
# the nearest class mean of the support, on the right that of TIM-ADM. Stars are the class weights:
# TIM-ADM moves them apart, each in the direction of the queries of its class.

# %%
import torch
from matplotlib import pyplot as plt

from infoshot import METHODS, FeatureTable, TaskSpec, read_features, sample_tasks, solve
from infoshot.features import default_features_path, prepare
from infoshot.metrics import accuracy

table = read_features(default_features_path())
unit = FeatureTable(prepare(table, "l2"), table.labels)
tasks, query_labels = sample_tasks(unit, TaskSpec(n_shot=1, n_query=40, seed=3), n_tasks=1)
z = tasks.z_qry[0]
directions = torch.linalg.svd(z - z.mean(0)).Vh[:2].T
colours = plt.get_cmap("tab10").colors

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharex=True, sharey=True)
for axis, name in zip(axes, ("prototype", "tim-adm"), strict=True):
    solution = solve(METHODS[name].solver, tasks, quiet=True)
    right = float(accuracy(solution.probabilities, query_labels)[0])
    points, weights = z @ directions, solution.prototypes[0] @ directions
    chosen = [colours[k] for k in solution.probabilities[0].argmax(-1)]
    axis.scatter(*points.T, c=chosen, s=14, alpha=0.7)
    axis.scatter(*weights.T, c=colours[:5], s=220, marker="*", edgecolor="black")
    axis.set(title=f"{name}: {right:.0%} correct", xticks=[], yticks=[])
figure.tight_layout()
