# %% [markdown]
# # Calibration curve
#
# Of the labels with a confidence of about 80 %, 80 % should be correct: the curve should follow the
# diagonal. Below it a method is overconfident.

# %%
from matplotlib import pyplot as plt

from infoshot import METHODS, FeatureTable, TaskSpec, read_features, sample_tasks, solve
from infoshot.features import default_features_path, prepare
from infoshot.metrics import calibration_bins, expected_calibration_error

table = read_features(default_features_path())

figure, axis = plt.subplots(figsize=(4.6, 4.2))
axis.plot([0.2, 1], [0.2, 1], color="grey", linewidth=1)
for name in ("prototype", "tim-adm", "tim-auto"):
    method = METHODS[name]
    prepared = FeatureTable(prepare(table, method.preparation), table.labels)
    tasks, query_labels = sample_tasks(prepared, TaskSpec(n_shot=5), n_tasks=200)
    probabilities = solve(method.solver, tasks, quiet=True).probabilities
    bins = calibration_bins(probabilities, query_labels, n_bins=10)
    count, confidence, right = bins[bins[:, 0] > 100].T
    error = 100 * expected_calibration_error(bins)
    axis.plot(confidence / count, right / count, marker="o", label=f"{name}, error {error:.1f} %")
axis.set(xlabel="confidence", ylabel="share of correct labels", title="5-way 5-shot")
axis.legend()
figure.tight_layout()
