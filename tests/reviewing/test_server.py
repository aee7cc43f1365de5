"""Start, restart and end of the server; its port, token and lock."""

import json
import os
import socket
import stat
import threading
import time

import pytest

import infoshot
from infoshot import DataError, InvalidArgumentError, review
from tests.reviewing.client import Client

NAME = ".infoshot-review.json"


@pytest.fixture
def address_file(run, session, static):
    """The file with the address after a first review."""
    review(run, open_browser=False).stop()
    return run / NAME


def open_again(run):
    with review(run, open_browser=False) as opened:
        assert Client(opened.url).get("/").status == 200
        return opened.url


def test_a_restart_keeps_port_and_token(run, session, static):
    urls = {open_again(run) for _ in range(3)}
    assert len(urls) == 1


def test_only_the_owner_can_read_the_token(address_file, run):
    assert stat.S_IMODE(address_file.stat().st_mode) == 0o600
    record = json.loads(address_file.read_text())
    assert set(record) == {"host", "port", "token"}
    assert len(record["token"]) == 43
    assert f":{record['port']}/?token={record['token']}" in open_again(run)


def test_every_run_has_its_own_token(run, session, static, tmp_path):
    (tmp_path / "other").mkdir()
    assert open_again(run).partition("=")[2] != open_again(tmp_path / "other").partition("=")[2]


BAD = [
    b"", b"{", b"[]", b"null", b"\xff", b'{"port": 1}', b"[" * 5000, b" " * 5000,
    *(
        json.dumps({"host": "127.0.0.1", "port": 40000, "token": "t" * 43, **wrong}).encode()
        for wrong in (
            {"port": 0}, {"port": 70000}, {"port": "80"}, {"port": True}, {"port": 1.5},
            {"token": ""}, {"token": "t" * 42}, {"token": "t" * 42 + "\n"}, {"token": 3},
            {"token": "é" * 43}, {"host": 1}, {"host": ""}, {"host": "a b"}, {"more": 1},
        )
    ),
]  # fmt: skip


def test_damaged_addresses_are_replaced(address_file, run):
    for content in BAD:
        address_file.write_bytes(content)
        open_again(run)
        record = json.loads(address_file.read_text())
        assert len(record["token"]) == 43, content
        assert record["token"] != "t" * 43, content
        assert stat.S_IMODE(address_file.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_token_that_others_could_read_is_replaced(address_file, run):
    token = json.loads(address_file.read_text())["token"]
    address_file.chmod(0o644)
    assert token not in open_again(run)
    assert stat.S_IMODE(address_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_are_neither_read_nor_written_through(link, address_file, run, tmp_path):
    token = json.loads(address_file.read_text())["token"]
    elsewhere = tmp_path / "elsewhere.json"
    address_file.rename(elsewhere)
    before = elsewhere.read_bytes()
    link(elsewhere, address_file)
    assert token not in open_again(run)
    assert elsewhere.read_bytes() == before
    assert not address_file.is_symlink()


def test_a_link_as_lock_is_refused(run, session, static, tmp_path):
    (run / ".infoshot-review.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"lock: a symbolic link, not a lock file; remove it\.$"):
        review(run, open_browser=False)
    assert not (tmp_path / "elsewhere").exists()


def test_another_port_is_taken_if_the_last_one_is_in_use(address_file, run):
    record = json.loads(address_file.read_text())
    with socket.create_server(("127.0.0.1", record["port"])):
        url = open_again(run)
    assert f":{record['port']}/" not in url
    assert record["token"] in url


def test_a_port_in_use_is_one_sentence(run, session, static):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DataError, match=rf"^port {port} is in use; choose another one\.$"):
            review(run, port=port, open_browser=False)
    with review(run, port=port, open_browser=False) as opened:  # the lock was released
        assert opened.url.startswith(f"http://127.0.0.1:{port}/?token=")


@pytest.mark.parametrize("port", [0, -1, 65536, 1.5, True, "80"])
def test_impossible_ports_are_refused(port, run, session):
    with pytest.raises(InvalidArgumentError, match=r"^port must be"):
        review(run, port=port, open_browser=False)


@pytest.mark.parametrize("host", ["", "a b", "\0", "x" * 300, "203.0.113.7", "no.such.invalid"])
def test_hosts_of_other_machines_are_refused(host, run, session):
    with pytest.raises(InvalidArgumentError, match=r"^host must be a name or an address of this"):
        review(run, host=host, open_browser=False)
    assert not list(run.glob(NAME))


def test_other_hosts_than_loopback_are_warned_of(run, session, static):
    with pytest.warns(UserWarning, match="not only to this machine") as caught:
        opened = review(run, host="0.0.0.0", open_browser=False)
    assert caught[0].filename == __file__
    with opened:
        client = Client(opened.url)
        assert opened.url.startswith("http://127.0.0.1:")
        for name in ("127.0.0.1", "localhost", socket.gethostname()):
            assert client.get("/", headers={"Host": f"{name}:{client.port}"}).status == 200
        assert client.get("/", headers={"Host": f"evil.example:{client.port}"}).status == 403


def test_a_run_has_one_server(opened, run, session):
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            review(run, open_browser=False)
        assert str(caught.value) == f"{run}: open already at {opened.url}"
    assert Client(opened.url).get("/").status == 200
    opened.stop()
    assert open_again(run) == opened.url


def test_a_session_that_cannot_be_opened_leaves_no_lock(run, session, static, monkeypatch):
    def fail(run):
        raise DataError("damaged.")

    with monkeypatch.context() as patch:
        patch.setattr("infoshot.reviewing.api.Session", fail)
        with pytest.raises(DataError, match="damaged"):
            review(run, open_browser=False)
    assert not (run / NAME).exists()
    open_again(run)


def test_stopping_closes_everything_once(opened, session):
    client = Client(opened.url)
    waiting = threading.Thread(target=opened.wait)
    waiting.start()
    stops = [threading.Thread(target=opened.stop) for _ in range(3)]
    for thread in stops:
        thread.start()
    for thread in (*stops, waiting):
        thread.join(10)
        assert not thread.is_alive()
    assert session.closed
    assert "infoshot review" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConnectionError):
        client.get("/")


def test_idle_connections_do_not_delay_the_end(opened):
    client = Client(opened.url)
    with socket.create_connection(("127.0.0.1", client.port)), socket.create_connection(
        ("127.0.0.1", client.port)
    ) as half:  # fmt: skip
        half.sendall(b"POST /api/undo HTTP/1.1\r\nHost: a\r\n")
        start = time.monotonic()
        opened.stop()
        assert time.monotonic() - start < 3


def test_the_browser_is_opened_with_the_token(run, session, static, monkeypatch):
    urls = []
    monkeypatch.setattr("webbrowser.open", urls.append)
    monkeypatch.setenv("DISPLAY", ":0")
    with review(run) as opened:
        assert urls == [opened.url]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    review(run).stop()
    assert len(urls) == 1  # no browser for the terminal


def test_a_notebook_shows_a_link(opened, run):
    assert isinstance(opened, infoshot.Review)
    assert (opened.run, opened.n_photos) == (run, 5)
    assert opened._repr_html_() == (
        f'<a href="{opened.url}" target="_blank" rel="noopener noreferrer">Review {run}</a>'
    )
    opened.run = "<b>"
    assert "Review &lt;b&gt;</a>" in opened._repr_html_()
    assert repr(opened) == f"Review(run='<b>', url='{opened.url}')"


def test_uvicorn_prints_nothing(opened, capfd):
    client = Client(opened.url)
    client.get("/")
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    opened.stop()
    assert capfd.readouterr() == ("", "")
