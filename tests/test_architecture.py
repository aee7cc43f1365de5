"""ARCHITECTURE.md is true: modules, files of an action, import direction, messages."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.image_folders import make_folders

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "infoshot"
SOURCES = sorted(PACKAGE.rglob("*.py"))
DOCUMENT = (ROOT / "ARCHITECTURE.md").read_text()
SAME_MEANING = {"__init__", "api", "registry"}
MOST_FILES = {"label": 20, "reproduce": 15, "report": 11}

# Runs a command and writes the files of the package in which a function is called.
TRACER = """
import json, sys, threading
files = {}  # in the order of their first use

def trace(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and "/infoshot/" in name and frame.f_code.co_name != "<module>":
        files.setdefault(name.rpartition("/infoshot/")[2].removesuffix(".py"))

out = sys.argv.pop(1)
from infoshot.cli.app import main
import infoshot.cli.label, infoshot.cli.reproduce  # class bodies count as calls
from infoshot.reproduction import measurements
measurements._SINGLE_TASKS = measurements._ROUNDS = 1  # tracing makes solves slow
measurements._BATCH = {"cpu": 2}
measurements._CURVE_TASKS = {"cpu": 2}
threading.setprofile(trace)
sys.setprofile(trace)
try:
    main()
except SystemExit as stopped:
    assert not stopped.code, stopped.code
sys.setprofile(None)
open(out, "w").write(json.dumps(list(files)))
"""


def trace(tmp_path, *arguments):
    """Return the files outside core and the numerical core that a command uses, in order."""
    out = tmp_path / "files.json"
    subprocess.run(
        [sys.executable, "-c", TRACER, out, *map(str, arguments)], check=True, capture_output=True
    )
    files = json.loads(out.read_text())
    core = ("core/", "solvers/", "tasks/")
    return [f for f in files if not f.startswith(core) and f not in ("metrics", "__init__")]


def listed(action):
    """Return the files that ARCHITECTURE.md lists for an action."""
    (text,) = re.findall(rf"<!-- files: {action} -->\n(.*?)<!--", DOCUMENT, re.DOTALL)
    return set(re.findall(r"`([\w/]+)`", text))


def test_files_of_label(tmp_path):
    folder = make_folders(tmp_path / "images", 5, size=(40, 40), splits={"all": ("cat", "dog")})
    (folder / "photos").mkdir()
    for path in folder.glob("all/*/[34].png"):
        path.rename(folder / "photos" / f"{path.parent.name}{path.name}")
    arguments = (folder / "all", folder / "photos", "--out", tmp_path / "run")
    files = trace(tmp_path, "label", *arguments, "--cache", tmp_path / "cache")
    assert set(files) == listed("label")
    assert len(files) <= MOST_FILES["label"]


def test_files_of_reproduce(tmp_path):
    """All numbers are computed and stored before the first file that only the report needs."""
    files = trace(tmp_path, "reproduce", "--out", tmp_path / "report", "--tasks", 2)
    first = files.index("reproduction/network_groups")
    for action, found in (("reproduce", files[:first]), ("report", files[first:])):
        assert set(found) == listed(action)
        assert len(found) <= MOST_FILES[action]


def test_every_module_is_listed():
    listed_names = set(re.findall(r"[\w.]+", DOCUMENT))
    for path in SOURCES:
        name = path.name if path.parent == PACKAGE else path.stem
        if path.stem != "__init__":
            assert {name, path.stem} & listed_names, f"ARCHITECTURE.md does not name {path}"


def test_a_module_name_has_one_meaning():
    names = Counter(path.stem for path in SOURCES if path.stem not in SAME_MEANING)
    packages = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
    twice = {name for name, n in names.items() if n > 1} | (set(names) & packages)
    assert twice <= allowed_commands(), f"modules of the same name: {sorted(twice)}"


def allowed_commands():
    """Commands are named after the module of the action that they call."""
    return {path.stem for path in (PACKAGE / "cli").glob("[a-z]*.py")}


def test_nothing_imports_the_command_line():
    for path in SOURCES:
        if path.parent.name == "cli" or path.name == "__main__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith("infoshot.cli") for name in modules), path


def strings(path):
    """Yield the text of a module without its docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.parent.name != "cli"], ids=lambda p: str(p.stem)
)
def test_library_messages_name_no_option(path):
    for text in strings(path):
        assert not re.search(r"(?<![\w-])--[a-z]", text), f"{path}: {text!r}"
