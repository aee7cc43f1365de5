"""Output of the commands: the two consoles, and tables."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infoshot.labelling import ImageLabel


def stdout() -> Console:
    """Return the console for results; square brackets are printed as they are."""
    return Console(markup=False, highlight=False, emoji=False)


def complain(kind: str, sentence: str) -> None:
    """Print one sentence on stderr, without wrapping it."""
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(
        f"{kind}: {sentence}", style="bold red" if kind == "Error" else "yellow"
    )


def count_statuses(images: Sequence[ImageLabel]) -> str:
    """Format how many images are labelled, unsure and so on."""
    statuses = Counter(image.status for image in images)
    return ", ".join(f"{n:,} {status}" for status, n in statuses.most_common())


def print_table(header: Sequence[str], cells: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table on stdout."""
    if title:
        stdout().print(title, highlight=False, soft_wrap=True)
    table = Table()
    for number, name in enumerate(header):
        table.add_column(Text(name), justify="left" if number == 0 else "right", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    console = stdout()
    if not console.is_terminal:
        console.width = 1000  # a file has no width
    console.print(table)
