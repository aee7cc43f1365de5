"""Where a review is reached: host, port and token, kept in the folder of the run.

An open page finds the server again after a restart, because port and token stay the same.
"""

import errno
import ipaddress
import json
import os
import re
import secrets
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from infoshot.core.atomic import write_atomically
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.json_file import check_json, parse_json

_NAME = ".infoshot-review.json"
_TOKEN = re.compile("[A-Za-z0-9_-]{43}")  # of 32 bytes
_HOST = re.compile("[0-9A-Za-z.:%_-]{1,255}")
_LARGEST = 4096
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _Record(TypedDict):
    host: str
    port: int
    token: str


@dataclass(frozen=True)
class Address:
    """Where a server is reached, and the token that a request needs."""

    host: str
    port: int
    token: str

    @property
    def is_wildcard(self) -> bool:
        """Whether the server listens on all addresses of the machine."""
        return _is(self.host, "is_unspecified")

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        host = _LOOPBACK[0] if self.is_wildcard else self.host
        return f"http://{format_host(host)}:{self.port}/?token={self.token}"

    def hosts(self) -> frozenset[str]:
        """List what browsers call the server, as the header ``Host`` has it."""
        names = {*_LOOPBACK, self.host.lower()}
        if self.is_wildcard:
            names.add(socket.gethostname().lower())
        hosts = {f"{format_host(name)}:{self.port}" for name in names}
        if self.port == 80:
            hosts |= {format_host(name) for name in names}
        return frozenset(hosts)


def make_token() -> str:
    """Make a random token."""
    return secrets.token_urlsafe(32)


def read_address(run: Path) -> Address | None:
    """Read the address of the last server of a run; ``None`` if there is none that can be trusted.

    The file must belong to the user, and nobody else may read it. Links are not followed.
    """
    try:
        record = parse_json(_read_private(run / _NAME))
        if check_json(record, _Record):
            return None
    except (OSError, ValueError):
        return None
    address = Address(**record)
    fits = 0 < address.port < 2**16 and _HOST.fullmatch(address.host)
    return address if fits and _TOKEN.fullmatch(address.token) else None


def write_address(run: Path, address: Address) -> None:
    """Keep an address for the next server of a run; only the user can read it."""
    record = _Record(host=address.host, port=address.port, token=address.token)
    write_atomically(run / _NAME, json.dumps(record) + "\n", private=True)


def open_socket(host: str, port: int | None, *, wanted: int | None = None) -> socket.socket:
    """Bind a socket.

    Parameters
    ----------
    host
        Name or address of this machine.
    port
        The port; by default ``wanted`` if it is free, else any free one.
    wanted
        The port to try first.

    Raises
    ------
    InvalidArgumentError
        If the host is not one of this machine.
    DataError
        If the port cannot be used.
    """
    if port is not None:
        return _bind(host, port)
    if wanted is not None:
        try:
            return _bind(host, wanted)
        except DataError:
            pass
    return _bind(host, 0)


def is_loopback(place: socket.socket) -> bool:
    """Whether only this machine can connect to a socket."""
    return _is(place.getsockname()[0], "is_loopback")


def format_host(host: str) -> str:
    """Format a name or an address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    wrong = f"host must be a name or an address of this machine; got {host!r:.100}."
    if not _HOST.fullmatch(host):
        raise InvalidArgumentError(wrong)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(wrong) from error
    family, *_, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    try:
        return socket.create_server(place, family=family)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise InvalidArgumentError(wrong) from error
        if error.errno == errno.EADDRINUSE:
            raise DataError(f"port {port} is in use; choose another one.") from error
        raise DataError(f"port {port} cannot be used ({error.strerror}).") from error


def _is(address: str, what: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(address.partition("%")[0]), what))
    except ValueError:
        return False


def _read_private(path: Path) -> bytes:
    """Read a small file that nobody but its owner, who must be the user, can read or write."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        private = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
        if os.name == "posix":
            private = private and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
        if not private:
            raise OSError(errno.EPERM, "not a private file")
        return file.read(_LARGEST)
