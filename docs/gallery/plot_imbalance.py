# %% [markdown]
# # Effect of imbalance
#
# The share of the queries that belong to the most frequent classes grows from right to left.
# A method that assumes balance loses; `tim-auto` estimates the balance
# ([how](../tim-auto.md)).

# %%
from matplotlib import pyplot as plt

import infoshot

amounts = [0.3, 0.6, 1, 2, 4, 10]
methods = ["prototype", "tim-adm", "tim-auto"]
regimes = [f"dirichlet:{amount}" for amount in amounts]
result = infoshot.bench(methods=methods, shots=1, tasks=200, regimes=regimes, progress=False)

figure, axis = plt.subplots(figsize=(6, 3.5))
for method in methods:
    rows = [row for row in result.rows if row.method == method]
    means, widths = [row.mean for row in rows], [row.ci95 for row in rows]
    axis.errorbar(amounts, means, widths, marker="o", capsize=3, label=method)
axis.set(xscale="log", xlabel="parameter of the Dirichlet distribution", ylabel="accuracy (%)")
axis.legend()
figure.tight_layout()
