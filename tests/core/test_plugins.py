import sys

import pytest

from infoshot import InvalidArgumentError
from infoshot.core.plugins import is_reference, list_entry_points, load_reference


@pytest.mark.parametrize("name", ["my_module:Name", "a.b.c:Name", "_m:_n", "é:ñ"])
def test_references(name):
    assert is_reference(name)


@pytest.mark.parametrize(
    "name",
    ["tim-adm", "", ":", "a:", ":b", "a:b.c", "a:b:c", "a-b:c", "a..b:c", "C:/nets", "C:\\nets",
     "hf:facebook/dinov2-small", "timm:vit_base.augreg", "onnx:model.onnx", "1a:b"],
)  # fmt: skip
def test_other_names(name):
    assert not is_reference(name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with two modules that Python has not imported."""
    (tmp_path / "plugin_here.py").write_text("class Thing:\n    value = 5\n")
    (tmp_path / "plugin_broken.py").write_text("raise RuntimeError('first line\\nsecond line')\n")
    (tmp_path / "plugin_typo.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield tmp_path
    for name in ("plugin_here", "plugin_broken", "plugin_typo"):
        sys.modules.pop(name, None)


def test_modules_of_the_current_folder_are_found(folder):
    before = list(sys.path)
    assert load_reference("plugin_here:Thing").value == 5
    assert sys.path == before


def test_installed_modules_are_found():
    assert load_reference("numpy.random:Generator").__name__ == "Generator"


WRONG = {
    "plugin_here:Other": "'plugin_here:Other': the module 'plugin_here' has no 'Other'.",
    "plugin_gone:Thing": "'plugin_gone:Thing': the module 'plugin_gone' cannot be imported "
    "(ModuleNotFoundError: No module named 'plugin_gone').",
    "plugin_broken:Thing": "'plugin_broken:Thing': the module 'plugin_broken' cannot be imported "
    "(RuntimeError: first line).",
    "plugin_typo:f": "'plugin_typo:f': the module 'plugin_typo' cannot be imported (SyntaxError: "
    "invalid syntax (plugin_typo.py, line 1)).",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_references_get_one_sentence(name, folder):
    before = list(sys.path)
    with pytest.raises(InvalidArgumentError) as caught:
        load_reference(name)
    assert str(caught.value) == WRONG[name]
    assert sys.path == before


def test_entry_points_are_listed(tmp_path, monkeypatch):
    about = tmp_path / "my_plugins-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugins\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[infoshot.methods]\nmedian = my_plugins:Median\n\n[other]\nx = y:z\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    points = list_entry_points("infoshot.methods")
    assert {name: point.value for name, point in points.items()} == {"median": "my_plugins:Median"}
    assert list_entry_points("infoshot.no-such-group") == {}


@pytest.mark.parametrize("name", ["os:abort", "os.path:join", "this:s", "_thread:exit"])
def test_modules_of_python_are_not_imported(name):
    with pytest.raises(InvalidArgumentError, match="belongs to Python"):
        load_reference(name)
