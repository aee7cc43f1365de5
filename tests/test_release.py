"""Wheel and sdist are built, and the wheel works outside the checkout with what it declares."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import infoshot
from tests.image_folders import make_folders

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
MAX_MEGABYTES = 12


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the sdist and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Python of a new environment with the wheel and the packages that it declares, no others."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    run([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent)
    path = folder / "bin" / "python"
    (packages,) = folder.glob("lib/*/site-packages")
    for name in declared_packages(wheel_requirements(wheel)):
        link_package(metadata.distribution(name), packages)
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    run([sys.executable, "-m", "pip", "--python", path, *install], folder.parent)
    return path


def run(command, folder):
    """Run a command as a user does, without the paths of the checkout."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel_requirements(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    return re.findall(r"^Requires-Dist: (.*)", text, re.MULTILINE)


def declared_packages(requirements):
    """Names of all packages that the requirements need, directly or not, with those of extras."""
    found, ahead = set(), [(text, "") for text in requirements]
    while ahead:
        text, extra = ahead.pop()
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        package = metadata.distribution(requirement.name)
        assert requirement.specifier.contains(package.version, prereleases=True), text
        for wanted in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), wanted)
            if key not in found:
                found.add(key)
                ahead += [(inner, wanted) for inner in package.requires or ()]
    return sorted({name for name, _ in found})


def link_package(package, folder):
    """Link modules and metadata of an installed package into another environment."""
    names = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
    for name in names:
        if not (folder / name).exists():
            (folder / name).symlink_to(package.locate_file(name))


def test_the_wheel_is_small_and_has_everything(wheel):
    assert wheel.stat().st_size < MAX_MEGABYTES * 1e6
    tracked = run(["git", "ls-files", "src/infoshot"], ROOT).split()
    expected = {name.removeprefix("src/") for name in tracked}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert expected <= names
    assert not {name for name in names if not name.startswith("infoshot/")}
    assert {"infoshot/assets/mini_test_resnet18.safetensors", "infoshot/py.typed"} <= names


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(built, wheel, tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    run([*command, ROOT], tmp_path)
    with zipfile.ZipFile(tmp_path / wheel.name) as one, zipfile.ZipFile(wheel) as other:
        assert {i.filename: i.CRC for i in one.infolist()} == {
            i.filename: i.CRC for i in other.infolist()
        }


def test_the_sdist_has_sources_tests_and_documents(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/infoshot/__init__.py", "tests/test_release.py", "docs/label.md"} <= names
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "constraints.txt"} <= names


def test_the_installed_wheel_says_its_version(python, tmp_path):
    assert infoshot.__version__ in run([python, "-m", "infoshot", "--version"], tmp_path)
    assert infoshot.__version__ in run([python.parent / "infoshot", "--version"], tmp_path)
    place = run([python, "-c", "import infoshot; print(infoshot.__file__)"], tmp_path)
    assert Path(place).is_relative_to(python.parents[1])


def test_the_environment_has_declared_packages_only(python, tmp_path):
    code = "import importlib.util as u; print(u.find_spec('pytest'), u.find_spec('transformers'))"
    assert run([python, "-c", code], tmp_path) == "None None\n"


def test_the_installed_wheel_evaluates_methods(python, tmp_path):
    command = [python, "-m", "infoshot", "bench", "--methods", "prototype,tim-auto"]
    run([*command, "--tasks", "20", "--json", "bench.json"], tmp_path)
    rows = json.loads((tmp_path / "bench.json").read_text())
    accuracies = {(row["method"], row["shots"]): row["mean"] for row in rows}
    expected = infoshot.bench(methods=["prototype", "tim-auto"], tasks=20, progress=False).rows
    assert accuracies == pytest.approx({(r.method, r.shots): r.mean for r in expected}, abs=0.5)


def test_the_installed_wheel_labels_images(python, tmp_path):
    make_folders(tmp_path, n_images=4, splits={"examples": "ab", "photos": "ab"})
    run([python, "-m", "infoshot", "label", "examples", "photos", "--out", "run"], tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    labels = (tmp_path / "run" / "labels.csv").read_text()
    assert labels.count("photos/") == 8
