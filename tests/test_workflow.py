"""The workflow runs the gate, and the files about a release agree with the package."""

import os
import re
import tomllib
from pathlib import Path

import pytest

import infoshot

yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_workflow_runs_the_gate():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    triggers = workflow[True]  # YAML 1.1 reads the key "on" as a truth value
    assert {"push", "pull_request"} <= set(triggers)
    (job,) = workflow["jobs"].values()
    assert [step.get("uses", step.get("run")).partition("@")[0] for step in job["steps"]] == [
        "actions/checkout", "actions/setup-python", ".ci/run",
    ]  # fmt: skip
    python = job["steps"][1]["with"]["python-version"]
    assert PROJECT["requires-python"] == f">={python}"
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_gate_runs_the_tests_that_exist():
    gate = (ROOT / ".ci" / "run").read_text()
    named = re.findall(r"tests/[\w/]+\.py", gate)
    assert "tests/test_release.py" in named
    assert all((ROOT / name).is_file() for name in named)
    assert "\nmake check\n" in gate


def test_classifiers_are_known():
    known = pytest.importorskip("trove_classifiers").classifiers
    assert set(PROJECT["classifiers"]) <= known


def test_the_citation_is_complete_and_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert str(citation["version"]) == infoshot.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors", "year"} <= set(paper)


def test_every_extra_is_documented():
    text = (ROOT / "docs" / "installation.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert rows == list(PROJECT["optional-dependencies"])


def test_constraints_pin_the_packages_that_are_named():
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    groups = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    wanted = {
        re.match(r"[\w-]+", text)[0].lower().replace("_", "-")
        for name, group in groups.items()
        for text in group
        if name != "timm"  # not tested: it needs torchvision
    } - {"infoshot"}
    assert wanted <= pinned
