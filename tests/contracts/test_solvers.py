"""The contract for every registered method and for variants with their own code paths."""

from dataclasses import dataclass

import pytest
import torch

from infoshot import Prototype, TimAdm, TimGd
from infoshot.solvers import METHODS, Solver
from infoshot.solvers.alpha_tim import AlphaTim
from infoshot.solvers.baselines.label_propagation import LabelPropagation
from infoshot.solvers.baselines.laplacianshot import LaplacianShot
from infoshot.solvers.baselines.pt_map import PtMap
from infoshot.solvers.tim_auto import TimAuto
from infoshot.testing import (
    CHECKS,
    check_bad_arguments_are_named,
    check_batch_equals_loop,
    check_deterministic,
    check_equivariant,
    check_inputs_unchanged,
    check_output_follows_input,
    check_precision_and_extremes,
    check_solver,
)

SOLVERS = {
    **{name: method.solver for name, method in METHODS.items()},
    "tim-adm, features": TimAdm(form="feature"),
    "tim-adm, not linearised": TimAdm(linearized=False),
    "tim-adm, prior": TimAdm(class_prior=(0.4, 0.3, 0.2, 0.1)),
    "tim-adm, no entropies": TimAdm(marginal_entropy_weight=0.0, conditional_entropy_weight=0.0),
    "tim-adm, tolerance": TimAdm(tolerance=1e-4),
    "tim-gd, prior": TimGd(class_prior=(0.4, 0.3, 0.2, 0.1), n_steps=100),
    "tim-gd, tolerance": TimGd(tolerance=1e-4, n_steps=100),
    "alpha-tim, a = 0.5": AlphaTim(tsallis_alpha=0.5, n_steps=100),
    "laplacianshot, class means": LaplacianShot(rectify=False),
    "label-propagation, published": LabelPropagation(n_neighbours=20, propagation=0.99),
    "pt-map, prior": PtMap(class_prior=(0.4, 0.3, 0.2, 0.1)),
    "tim-auto, not smoothed": TimAuto(smoothing=0.0),
}


@pytest.mark.filterwarnings(
    "ignore::infoshot.core.errors.IsolatedWarning"
)  # features of length 1e6
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SOLVERS)
def test_solver_keeps_the_contract(name, check):
    check(SOLVERS[name])


# Each of these solvers breaks one rule, which the suite must detect.


def _unnormalised(task, log_p):
    return log_p + 0.1


def _noisy(task, log_p):
    return torch.log_softmax(log_p * (1 + torch.randn(task.n_qry, 1, dtype=log_p.dtype) ** 2), -1)


def _across_tasks(task, log_p):
    return torch.log_softmax(log_p + log_p.mean(0, keepdim=True), -1)


def _by_position(task, log_p):
    tilt = torch.linspace(0, 1, task.n_qry, dtype=log_p.dtype).unsqueeze(-1)
    return torch.log_softmax(log_p + tilt * torch.eye(1, task.n_way, dtype=log_p.dtype), -1)


def _writing(task, log_p):
    task.z_qry.mul_(1.01)
    return log_p


def _overflowing(task, log_p):
    return torch.log(torch.softmax(log_p * 1e30, -1)) * 0


TAMPER = {
    "unnormalised": (_unnormalised, check_output_follows_input),
    "noisy": (_noisy, check_deterministic),
    "across tasks": (_across_tasks, check_batch_equals_loop),
    "by position": (_by_position, check_equivariant),
    "writing": (_writing, check_inputs_unchanged),
    "overflowing": (_overflowing, check_precision_and_extremes),
}


@dataclass(frozen=True, kw_only=True)
class Tampered(Solver):
    """The prototype classifier with a fault in its posterior."""

    temperature: float = 15.0
    how: str = "not"
    n_steps = 0
    tolerance = None

    def init(self, task):
        return Prototype().init(task)

    def step(self, task, state):
        return state

    def log_posterior(self, task, state):
        log_p = Prototype(temperature=self.temperature).log_posterior(task, state)
        return TAMPER[self.how][0](task, log_p) if self.how in TAMPER else log_p

    def prototypes(self, task, state):
        return state.weights

    def loss(self, task, log_p_sup, log_p_qry):
        return log_p_qry.sum()

    def working_set(self, task):
        return task.dim

    def validate(self, n_way=None):
        if self.how != "accepting anything":
            Solver.validate(self, n_way)


def test_suite_accepts_a_solver_from_outside():
    check_solver(Tampered())


@pytest.mark.parametrize("how", TAMPER)
@pytest.mark.filterwarnings("ignore::infoshot.core.errors.NonFiniteWarning")
def test_suite_detects_a_broken_solver(how):
    with pytest.raises(AssertionError):
        TAMPER[how][1](Tampered(how=how))


def test_suite_detects_a_solver_that_accepts_any_argument():
    with pytest.raises(AssertionError, match="temperature"):
        check_bad_arguments_are_named(Tampered(how="accepting anything"))
