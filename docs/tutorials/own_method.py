# %% [markdown]
# # Bring your own method
#
# A method is a class with two functions: how a solve starts, and what the class weights are. This
# tutorial writes one, checks it, and compares it with the methods of the package. Nothing in the
# package has to be changed.

# %% [markdown]
# ## Write it
#
# Our method represents each class by the mean of its examples, and then moves these means towards
# the queries that it classifies as this class, for a few steps. All tasks are solved at once, so
# every tensor has the task as its first axis.
#
# Fields are hyperparameters, each with a default. `task.z_sup` has the shape
# `(task, support, dim)`, `task.y_sup` `(task, support)` and `task.z_qry` `(task, query, dim)`.
# There are no query labels: a method cannot see them.

# %%
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import one_hot

from infoshot import Solver, State


@dataclass(eq=False)
class MeansState(State):
    weights: Tensor  # (task, class, dim)


@dataclass(frozen=True, kw_only=True)
class MovingMeans(Solver):
    """Class means that move towards the queries of their class."""

    n_steps: int = 10
    temperature: float = 15.0
    query_weight: float = 0.5

    def init(self, task):
        y = one_hot(task.y_sup, task.n_way).to(task.z_sup)  # (task, support, class)
        return MeansState(weights=y.mT @ task.z_sup / y.sum(1).unsqueeze(-1))

    def step(self, task, state):
        y = one_hot(task.y_sup, task.n_way).to(task.z_sup)
        p = self.query_weight * self.log_posterior(task, state).exp()  # (task, query, class)
        total = y.mT @ task.z_sup + p.mT @ task.z_qry
        return MeansState(weights=total / (y.sum(1) + p.sum(1)).unsqueeze(-1))

    def prototypes(self, task, state):
        return state.weights


# %% [markdown]
# `log_posterior` is that of `Solver`: a softmax over squared distances to the class weights. A
# method that classifies differently defines its own.

# %% [markdown]
# ## Check it
#
# `check_solver` tests what every caller relies on: that a batch of tasks gives what single tasks
# give, that the order of queries and classes does not matter, that huge and tiny features stay
# finite, and more. It raises `AssertionError` if something is wrong.

# %%
from infoshot.testing import check_solver

check_solver(MovingMeans())

# %% [markdown]
# This is what it says about a mistake. The class below divides by a number that all tasks of a
# batch share, so that the result of a task depends on the tasks beside it:

# %%


@dataclass(frozen=True, kw_only=True)
class Wrong(MovingMeans):
    """Class weights divided by their mean length, over all tasks."""

    def prototypes(self, task, state):
        return state.weights / state.weights.norm(dim=-1).mean()


try:
    check_solver(Wrong())
except AssertionError as error:
    print(str(error).partition("\n")[0])
else:
    raise AssertionError("check_solver must find this mistake")

# %% [markdown]
# ## Compare it
#
# Wherever a method is named, an instance or `package.module:Name` is accepted too.

# %%
import infoshot

result = infoshot.bench(
    methods=["prototype", MovingMeans(), "tim-adm"],
    shots=[1, 5],
    tasks=500,
    against="prototype",
    progress=False,
)
for difference in result.differences:
    print(
        f"{difference.shots}-shot: {difference.method:<13} {difference.mean:+.2f} "
        f"± {difference.ci95:.2f} points over {difference.against}"
    )

# %% [markdown]
# The queries help: with one example per class the method is above the class means that it starts
# from.

# %%
gain = next(d for d in result.differences if d.method == "moving-means" and d.shots == 1)
assert gain.mean - gain.ci95 > 0

# %% [markdown]
# ## Choose a setting
#
# Settings are changed by name. Choose them on validation classes, not on the test classes that you
# report; here we only look at how much one of them matters.

# %%
from matplotlib import pyplot as plt

weights = [0.0, 0.25, 0.5, 0.75, 1.0]
solvers = [(MovingMeans(), {"query_weight": weight}) for weight in weights]
rows = infoshot.bench(methods=solvers, shots=1, tasks=500, progress=False).rows

figure, axis = plt.subplots(figsize=(5, 3))
axis.errorbar(
    weights, [row.mean for row in rows], [row.ci95 for row in rows], capsize=3, marker="o"
)
axis.set(xlabel="query_weight", ylabel="accuracy (%)", title="5-way 1-shot")
figure.tight_layout()

# %% [markdown]
# ## Where to go from here
#
# - Put the class into a file `my_methods.py` and name it on the command line:
#   `infoshot bench --methods tim-adm,my_methods:MovingMeans`.
# - [Bring your own method and network](../extend.md) has networks too, and how a package registers
#   names.
# - `Solver` lists everything that a method can define.
