"""What the commands share: the two consoles, progress and tables."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

_SECONDS = 60.0  # between two lines about progress


def stdout() -> Console:
    """Console for results; square brackets in what users call things are just that."""
    return Console(markup=False, highlight=False)


def say(sentence: str, progress: Progress | None = None) -> None:
    """How far we are, on stderr; above the progress bar that is being drawn, if any."""
    console = progress.console if progress else Console(stderr=True)
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def complain(kind: str, sentence: str) -> None:
    """One sentence on stderr, never wrapped or coloured into pieces."""
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(
        f"{kind}: {sentence}", style="bold red" if kind == "Error" else "yellow"
    )


class _SpeedColumn(ProgressColumn):
    """How many a second, lately."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """Text of the column."""
        return Text(f"{task.speed or 0:,.0f} {self._unit}/s")


@contextmanager
def progress_bar(unit: str, *, shown: bool = True) -> Iterator[Progress]:
    """Progress on stderr with the speed in units per second, only in a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _SpeedColumn(unit),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    hidden = not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        yield progress


class SpokenProgress:
    """Progress as lines on stderr, one a minute at most, for logs; silent unless ``shown``."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._name, self._total, self._done = "", 0, 0
        self._start = self._spoken = time.monotonic()

    def begin(self, name: str, total: int | None) -> None:
        """Say what is done now; ``None`` if nobody knows how much of it there is."""
        self._name, self._total, self._done = name, total or 0, 0
        self._start = self._spoken = time.monotonic()
        if self._shown:
            say(f"{name} ...")

    def advance(self, n: int) -> None:
        """Count on, and say so now and then."""
        self._done += n
        now = time.monotonic()
        if not (self._shown and self._total and self._done) or now - self._spoken < _SECONDS:
            return
        self._spoken = now
        left = (now - self._start) * (self._total / self._done - 1)
        say(f"{self._name}: {self._done / self._total:.0%}, about {left / 60:.0f} minutes left")


def print_table(header: Sequence[str], cells: Sequence[Sequence[str]], title: str = "") -> None:
    """A table on stdout."""
    if title:
        stdout().print(title, highlight=False, soft_wrap=True)
    table = Table()
    for number, name in enumerate(header):
        table.add_column(Text(name), justify="left" if number == 0 else "right", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    console = stdout()
    if not console.is_terminal:
        console.width = 1000  # a file has no width: the table takes what it needs
    console.print(table)
