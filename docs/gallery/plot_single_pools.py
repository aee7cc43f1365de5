# %% [markdown]
# # Gain of single pools
#
# A mean gain hides what one user sees. Each pool is one task: `tim-auto` gains on most and loses on
# some ([single pools of images](../pools.md)).

# %%
from matplotlib import pyplot as plt

import infoshot

result = infoshot.bench(
    methods=["prototype", "tim-auto"],
    shots=[1, 5],
    tasks=500,
    regimes="dirichlet:2",
    progress=False,
)

figure, axis = plt.subplots(figsize=(6, 3.4))
for row in result.rows:
    if row.method == "tim-auto":
        key = row.accuracies_key
        before = result.accuracies[key.replace("tim-auto", "prototype")]
        gain = 100 * (result.accuracies[key] - before)
        losing = float((gain < -2).double().mean())
        name = f"{row.shots}-shot: {losing:.0%} lose more than two points"
        axis.hist(gain.numpy(), bins=range(-40, 61, 4), alpha=0.6, label=name)
axis.axvline(0, color="black", linewidth=1)
axis.set(xlabel="points above class means", ylabel="pools")
axis.legend()
figure.tight_layout()
