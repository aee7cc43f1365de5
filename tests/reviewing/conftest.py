import json
import shutil

import pytest
from PIL import Image

from infoshot import labelling, review
from infoshot.labelling.run_files import FACTS
from tests.labelling.conftest import made  # noqa: F401 - a fixture: 60 photos of three classes
from tests.reviewing.client import Client
from tests.reviewing.fake_session import FakeSession
from tests.reviewing.page_driver import (  # noqa: F401 - fixtures of the tests in a browser
    fake_server,
    one_context,
    one_fake_server,
    open_page,
)

SECRET = "content of a file outside"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder that counts as a finished run, with a file beside it."""
    monkeypatch.setattr("infoshot.reviewing.api.check_finished", lambda folder: None)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / FACTS).write_text(json.dumps(SECRET))
    (tmp_path / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def pictures(tmp_path):
    """Image files by number: a photo, and files that are not images."""
    photo = tmp_path / "0.jpg"
    image = Image.new("RGB", (400, 300), (200, 30, 30))
    exif = Image.Exif()
    exif[0x010E] = "secret description"
    image.save(photo, exif=exif, comment=b"secret comment")
    (tmp_path / "1.jpg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>')
    (tmp_path / "2.jpg").write_text("<!doctype html><script>alert(1)</script>")
    return {0: photo, 1: tmp_path / "1.jpg", 2: tmp_path / "2.jpg", 3: tmp_path / "missing.jpg"}


@pytest.fixture
def session(pictures, monkeypatch):
    """The session of the server."""
    session = FakeSession(files=pictures)

    def open_session(run):
        session.run = run
        return session

    monkeypatch.setattr("infoshot.reviewing.api.Session", open_session)
    return session


@pytest.fixture
def static(tmp_path, monkeypatch):
    """Files of the page that do not depend on the real one."""
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>the page</title>")
    (folder / "main.js").write_text("export {};")
    (folder / "notes.txt").write_text(SECRET)
    monkeypatch.setattr("infoshot.reviewing.app.STATIC", folder)
    return folder


@pytest.fixture
def opened(run, session, static):
    """An open review."""
    with review(run, open_browser=False) as opened:
        yield opened


@pytest.fixture
def client(opened):
    """A client that has the token."""
    return Client(opened.url)


@pytest.fixture(scope="session")
def finished(made):  # noqa: F811
    """A finished run of 62 photos, two of them the same, one unreadable."""
    photos = shutil.copytree(made / "photos", made / "review-photos")
    shutil.copy(photos / "cat8.png", photos / "cat8-copy.png")
    (photos / "broken.png").write_bytes(b"not an image")
    return labelling.label(
        made / "examples", photos, made / "review", backbone=made / "weights", cache=made / "cache"
    ).folder


@pytest.fixture
def real_run(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "real")
