"""The server of a review: uvicorn in a thread, with the port and the token of the run."""

import socket
import threading
import time
from pathlib import Path

import uvicorn
from filelock import FileLock
from starlette.types import ASGIApp

from infoshot.core.atomic import acquire_lock
from infoshot.core.errors import DataError
from infoshot.reviewing.address import read_address

_LOCK_NAME = ".infoshot-review.lock"
_KEEP_ALIVE = 60  # seconds
_GRACE = 3  # seconds until requests that still run are cancelled
_PAUSE = 0.01


def lock_review(run: Path) -> FileLock:
    """Lock a run for one server. Commands that write the run use another lock.

    Raises
    ------
    DataError
        If the run is being reviewed already; the message has the address.
    """
    lock = acquire_lock(run / _LOCK_NAME)
    if lock is not None:
        return lock
    address = read_address(run)
    where = f"open already at {address.url}" if address else "being reviewed by another process"
    raise DataError(f"{run}: {where}")


class Server:
    """Serves an application in a thread until it is stopped.

    Parameters
    ----------
    app
        The application.
    place
        A bound socket, which the server closes.

    Raises
    ------
    DataError
        If it does not start.
    """

    def __init__(self, app: ASGIApp, place: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # the application logs its errors itself
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_GRACE,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([place],), name="infoshot review", daemon=True
        )
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise DataError("the server of the review did not start.")
            time.sleep(_PAUSE)

    def stop(self) -> None:
        """Answer the requests that run, close all connections and end the thread."""
        self._server.should_exit = True
        self._thread.join()
