import io
import sys
import types

import pytest

from infoshot.core import progress as module
from infoshot.core.progress import SILENT, Progress, open_progress


def work(bar):
    """Two phases, one of them of unknown length."""
    bar.start("reading")
    bar.advance()
    bar.start("encoding", 100, "images")
    bar.advance(60)
    bar.say("halfway")
    bar.advance(40)


def test_callbacks_get_phase_done_and_total():
    seen = []
    with open_progress(lambda *event: seen.append(event)) as bar:
        work(bar)
    assert seen == [
        ("reading", 0, None), ("reading", 1, None),
        ("encoding", 0, 100), ("encoding", 60, 100), ("encoding", 100, 100),
    ]  # fmt: skip


@pytest.mark.parametrize("given", [None, False])
def test_no_terminal_means_no_output(given, capfd):
    with open_progress(given) as bar:
        work(bar)
        assert (bar.phase, bar.done, bar.total) == ("encoding", 100, 100)
    work(SILENT)
    assert capfd.readouterr() == ("", "")


def test_only_the_main_process_reports(capfd):
    seen = []
    for given in (None, True, lambda *event: seen.append(event)):
        with open_progress(given, shown=False) as bar:
            work(bar)
    assert not seen
    assert capfd.readouterr() == ("", "")


def test_true_writes_lines(capfd):
    with open_progress(True) as bar:
        work(bar)
    assert capfd.readouterr() == ("", "reading ...\nencoding 100 images ...\nhalfway\n")


def test_at_most_one_line_a_minute(capfd, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with open_progress(True) as bar:
        bar.start("encoding", 1000, "images")
        for _ in range(1000):
            now[0] += 0.5
            bar.advance()
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "encoding 1,000 images ..."
    assert lines[1:] == [
        f"encoding: {12 * number}%, about {left} minutes left"
        for number, left in zip(range(1, 9), (7, 6, 5, 4, 3, 2, 1, 0), strict=True)
    ]


def test_exceptions_of_callbacks_are_raised():
    def stop(phase, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_progress(stop) as bar:
        bar.start("encoding", 3)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("given", [None, True])
def test_terminals_get_a_bar(given, monkeypatch, capfd):
    pytest.importorskip("rich", reason="rich is not installed")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with open_progress(given) as bar:
        work(bar)
    shown = terminal.getvalue()
    assert "halfway" in shown
    assert "encoding" in shown
    assert "100/100" in shown
    assert capfd.readouterr().out == ""


def test_false_is_silent_on_terminals_too(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with open_progress(False) as bar:
        work(bar)
    assert terminal.getvalue() == ""


def test_counts_start_again_with_every_phase():
    bar = Progress()
    work(bar)
    bar.start("writing")
    assert (bar.phase, bar.done, bar.total) == ("writing", 0, None)


def test_a_notebook_without_widgets_gets_lines(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # importing it fails
    with open_progress(None) as progress:
        progress.start("encoding", 3, "images")
    assert capsys.readouterr().err == "encoding 3 images ...\n"


def test_a_bar_of_a_new_phase_starts_anew(monkeypatch):
    pytest.importorskip("rich", reason="rich is not installed")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with open_progress(None) as bar:
        bar.start("encoding", 200, "images")
        bar.advance(200)
        bar.start("solving")
    assert "0/200" not in terminal.getvalue().rpartition("solving")[2]
