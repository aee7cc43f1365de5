import shutil

import pytest

from infoshot import labelling
from tests.labelling.conftest import made  # noqa: F401 - a fixture: 60 photos of three classes


@pytest.fixture(scope="session")
def finished(made):  # noqa: F811
    """A finished run of 60 photos, two of them the same, one unreadable."""
    photos = shutil.copytree(made / "photos", made / "review-photos")
    shutil.copy(photos / "cat8.png", photos / "cat8-copy.png")
    (photos / "broken.png").write_bytes(b"not an image")
    return labelling.label(
        made / "examples", photos, made / "review", backbone=made / "weights", cache=made / "cache"
    ).folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "run")
