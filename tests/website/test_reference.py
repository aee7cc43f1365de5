"""The reference is complete: every public name and option has an entry, and examples run."""

import doctest
import inspect
from pathlib import Path

import griffe
import pytest

import infoshot
from infoshot.cli._commands import COMMANDS
from infoshot.cli.app import load_command

ROOT = Path(__file__).parents[2]
# Their examples need FiftyOne and Label Studio, which the tests do without.
OTHER_PROGRAMS = {"infoshot.LabelStudioModel", "infoshot.label_fiftyone"}


@pytest.fixture(scope="module")
def names(website):
    found = website("public_names").public_names().values()
    return [name for names in found for name in names]


@pytest.fixture(scope="module")
def docstrings(names):
    """The docstrings of all public names, as the site shows them."""
    package = griffe.load("infoshot", search_paths=[str(ROOT / "src")])
    found = {name: package[name.removeprefix("infoshot.")].docstring for name in names}
    return {name: docstring.value if docstring else "" for name, docstring in found.items()}


@pytest.fixture(scope="module")
def pages(website):
    return website("reference").write_pages()


def test_names_of_the_package_are_in_the_reference_once(names):
    assert {f"infoshot.{name}" for name in infoshot.__all__} <= set(names)
    assert len(names) == len(set(names)) > 120


def test_every_public_name_has_a_docstring(docstrings):
    assert not [name for name, docstring in docstrings.items() if not docstring.strip()]


def test_every_public_name_has_an_example_that_runs(docstrings):
    code = {
        name: [line for line in docstring.splitlines() if line.lstrip().startswith(">>>")]
        for name, docstring in docstrings.items()
    }
    assert not [name for name, lines in code.items() if not lines]
    skipped = {name for name, lines in code.items() if any("+SKIP" in line for line in lines)}
    assert skipped == OTHER_PROGRAMS


def test_every_public_name_has_one_entry(names, pages):
    text = "".join(pages.values())
    assert not [name for name in names if text.count(f"::: {name}\n") != 1]


def test_examples_of_data_run(website, docstrings):
    """Pytest collects the examples of functions and classes only."""
    find_object = website("public_names").find_object
    data = [name for name in docstrings if not callable(find_object(name))]
    data += ["infoshot.solvers.StepHook", "infoshot.backbones.EncoderLike"]  # types
    for name in data:
        test = doctest.DocTestParser().get_doctest(docstrings[name], {}, name, None, 0)
        assert test.examples
        assert doctest.DocTestRunner().run(test).failed == 0, name


def test_every_option_of_every_command_is_described(pages):
    for name in COMMANDS:
        command = load_command(name)
        for part in getattr(command, "commands", {"": command}).values():
            for parameter in part.params:
                is_option = parameter.param_type_name == "option"
                for shown in parameter.opts if is_option else [parameter.name.upper()]:
                    text = pages[f"reference/commands/{name}.md"]
                    assert f"`{shown}`" in text or f"`[{shown}]`" in text, f"{name}: {shown}"
                assert parameter.help, f"{name} does not explain {parameter.name}"


def test_every_setting_of_a_method_is_explained():
    """The docstring of its class, or of one that it derives from, names it as a parameter."""
    for method in infoshot.METHODS.values():
        kind = type(method.solver)
        text = "\n".join(inspect.getdoc(base) or "" for base in kind.__mro__)
        lines = {name for line in text.splitlines() for name in line.strip().split(", ")}
        assert not set(method.solver.settings()) - lines, kind.__name__
