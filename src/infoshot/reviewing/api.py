"""Review the labels of a run in the browser."""

import html
import os
import socket
import sys
import threading
import warnings
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from infoshot.core import checks
from infoshot.core.types import AnyPath
from infoshot.labelling.run_folder import check_finished
from infoshot.reviewing.access import Guard
from infoshot.reviewing.address import (
    Address,
    is_loopback,
    make_token,
    open_socket,
    read_address,
    write_address,
)
from infoshot.reviewing.app import create_app
from infoshot.reviewing.event_stream import EventStreams
from infoshot.reviewing.server import Server, lock_review
from infoshot.reviewing.session import Session

_PAUSE = 0.5  # seconds; a wait without an end cannot be interrupted on every system


class Review:
    """A review that is open in the browser, until it is stopped.

    As a context manager it is stopped at the end of the block. In a notebook it is shown as a
    link.

    Parameters
    ----------
    run
        Folder of the run.
    url
        Address of the page, with the token.
    n_photos
        How many photos the run has.
    resources
        What is closed when the review is stopped.

    Examples
    --------
    >>> from infoshot import review
    >>> with review("run", open_browser=False) as page:
    ...     page.n_photos
    8
    """

    def __init__(self, run: Path, url: str, n_photos: int, resources: ExitStack) -> None:
        self.run = run
        self.url = url
        self.n_photos = n_photos
        self._resources = resources
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def wait(self) -> None:
        """Wait until the review is stopped; an interrupt (Ctrl-C) stops it."""
        try:
            while not self._stopped.wait(_PAUSE):
                pass
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        """Stop the server; all answers are saved already."""
        with self._lock:
            self._resources.close()
            self._stopped.set()

    def __enter__(self) -> "Review":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Review(run={str(self.run)!r}, url={self.url!r})"

    def _repr_html_(self) -> str:
        name, url = html.escape(str(self.run)), html.escape(self.url)
        return f'<a href="{url}" target="_blank" rel="noopener noreferrer">Review {name}</a>'


def review(
    run: AnyPath,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = True,
) -> Review:
    """Open a page on which a person reviews the labels of a run.

    The page is served in the background. Every answer is saved in the run at once. The server stops
    with :meth:`Review.stop`, at the end of a ``with`` block, or with the process.

    Parameters
    ----------
    run
        Folder of a finished run.
    host
        Name or address of this machine at which the page is served. By default only this machine
        can reach it.
    port
        Port; by default that of the last review of this run if it is free, else any free one.
    open_browser
        Whether to open the page in the browser.

    Returns
    -------
    The open review, with its address ``url``.

    Raises
    ------
    DataError
        If there is no finished run, the run is open already, or the port is in use.
    InvalidArgumentError
        If the host is not one of this machine.

    Examples
    --------
    >>> with review("run", open_browser=False) as page:  # page.wait() waits until it is stopped
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    if port is not None:
        checks.at_least("port", port, 1, 2**16 - 1)
    folder = Path(run)
    check_finished(folder)
    with ExitStack() as resources:
        resources.callback(lock_review(folder).release)
        before = read_address(folder)
        place = open_socket(host, port, wanted=before.port if before else None)
        resources.callback(place.close)
        if not is_loopback(place):
            _warn_of_network(host, place.getsockname()[1])
        session = Session(folder)
        resources.callback(session.close)
        token = before.token if before else make_token()
        address = Address(host, place.getsockname()[1], token)
        write_address(folder, address)
        streams = EventStreams()
        server = Server(Guard(create_app(session, streams), address), place)
        resources.callback(server.stop)
        resources.callback(streams.close)
        opened = Review(folder, address.url, session.n_photos, resources.pop_all())
    if open_browser:
        _open_browser(opened.url)
    return opened


def _warn_of_network(host: str, port: int) -> None:
    name = socket.gethostname()
    warnings.warn(
        f"the review is served at {host}, not only to this machine: whoever has the address with "
        "the token can see the photos and change labels, and the connection is not encrypted. "
        f"Other machines reach it at http://{name}:{port}/ with the same token.",
        stacklevel=3,
    )


def _open_browser(url: str) -> None:
    """Open a page, unless only a browser for the terminal could show it."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform != "linux" or any(os.environ.get(name) for name in screens):
        webbrowser.open(url)
