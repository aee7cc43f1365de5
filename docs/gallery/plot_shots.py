# %% [markdown]
# # More examples
#
# One more example helps more than a better method, and the gain from the queries is largest where
# examples are fewest.

# %%
from matplotlib import pyplot as plt

import infoshot

shots = [1, 2, 3, 5, 10, 20]
methods = ["prototype", "tim-adm", "tim-auto"]
result = infoshot.bench(methods=methods, shots=shots, tasks=200, progress=False)

figure, axis = plt.subplots(figsize=(6, 3.5))
for method in methods:
    rows = {row.shots: row for row in result.rows if row.method == method}
    means, widths = [rows[n].mean for n in shots], [rows[n].ci95 for n in shots]
    axis.errorbar(shots, means, widths, marker="o", capsize=3, label=method)
axis.set(xscale="log", xlabel="examples per class", ylabel="accuracy (%)", title="5-way")
axis.set_xticks(shots, map(str, shots))
axis.legend()
figure.tight_layout()
