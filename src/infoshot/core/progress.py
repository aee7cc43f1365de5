"""Progress of a job: reported to a callback, drawn as a bar, or written to a log.

Every public function that takes long has an argument ``progress``. ``None`` draws a bar on stderr
in a terminal or a notebook (lines without ipywidgets) and is silent elsewhere, ``False`` is always
silent, ``True`` writes a line at most once a minute where no bar can be drawn, and a callable is
called with the name of the phase, the number of items done and their total (``None`` if it is not
known).
"""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from infoshot.core.text import visible

ProgressCallback = Callable[[str, int, int | None], None]
ProgressLike = ProgressCallback | bool | None
_SECONDS = 60.0  # between two lines of a log


class Progress:
    """Counts the items of the current phase; this class itself shows nothing.

    Parameters
    ----------
    callback
        Called with phase, items done and total whenever one of them changes.
    """

    def __init__(self, callback: ProgressCallback | None = None) -> None:
        self.phase = ""
        self.done = 0
        self.total: int | None = None
        self._callback = callback

    def start(self, phase: str, total: int | None = None, unit: str = "") -> None:
        """Begin a phase of ``total`` items; ``unit`` names them where a speed is shown."""
        self.phase, self.done, self.total = phase, 0, total
        self._show(unit)

    def advance(self, n: int = 1) -> None:
        """Count ``n`` more items of the current phase."""
        self.done += n
        self._show()

    def say(self, sentence: str) -> None:
        """Show one line of text, such as the result of an epoch."""

    def _show(self, unit: str = "") -> None:
        if self._callback is not None:
            self._callback(self.phase, self.done, self.total)


SILENT = Progress()


@contextmanager
def open_progress(progress: ProgressLike = None, *, shown: bool = True) -> Iterator[Progress]:
    """Open what an argument ``progress`` asks for.

    Parameters
    ----------
    progress
        See the module.
    shown
        False in every process but the main one.
    """
    if progress is False or not shown:
        yield Progress()
    elif callable(progress):
        yield Progress(progress)
    elif _can_draw():
        with _bar() as bar:
            yield bar
    else:
        yield _LogProgress() if progress or _in_notebook() else Progress()


class _LogProgress(Progress):
    """Lines on stderr: one per phase, then one a minute at most."""

    def __init__(self) -> None:
        super().__init__()
        self._start = self._last = 0.0

    def start(self, phase: str, total: int | None = None, unit: str = "") -> None:
        """Begin a phase, and name it."""
        super().start(phase, total, unit)
        self._start = self._last = time.monotonic()
        amount = f" {total:,} {unit}".rstrip() if total and unit else ""
        self.say(f"{phase}{amount} ...")

    def say(self, sentence: str) -> None:
        """Write one line."""
        print(visible(sentence), file=sys.stderr, flush=True)  # noqa: T201 - this is the log

    def _show(self, unit: str = "") -> None:
        now = time.monotonic()
        if not (self.total and self.done) or now - self._last < _SECONDS:
            return
        self._last = now
        left = (now - self._start) * (self.total / self.done - 1)
        self.say(f"{self.phase}: {self.done / self.total:.0%}, about {left / 60:.0f} minutes left")


class _BarProgress(Progress):
    """A bar that rich draws."""

    def __init__(self, bar: Any) -> None:  # noqa: ANN401 - rich's Progress
        super().__init__()
        self._bar = bar
        self._task = bar.add_task("", total=None, unit="")

    def start(self, phase: str, total: int | None = None, unit: str = "") -> None:
        """Begin a phase with a bar of its own."""
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(visible(phase), total=total, unit=unit)
        super().start(phase, total, unit)

    def say(self, sentence: str) -> None:
        """Show a line above the bar."""
        self._bar.console.print(visible(sentence), highlight=False, markup=False, soft_wrap=True)

    def _show(self, unit: str = "") -> None:
        self._bar.update(self._task, completed=self.done)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich import progress as rich
    from rich.console import Console
    from rich.text import Text

    class Speed(rich.ProgressColumn):
        """Recent items per second."""

        def render(self, task: rich.Task) -> Text:
            unit = task.fields.get("unit")
            return Text(f"{task.speed or 0:,.0f} {unit}/s" if unit else "")

    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        Speed(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("elapsed,"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left"),
    )
    with rich.Progress(*columns, console=Console(stderr=True, emoji=False), transient=True) as bar:
        yield _BarProgress(bar)


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


def _can_draw() -> bool:
    """Whether rich can draw a bar: in a terminal, or in a notebook with ipywidgets."""
    needed = ["rich.progress"]
    if _in_notebook():
        needed.append("ipywidgets")
    elif not sys.stderr.isatty():
        return False
    try:
        for name in needed:
            importlib.import_module(name)
    except ImportError:
        return False
    return True
