# %% [markdown]
# # Confidences of a pool
#
# One pool of 1,000 images with five examples of each of five classes. Most errors have a low
# confidence, so they are the ones to review first.

# %%
from matplotlib import pyplot as plt

from infoshot import METHODS, FeatureTable, TaskSpec, read_features, sample_tasks, solve
from infoshot.features import default_features_path, prepare

table, method = read_features(default_features_path()), METHODS["tim-auto"]
prepared = FeatureTable(prepare(table, method.preparation), table.labels)
tasks, query_labels = sample_tasks(prepared, TaskSpec(n_shot=5, n_query=200), n_tasks=1)
confidence, label = solve(method.solver, tasks, quiet=True).probabilities[0].max(-1)
correct = label == query_labels[0]

figure, axis = plt.subplots(figsize=(6, 3.2))
values = [confidence[correct].numpy(), confidence[~correct].numpy()]
axis.hist(values, bins=20, stacked=True, label=["correct", "wrong"], color=["#5b7c8d", "#c96f3b"])
axis.set(xlabel="confidence", ylabel="images", title=f"{correct.float().mean():.0%} are correct")
axis.legend()
figure.tight_layout()
