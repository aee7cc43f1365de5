# %% [markdown]
# # More queries
#
# `prototype` classifies each query independently, so its accuracy does not depend on their number.
# The other methods classify all queries together.

# %%
from matplotlib import pyplot as plt

import infoshot

numbers = [1, 3, 5, 10, 20, 40]
methods = ["prototype", "tim-adm", "tim-auto"]

figure, axis = plt.subplots(figsize=(6, 3.5))
rows = [
    row
    for n in numbers
    for row in infoshot.bench(methods=methods, shots=1, queries=n, tasks=200, progress=False).rows
]
for method in methods:
    own = [row for row in rows if row.method == method]
    means, widths = [row.mean for row in own], [row.ci95 for row in own]
    axis.errorbar(numbers, means, widths, marker="o", capsize=3, label=method)
axis.set(xscale="log", xlabel="queries per class", ylabel="accuracy (%)", title="5-way 1-shot")
axis.set_xticks(numbers, map(str, numbers))
axis.legend()
figure.tight_layout()
