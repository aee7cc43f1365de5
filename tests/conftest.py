import dataclasses
import os
import shutil
import uuid
from pathlib import Path

import pytest
import torch

from infoshot import FeatureTable
from infoshot.features import default_features_path, prepare, read_features
from infoshot.tasks import TaskSpec, gaussian_tasks, sample_tasks

# PyTorch's threads wait for each other in every small product, very long on a busy machine.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _one_core():
    """A test that ends while a loop over chunks is suspended may leave another number."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _no_user_cache(tmp_path_factory):
    """Features that fixtures of modules compute are not cached in the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFOSHOT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path_factory, monkeypatch):
    """Every test begins with an empty cache, in a folder that does not exist yet."""
    name = f"cache-{uuid.uuid4().hex}"
    monkeypatch.setenv("INFOSHOT_CACHE", str(tmp_path_factory.getbasetemp() / name))


@pytest.fixture(scope="session")
def embedded() -> FeatureTable:
    """The features that come with the package, as stored."""
    return read_features(default_features_path())


@pytest.fixture(scope="session")
def mini_imagenet() -> Path:
    """The images the embedded features were made from, for those who have them."""
    path = os.environ.get("INFOSHOT_MINI_IMAGENET")
    if not path:
        pytest.skip("INFOSHOT_MINI_IMAGENET does not say where mini-ImageNet is")
    return Path(path)


@pytest.fixture(scope="session")
def real_table(embedded) -> FeatureTable:
    """The same, at unit length, in float64."""
    return dataclasses.replace(embedded, features=prepare(embedded, "l2").double())


@pytest.fixture(scope="session")
def real_tasks(real_table):
    """Twelve real 5-way 5-shot tasks in float64, and their query labels."""
    return sample_tasks(real_table, TaskSpec(n_shot=5), n_tasks=12)


@pytest.fixture
def easy_tasks():
    """Four well-separated tasks in float64, and their query labels."""
    return gaussian_tasks(4, n_way=3, n_shot=2, n_query=5, dim=12, seed=5, dtype=torch.float64)


@pytest.fixture
def by_pytorch(monkeypatch):
    """Networks run by PyTorch on a CPU too, so that tests see every batch that they get."""
    monkeypatch.setattr("infoshot.features.encoding.is_exportable", lambda _: False)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium; playwright's own is a download that the tests can do without."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()
