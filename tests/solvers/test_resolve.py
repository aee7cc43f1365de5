"""Methods from outside: a solver in a user's file, references, entry points, objects."""

import sys
from dataclasses import dataclass, field
from doctest import DocTestParser
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch

from infoshot import (
    InvalidArgumentError,
    Prototype,
    ShapeError,
    TimAdm,
    TIMClassifier,
    TimGd,
    solve,
)
from infoshot.benchmark import Protocol, score_cell
from infoshot.solvers import (
    METHODS,
    Method,
    PtMap,
    Solver,
    State,
    method_facts,
    method_from_facts,
    resolve_method,
)
from infoshot.tasks import TaskSpec
from infoshot.testing import check_solver


@pytest.fixture
def my_methods(tmp_path, monkeypatch):
    """The example in the docstring of ``Solver``, as a module in the current folder."""
    state, solver = DocTestParser().get_examples(Solver.__doc__)[:2]
    imports = "import dataclasses\nimport torch\nfrom infoshot.solvers import Solver, State\n"
    code = f"{imports}{state.source}{solver.source}"
    assert len(code.splitlines()) <= 16
    (tmp_path / "my_methods.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_methods", None)


def test_the_documented_solver_works_everywhere(my_methods, easy_tasks, embedded):
    method = resolve_method("my_methods:NearestMedian")
    assert (method.name, method.summary) == ("my_methods:NearestMedian", "Nearest class median")
    assert (method.preparation, method.assumes, method.cost) == ("l2", (), "unknown")
    assert method.transductive
    assert method.inductive
    check_solver(method.solver)
    tasks, labels = easy_tasks
    assert (solve(method.solver, tasks).probabilities.argmax(-1) == labels).double().mean() > 0.9
    protocol = Protocol(spec=TaskSpec(), n_tasks=20)
    row, _ = score_cell(embedded, method.with_settings({"temperature": 20.0}), protocol)
    assert row.mean > 40
    assert row.settings["temperature"] == 20.0


def test_the_documented_solver_is_an_estimator(my_methods, tmp_path):
    x = np.array([[1, 0], [0, 1], [0.9, 0.2], [0.8, 0.1], [0.2, 0.9], [0.1, 0.8]])
    y = [0, 1, -1, -1, -1, -1]
    for method in ("my_methods:NearestMedian", resolve_method("my_methods:NearestMedian").solver):
        fitted = TIMClassifier(method=method, temperature=30.0).fit(x, y)
        assert fitted.transduction_.tolist() == [0, 1, 0, 0, 1, 1]
        fitted.save(tmp_path / "clf")
        loaded = TIMClassifier.load(tmp_path / "clf")
        np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    (tmp_path / "my_methods.py").unlink()
    sys.modules.pop("my_methods")
    with pytest.raises(InvalidArgumentError, match="a file does not import modules"):
        TIMClassifier.load(tmp_path / "clf")


def test_names_and_objects_give_the_registered_methods():
    assert resolve_method("tim-adm") is METHODS["tim-adm"]
    assert resolve_method(METHODS["pt-map"]) is METHODS["pt-map"]
    for name, method in METHODS.items():
        if name != "simpleshot":  # the prototype after another preparation
            assert resolve_method(method.solver) == method
    sharp = resolve_method(PtMap(temperature=50.0))
    assert (sharp.name, sharp.preparation) == ("pt-map", "power-l2")
    assert resolve_method(TimGd(n_steps=3)).name == "tim-gd"
    assert resolve_method(TimAdm) == METHODS["tim-adm"]
    assert resolve_method("infoshot.solvers:PtMap").preparation == "power-l2"


def test_a_method_object_behind_a_reference_keeps_its_name():
    assert resolve_method("tests.solvers.test_resolve:MINE") == MINE
    assert resolve_method("tests.solvers.test_resolve:Needy3").name.endswith(":Needy3")


def test_installed_packages_register_names(monkeypatch):
    point = EntryPoint("my-tim", "tests.solvers.test_resolve:MINE", "infoshot.methods")
    monkeypatch.setattr("infoshot.core.plugins.entry_points", lambda group: [point])
    found = resolve_method("my-tim")
    assert (found.name, found.solver) == ("my-tim", MINE.solver)
    with pytest.raises(InvalidArgumentError, match="Did you mean 'my-tim'"):
        resolve_method("my-tin")


@dataclass(frozen=True, kw_only=True)
class Means(Solver):
    form: str = "any"  # names that have rules in other solvers
    smoothing: float = 17.0
    options: dict = field(default_factory=dict)

    def init(self, task):
        return Prototype().init(task)

    def prototypes(self, task, state):
        return state.weights


@dataclass(frozen=True)
class Needy(Means):
    strength: float


@dataclass
class Thawed(Solver):
    def init(self, task):
        return Prototype().init(task)

    def prototypes(self, task, state):
        return state.weights


class Plain(Means):
    pass


@dataclass(frozen=True)
class Unfinished(Solver):
    def init(self, task):
        return State()


@dataclass(frozen=True, kw_only=True)
class Transductive(Means):
    def log_posterior(self, task, state):
        return self.classify(task.z_qry - task.z_qry.mean(1, keepdim=True), state.weights)


@dataclass(frozen=True, kw_only=True)
class Declared(Transductive):
    inductive = True


MINE = Method(name="mine", solver=TimAdm(n_steps=7))
Needy3 = Needy(strength=3.0)
HERE = "tests.solvers.test_resolve"

BAD = {
    "unknown name": ("tim-adn", "Unknown method 'tim-adn'. Did you mean 'tim-adm'"),
    "no module": ("no_module:X", "'no_module:X': the module 'no_module' cannot be imported"),
    "no such name": (f"{HERE}:Nothing", "has no 'Nothing'"),
    "a function": ("numpy:zeros", "'numpy:zeros' must be a Method, a Solver instance or"),
    "another class": ("numpy:ndarray", "the class ndarray must derive from infoshot.Solver"),
    "a number": (3, "method must be a name, a Method, a Solver instance or a Solver class; got 3"),
    "needs arguments": (Needy, r"Needy\(\) fails without arguments .*'strength'"),
    "not frozen": (Thawed, "Thawed must be a frozen dataclass; write @dataclass"),
    "not a dataclass": (Plain, "Plain must be a frozen dataclass"),
    "not finished": (f"{HERE}:Unfinished", "Unfinished does not define prototypes"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_unusable_methods_are_refused_with_a_reason(case):
    given, message = BAD[case]
    with pytest.raises(InvalidArgumentError, match=message):
        resolve_method(given)


def test_a_method_needs_a_solver_instance():
    with pytest.raises(InvalidArgumentError, match="Method 'm': solver must be a Solver instance"):
        Method(name="m", solver=TimAdm)


def test_own_hyperparameters_need_no_rules(easy_tasks):
    tasks, _ = easy_tasks
    method = resolve_method(Means(form="anything", smoothing=-3.0))
    assert (method.name, method.summary) == ("means", "Means")
    assert solve(method.solver, tasks).probabilities.isfinite().all()
    with pytest.raises(InvalidArgumentError, match="Unknown setting of means 'smooth'"):
        method.with_settings({"smooth": 1})


def test_a_solver_says_whether_it_classifies_new_samples():
    assert resolve_method(Means).inductive
    assert not resolve_method(Transductive).inductive
    assert resolve_method(Declared).inductive
    assert not Method(name="m", solver=Means(), inductive=False).inductive
    inductive = {name for name, method in METHODS.items() if method.inductive}
    assert inductive == {
        "prototype", "shrunken-prototype", "baseline", "baseline++", "ent-min", "soft-kmeans",
        "alpha-tim", "tim-gd", "tim-adm", "tim-auto", "baseline++-sgd", "neg-cosine",
        "metaopt-ridge", "metaopt-svm", "prototype+t",
    }  # fmt: skip


def test_methods_are_stored_as_facts():
    method = Method(name="m", solver=TimAdm(class_prior=np.array([1.0, 2.0])), assumes=("balance",))
    facts = method_facts(method)
    assert facts["solver"] == "infoshot.solvers.tim_adm:TimAdm"
    rebuilt = method_from_facts(facts)
    assert rebuilt.solver == TimAdm(class_prior=[1.0, 2.0])
    assert rebuilt.assumes == ("balance",)
    with pytest.raises(InvalidArgumentError, match="does not take the stored settings"):
        method_from_facts({**facts, "settings": {"nothing": 1}})
    unstorable = Method(name="m", solver=Means(options={"f": object()}))
    with pytest.raises(InvalidArgumentError, match="a setting of type object cannot be stored"):
        method_facts(unstorable)


@dataclass(frozen=True, kw_only=True)
class Tolerant(Means):
    n_steps: int = 3
    tolerance: float | None = 0.1


@dataclass(frozen=True, kw_only=True)
class Misshapen(Means):
    def log_posterior(self, task, state):
        return torch.zeros(len(task), task.n_way, task.n_qry)


def test_mistakes_in_a_solver_are_named(easy_tasks):
    tasks, _ = easy_tasks
    with pytest.raises(
        InvalidArgumentError, match=r"Tolerant has a tolerance, so its step must set"
    ):
        solve(Tolerant(), tasks)
    with pytest.raises(ShapeError, match=r"Misshapen.log_posterior must return shape \(4, 15, 3\)"):
        solve(Misshapen(), tasks)
    with pytest.raises(
        AssertionError, match=r"^check_output_follows_input: the solver raised Shape"
    ):
        check_solver(Misshapen())
    with pytest.raises(
        AssertionError, match=r"^check_is_a_frozen_dataclass: Plain is not a datacl"
    ):
        check_solver(Plain())
