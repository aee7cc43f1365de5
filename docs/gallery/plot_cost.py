# %% [markdown]
# # Cost against accuracy
#
# Mean accuracy of balanced tasks with one example per class, and the time of a task on one core of
# the machine that built this page. Methods on the left answer at once; those at the top use the
# queries well. All of them assume different things
# ([choosing a method](../how-to-choose.md)).

# %%
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

import infoshot

methods = ["prototype", "simpleshot", "label-propagation", "bd-cspn", "laplacianshot", "pt-map"]
methods += ["soft-kmeans", "paddle", "tim-adm", "tim-auto"]
result = infoshot.bench(methods=methods, shots=1, tasks=200, threads=1, progress=False)

figure, axis = plt.subplots(figsize=(6.5, 4))
for number, row in enumerate(result.rows):
    axis.errorbar(row.per_task_ms, row.mean, row.ci95, marker="o", color="#5b7c8d", capsize=2)
    place = (6, 4 if number % 2 else -12)
    axis.annotate(row.method, (row.per_task_ms, row.mean), place, textcoords="offset points")
axis.set(xscale="log", xlabel="milliseconds per task", ylabel="accuracy (%)")
axis.margins(x=0.2)
axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
axis.xaxis.set_major_formatter("{x:g}")
axis.xaxis.set_minor_formatter(NullFormatter())
figure.tight_layout()
