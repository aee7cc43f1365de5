"""Files of a fitted classifier: damaged ones are refused, and nothing in them is run."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from infoshot import DataError, InvalidArgumentError, TIMClassifier

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


@pytest.fixture
def content(tmp_path):
    """Tensors and facts of a saved classifier."""
    path = tmp_path / "clf"
    TIMClassifier(method="tim-adm").fit(X, [0, 1, 2] * 3 + [-1] * 3).save(path)
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["TIMClassifier"])
        return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118


def load(tmp_path, tensors, facts):
    path = tmp_path / "changed"
    save_file(tensors, path, {"TIMClassifier": json.dumps(facts)})
    return TIMClassifier.load(path)


@pytest.fixture(autouse=True)
def _few_queries():
    with pytest.warns(UserWarning, match="3 unlabelled samples"):
        yield


def test_unchanged_content_is_accepted(content, tmp_path):
    assert load(tmp_path, *content).predict(X).shape == (12,)


FACTS = ["classes", "classes_dtype", "feature_names", "n_iter", "note", "parameters", "temperature"]
WRONG = [None, -1.5, float("nan"), "wrong", ["a", {}], {"a": 1}, 1e300]


@pytest.mark.parametrize("name", FACTS)
def test_damaged_facts_are_refused(content, tmp_path, name):
    tensors, facts = content
    for value in WRONG:
        if (name, value) == ("note", "wrong"):
            continue  # any text is a note
        with pytest.raises(DataError, match="damaged, or not a TIMClassifier file"):
            load(tmp_path, tensors, {**facts, name: value})
    del facts[name]
    with pytest.raises(DataError, match="damaged, or not a TIMClassifier file"):
        load(tmp_path, tensors, facts)


def test_labels_of_an_absurd_length_are_refused(content, tmp_path):
    tensors, facts = content
    text = {"classes": ["a", "b", "c"], "classes_dtype": "<U500000000"}
    with pytest.raises(DataError, match="labels cannot have the type '<U500000000'"):
        load(tmp_path, tensors, {**facts, **text})


@pytest.mark.parametrize("name", ["prototypes", "label_distributions", "outlier_scores"])
def test_damaged_arrays_are_refused(content, tmp_path, name):
    tensors, facts = content
    good = tensors[name]
    wrong = [good[:1], good[..., None].contiguous(), good.long(), good.bfloat16(), torch.zeros(0)]
    if name != "outlier_scores":  # those of labelled rows are NaN
        wrong.append(torch.full_like(good, torch.nan))
    for value in wrong:
        with pytest.raises(DataError, match="damaged, or not a TIMClassifier file"):
            load(tmp_path, {**tensors, name: value}, facts)
    del tensors[name]
    with pytest.raises(DataError, match="damaged, or not a TIMClassifier file"):
        load(tmp_path, tensors, facts)


def test_settings_that_are_not_valid_are_refused(content, tmp_path):
    tensors, facts = content
    for name, value in (("temperature", -1), ("n_steps", "x"), ("class_prior", [1, 1])):
        changed = {**facts, "parameters": {**facts["parameters"], name: value}}
        with pytest.raises(ValueError, match=name):
            load(tmp_path, tensors, changed)


def of_method(facts, method):
    return {**facts, "parameters": {**facts["parameters"], "method": method}}


@pytest.mark.parametrize(
    ("reference", "settings"),
    [
        ("os:system", {"command": "touch executed"}),
        ("builtins:open", {"file": "executed", "mode": "w"}),
        ("numpy:savetxt", {"fname": "executed", "X": [1]}),
    ],
)
def test_nothing_but_a_solver_is_made(content, tmp_path, monkeypatch, reference, settings):
    monkeypatch.chdir(tmp_path)
    tensors, facts = content
    method = {"name": "m", "solver": reference, "settings": settings, "assumes": []}
    with pytest.raises(InvalidArgumentError, match=r"is not a solver|belongs to Python"):
        load(tmp_path, tensors, of_method(facts, method))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("as_text", [True, False])
def test_no_module_is_imported(content, tmp_path, monkeypatch, as_text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "left_here.py").write_text("open('executed', 'w')\nX = None\n")
    tensors, facts = content
    method = {"name": "m", "solver": "left_here:X", "settings": {}, "assumes": []}
    with pytest.raises(InvalidArgumentError, match="a file does not import modules"):
        load(tmp_path, tensors, of_method(facts, "left_here:X" if as_text else method))
    assert "left_here" not in sys.modules
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("method", [{}, {"solver": 1}, {"solver": "x:y", "settings": 3, "assumes": []}])  # fmt: skip
def test_damaged_facts_of_a_method_are_refused(content, tmp_path, method):
    tensors, facts = content
    with pytest.raises(InvalidArgumentError, match="the stored method is damaged"):
        load(tmp_path, tensors, of_method(facts, method))
