import pytest

from infoshot import InvalidArgumentError, TimAdm
from infoshot.benchmark.variants import parse_setting, resolve_variants
from infoshot.solvers import METHODS


def _names(methods, settings=None):
    return [method.name for method in resolve_variants(methods, settings)]


def test_methods_may_be_names_methods_solvers_and_pairs():
    own = METHODS["prototype"]
    variants = resolve_variants(
        ["tim-adm", own, TimAdm(temperature=7.0), ("tim-adm", {"temperature": 10}), "pt-map,tim-gd"]
    )
    assert [method.name for method in variants] == [
        "tim-adm", "prototype", "tim-adm (temperature=7.0)", "tim-adm (temperature=10)", "pt-map",
        "tim-gd",
    ]  # fmt: skip
    assert variants[0] == METHODS["tim-adm"]
    assert variants[2].solver == TimAdm(temperature=7.0)
    assert variants[3].solver == TimAdm(temperature=10)


def test_one_entry_needs_no_list():
    assert _names("tim-adm") == ["tim-adm"]
    assert _names(TimAdm()) == ["tim-adm"]
    assert _names(("tim-adm", {"n_steps": 9})) == ["tim-adm (n_steps=9)"]


def test_all_stands_for_every_registered_method():
    assert _names("all") == list(METHODS)
    assert _names("all,tim-adm(n_steps=9)") == [*METHODS, "tim-adm (n_steps=9)"]


def test_variants_as_text():
    [plain, variant, prior] = resolve_variants(
        "tim-adm, tim-adm(temperature=10, n_steps=50), tim-adm (class_prior=[0.7, 0.3])"
    )
    assert plain == METHODS["tim-adm"]
    assert variant.name == "tim-adm (temperature=10, n_steps=50)"
    assert variant.solver == TimAdm(temperature=10, n_steps=50)
    assert prior.solver == TimAdm(class_prior=[0.7, 0.3])


def test_settings_change_methods_but_not_their_names():
    settings = {"temperature": 9, "tim-adm.n_steps": 50}
    methods = resolve_variants("prototype,tim-adm,tim-adm(temperature=10),pt-map", settings)
    assert [method.name for method in methods] == [
        "prototype", "tim-adm", "tim-adm (temperature=10)", "pt-map",
    ]  # fmt: skip
    assert [method.solver.settings().get("temperature") for method in methods[:3]] == [9, 9, 10]
    assert [method.solver.n_steps for method in methods[1:]] == [50, 50, 20]


@pytest.mark.parametrize(
    ("methods", "settings", "message"),
    [
        ("tim-adn", {}, "Unknown method 'tim-adn'. Did you mean 'tim-adm'"),
        ("tim-adm(tau=3)", {}, "Unknown setting of tim-adm 'tau'"),
        (
            "tim-adm(temperature)",
            {},
            "a setting must look like NAME=VALUE, .* got 'temperature'",
        ),
        ("tim-adm(n_steps=0)", {}, "n_steps must be a whole number of at least 1; got 0"),
        ("tim-adm,tim-adm", {}, "methods must differ from each other; got 'tim-adm' twice"),
        ([], {}, "methods must name at least one method; got none"),
        ("tim-adm", {"tau": 3}, r"Unknown setting of the methods \(tim-adm\) 'tau'. Known: "),
        ("tim-adm", {"tim-gd.n_steps": 3}, r"none of the methods \(tim-adm\) is 'tim-gd'"),
        ([("tim-adm", 3)], {}, "methods must hold pairs of a method and a mapping"),
    ],
)
def test_wrong_methods_and_settings_are_named(methods, settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        resolve_variants(methods, settings)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=0.5", 0.5), ("a=True", True), ("a=None", None), ("a=1,2", [1, 2]),
     ("a=[1, 2]", [1, 2]), ("a=gram", "gram"), ("a = null", None)],
)  # fmt: skip
def test_values_of_settings(text, value):
    assert parse_setting(text) == ("a", value)
