import math

import numpy as np
import pytest
import torch

from infoshot import InvalidArgumentError, Prototype, ShapeError, TaskBatch, TimAdm, TimGd, solve
from infoshot.solvers import METHODS, method_by_name


def _batch(**changes):
    parts = {
        "z_sup": torch.rand(2, 4, 3),
        "y_sup": torch.tensor([[0, 1, 0, 1], [0, 1, 1, 1]]),
        "z_qry": torch.rand(2, 5, 3),
        "n_way": 2,
    }
    return TaskBatch(**{**parts, **changes})


BAD_TASKS = {
    "support of two axes": ({"z_sup": torch.rand(4, 3)}, ShapeError, r"z_sup must have shape \(task, support, dim\).*got \(4, 3\)"),
    "queries of another width": ({"z_qry": torch.rand(2, 5, 7)}, ShapeError, r"z_qry must have shape \(task, query, dim\) with task=2 and dim=3 like z_sup.*got \(2, 5, 7\)"),
    "no query": ({"z_qry": torch.rand(2, 0, 3)}, ShapeError, r"at least one query; got \(2, 0, 3\)"),
    "other number of tasks": ({"z_qry": torch.rand(1, 5, 3)}, ShapeError, r"task=2.*got \(1, 5, 3\)"),
    "labels of another shape": ({"y_sup": torch.zeros(2, 3)}, ShapeError, r"y_sup must have shape \(task, support\) = \(2, 4\)"),
    "label too large": ({"y_sup": torch.tensor([[0, 1, 0, 2], [0, 1, 0, 1]])}, InvalidArgumentError, r"y_sup must hold labels from 0 to 1 \(n_way=2\); got 0 to 2"),
    "label negative": ({"y_sup": torch.tensor([[0, 1, 0, -1], [0, 1, 0, 1]])}, InvalidArgumentError, r"got -1 to 1"),
    "label fractional": ({"y_sup": torch.tensor([[0, 1, 0, 0.5], [0, 1, 0, 1]])}, InvalidArgumentError, r"y_sup must hold whole numbers; got fractions"),
    "class without support": ({"y_sup": torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0]])}, InvalidArgumentError, r"task 1 has none of class 1"),
    "one class": ({"n_way": 1}, InvalidArgumentError, r"n_way must be a whole number of at least 2; got 1"),
    "NaN": ({"z_qry": torch.full((2, 5, 3), math.nan)}, InvalidArgumentError, r"z_qry must be finite; got nan at index \(0, 0, 0\) \(30 such values"),
    "infinite": ({"z_sup": torch.tensor([[[1.0, 2, math.inf]] * 4] * 2)}, InvalidArgumentError, r"z_sup must be finite; got inf at index \(0, 0, 2\)"),
    "text": ({"z_sup": np.full((2, 4, 3), "x")}, InvalidArgumentError, r"z_sup must hold real numbers; got an array of <U1"),
    "objects": ({"z_sup": np.full((2, 4, 3), None)}, InvalidArgumentError, r"z_sup must hold real numbers; got an array of object"),
    "complex": ({"z_sup": torch.rand(2, 4, 3) * 1j}, InvalidArgumentError, r"z_sup must hold real numbers; got torch.complex64"),
    "ragged": ({"z_sup": [[[1.0], [1.0, 2.0]]]}, ShapeError, r"z_sup must be a regular array"),
    "mixed dtypes": ({"z_qry": torch.rand(2, 5, 3).double()}, InvalidArgumentError, r"z_qry must have the dtype and device of z_sup"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_TASKS)
def test_bad_tasks_get_one_clear_sentence(case):
    changes, kind, message = BAD_TASKS[case]
    with pytest.raises(kind, match=message):
        solve(TimAdm(), _batch(**changes))


BAD_SETTINGS = {
    "zero iterations": (TimAdm(n_steps=0), InvalidArgumentError, r"TimAdm: n_steps must be a whole number of at least 1; got 0"),
    "fractional iterations": (TimGd(n_steps=1.5), InvalidArgumentError, r"TimGd: n_steps must be a whole number"),
    "negative weight": (TimAdm(cross_entropy_weight=-0.1), InvalidArgumentError, r"cross_entropy_weight must be a finite number of at least 0; got -0.1"),
    "negative temperature": (Prototype(temperature=-1.0), InvalidArgumentError, r"Prototype: temperature must be a finite number above 0; got -1.0"),
    "zero learning rate": (TimGd(learning_rate=0.0), InvalidArgumentError, r"learning_rate must be a finite number above 0"),
    "negative tolerance": (TimAdm(tolerance=-1e-3), InvalidArgumentError, r"tolerance must be a finite number above 0"),
    "unknown form": (TimAdm(form="grams"), InvalidArgumentError, r"form must be one of 'auto', 'gram', 'feature'; got 'grams'"),
    "prior negative": (TimAdm(class_prior=[2, -1]), InvalidArgumentError, r"class_prior must hold finite weights of at least 0"),
    "prior all zero": (TimGd(class_prior=[0, 0]), InvalidArgumentError, r"class_prior must give some class a weight above 0"),
    "prior too long": (TimAdm(class_prior=[1, 1, 1]), ShapeError, r"class_prior must hold one weight for each of the 2 classes; got 3"),
    "prior of words": (TimAdm(class_prior=["a", "b"]), InvalidArgumentError, r"class_prior must be a list of numbers"),
    "prior with a zero": (TimAdm(class_prior=[1, 0]), InvalidArgumentError, r"class_prior must be above 0 for every class; got \[1, 0\]. If a class cannot occur, remove its examples"),
    "step size above one": (TimAdm(prototype_step_size=1.5), InvalidArgumentError, r"prototype_step_size must be above 0 and at most 1; got 1.5"),
    "a name for a solver": ("tim-adm", InvalidArgumentError, r"solver must be a Solver, such as TimAdm\(\); got 'tim-adm'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_get_one_clear_sentence(case):
    solver, kind, message = BAD_SETTINGS[case]
    with pytest.raises(kind, match=message):
        solve(solver, _batch())


def test_unknown_method_names_the_nearest():
    with pytest.raises(
        InvalidArgumentError,
        match=r"Unknown method 'tim-adn'. Did you mean 'tim-adm'\? Known: prototype",
    ):
        method_by_name("tim-adn")


def test_unknown_setting_names_the_nearest():
    with pytest.raises(
        InvalidArgumentError,
        match=r"Unknown setting of tim-adm 'temperatures'. Did you mean 'temperature'\?",
    ):
        METHODS["tim-adm"].with_settings({"temperatures": 1.0})
