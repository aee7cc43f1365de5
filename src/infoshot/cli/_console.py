"""Output of the commands: the two consoles, tables, and output that nobody reads."""

import select
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infoshot.core.text import visible

if TYPE_CHECKING:
    from infoshot.labelling import ImageLabel


class _PlainConsole(Console):
    """Prints text as it is, except for control characters, which become visible.

    Text may hold names of files and classes: they must neither control the terminal nor be read as
    rich's markup.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - as in rich
        """Print texts and tables."""
        super().print(
            *(visible(each, keep="\n") if isinstance(each, str) else each for each in objects),
            **options,
        )


def stdout() -> Console:
    """Return the console for results; square brackets are printed as they are."""
    return _PlainConsole()


def complain(kind: str, sentence: str) -> None:
    """Print one sentence on stderr, without wrapping it."""
    style = "bold red" if kind == "Error" else "yellow"
    _PlainConsole(stderr=True).print(f"{kind}: {visible(sentence)}", style=style, soft_wrap=True)


def end_if_nobody_reads(error: Exception) -> None:
    """Raise ``BrokenPipeError`` if it is the cause and nobody reads stdout, as after ``head``.

    Typer then ends the process silently, with the exit code 1 that Python's documentation, click
    and rich have for it. Other broken pipes are errors.
    """
    for broken in (error, error.__cause__):
        if isinstance(broken, BrokenPipeError) and hasattr(select, "poll"):
            stdout_pipe = select.poll()
            stdout_pipe.register(1, 0)  # no events: a closed pipe is always reported
            if stdout_pipe.poll(0):
                raise broken


def count_statuses(images: "Sequence[ImageLabel]") -> str:
    """Format how many images are labelled, unsure and so on."""
    statuses = Counter(image.status for image in images)
    return ", ".join(f"{n:,} {status}" for status, n in statuses.most_common())


def print_table(header: Sequence[str], cells: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table on stdout."""
    if title:
        stdout().print(title, highlight=False, soft_wrap=True)
    table = Table()
    for number, name in enumerate(header):
        table.add_column(
            Text(visible(name)), justify="left" if number == 0 else "right", overflow="fold"
        )
    for line in cells:
        table.add_row(*(Text(visible(cell)) for cell in line))
    console = stdout()
    if not console.is_terminal:
        console.width = 1000  # a file has no width
    console.print(table)
