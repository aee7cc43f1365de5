# %% [markdown]
# # Map of the regimes
#
# Points of accuracy above class means (`prototype`), with one example per class, for several
# methods and several kinds of query sets. No method that assumes balance is good everywhere.

# %%
import torch
from matplotlib import pyplot as plt

import infoshot

methods = ["label-propagation", "bd-cspn", "soft-kmeans", "paddle", "tim-adm", "tim-auto"]
regimes = ["balanced", "dirichlet:2", "effective:2", "effective:1", "few:5"]
result = infoshot.bench(
    methods=methods, against="prototype", shots=1, tasks=200, regimes=regimes, progress=False
)
gain = {(item.method, item.regime): item.mean for item in result.differences}
found = list(dict.fromkeys(item.regime for item in result.differences))
values = torch.tensor([[gain[method, regime] for regime in found] for method in methods])

figure, axis = plt.subplots(figsize=(6.5, 3.8))
largest = float(values.abs().max())
axis.imshow(values, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
for row in range(len(methods)):
    for column in range(len(found)):
        value = float(values[row, column])
        colour = "white" if abs(value) > 0.6 * largest else "black"
        axis.text(column, row, f"{value:+.1f}", ha="center", va="center", color=colour)
axis.set_xticks(range(len(found)), found)
axis.set_yticks(range(len(methods)), methods)
figure.tight_layout()
