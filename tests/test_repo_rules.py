"""Rules that a machine can check."""

import ast
import subprocess
import sys
from pathlib import Path

import infoshot

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def _lines(path):
    return len(path.read_text().splitlines())


def test_files_stay_readable():
    # Public names, docstrings of public functions and the list of all methods take more lines.
    limits = {"__init__.py": 40, "api.py": 500, "registry.py": 400}
    for path in SOURCES:
        limit = limits.get(path.name, 250 if path.parent.name in ("solvers", "baselines") else 400)
        if path.parent.name == "cli":
            limit = 150
        if path.name == "base.py":
            limit = 400
        if path != ROOT / "src" / "infoshot" / "__init__.py":
            assert _lines(path) <= limit, f"{path} has {_lines(path)} lines, more than {limit}"
    for path in (ROOT / "tests").rglob("*.py"):
        assert _lines(path) <= 400, f"{path} has {_lines(path)} lines"
    assert _lines(ROOT / "ARCHITECTURE.md") <= 120


def test_functions_stay_short():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                docstring = ast.get_docstring(node, clean=False) or ""
                length = node.end_lineno - node.body[0].lineno + 1 - docstring.count("\n")
                assert length <= 50, f"{path}:{node.lineno} {node.name} has {length} lines"


def test_nothing_is_called_utils():
    banned = {"utils.py", "helpers.py", "misc.py", "common.py"}
    assert not [path for path in SOURCES if path.name in banned]


def test_public_names_are_these():
    """DESIGN.md section 2: one function per action, every solver, and what they take and return."""
    actions = [
        "add_labels", "audit", "bench", "draw_audit", "extract", "extract_shards",
        "inspect_dataset", "label", "label_fiftyone", "label_table", "predict", "reproduce",
        "review", "solve", "solve_shards", "suggest", "train",
    ]  # fmt: skip
    parts = [
        "METHODS", "Method", "Solver", "State", "TIMClassifier", "TaskSpec", "TrainConfig",
        "open_encoder", "read_features", "resolve_method", "sample_tasks", "write_features",
    ]  # fmt: skip
    solvers = {type(method.solver).__name__ for method in infoshot.METHODS.values()}
    types = [
        "BenchResult", "Encoder", "FeatureTable", "ImageLabel", "InputSpec", "LabelResult",
        "LabelStudioModel",
        "Reproduction", "ResultRow", "Review", "ShardSummary", "Solution", "Status", "TaskBatch",
        "Trace", "TrainResult",
    ]  # fmt: skip
    errors = ["DataError", "InfoshotError", "InvalidArgumentError", "MissingDependencyError",
              "ShapeError"]  # fmt: skip
    expected = {*actions, *parts, *solvers, *types, *errors, "__version__"}
    assert set(infoshot.__all__) == expected
    assert set(dir(infoshot)) == expected
    assert all(hasattr(infoshot, name) for name in expected)
    for name in actions:
        assert "Examples\n" in getattr(infoshot, name).__doc__, f"{name} has no example"


def test_import_is_light():
    # The estimator, the command line and plots bring their packages when they are used.
    code = (
        "import sys, infoshot, infoshot.testing, infoshot.features, infoshot.images\n"
        "import infoshot.backbones.encoders\n"
        "heavy = {'sklearn', 'typer', 'rich', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "heavy |= {'transformers', 'timm', 'onnx', 'onnxruntime'} & set(sys.modules)\n"
        "heavy |= {'starlette', 'uvicorn'} & set(sys.modules)\n"
        "sys.exit(f'imported too early: {heavy}' if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
