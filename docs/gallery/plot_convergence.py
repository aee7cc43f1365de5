# %% [markdown]
# # Convergence of TIM-ADM and TIM-GD
#
# Both solvers maximize the mutual information between the queries and their labels, beside the
# cross-entropy of the support. The closed-form updates of TIM-ADM need far fewer steps than
# gradient descent ([the mathematics](../math.md)).

# %%
from matplotlib import pyplot as plt

from infoshot import FeatureTable, TaskSpec, TimAdm, TimGd, read_features, sample_tasks, solve
from infoshot.features import default_features_path, prepare

table = read_features(default_features_path())
unit = FeatureTable(prepare(table, "l2"), table.labels)
tasks, _ = sample_tasks(unit, TaskSpec(n_way=5, n_shot=1), n_tasks=50)

figure, axis = plt.subplots(figsize=(6, 3.5))
for name, solver in {"TIM-ADM": TimAdm(), "TIM-GD": TimGd()}.items():
    information = solve(solver, tasks, record_trace=True, quiet=True).trace.mutual_information
    axis.plot(range(1, information.shape[1] + 1), information.mean(0), label=name)
axis.set(xscale="log", xlabel="step", ylabel="mutual information (nats)", title="5-way 1-shot")
axis.legend()
figure.tight_layout()
