"""``infoshot review``: the labels of a run on a page in the browser."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli._console import stdout
from infoshot.core.interrupts import interrupt_on_sigterm
from infoshot.reviewing.api import review as open_review


def review(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    port: Annotated[
        int | None, typer.Option(help="Port; default: that of the last review, or a free one.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address only.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address to serve at; the default is this machine only.")
    ] = "127.0.0.1",
) -> None:
    """Review the labels of a run in the browser; every answer is saved at once.

    Example: infoshot review run/
    """
    interrupt_on_sigterm()
    opened = open_review(run, host=host, port=port, open_browser=not no_browser)
    with opened, suppress(KeyboardInterrupt):
        noun = "photo" if opened.n_photos == 1 else "photos"
        stdout().print(
            f"Review of {run}: {opened.n_photos:,} {noun}\n{opened.url}\n"
            "Answers are saved as you go. Press Ctrl-C to stop.",
            soft_wrap=True,
        )
        opened.wait()
    stdout().print("Stopped; the same command opens the review again.")
