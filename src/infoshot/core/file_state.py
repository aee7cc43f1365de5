"""Files of a folder that change together: a reader sees all of one state, or all of the next.

A new state is written to a temporary folder first. Renaming this folder to ``.infoshot-commit`` is
the step that makes it valid: from then on every file is read from there if it is there, else from
its own place. Then the files are moved to their places, the manifest last. If the process is killed
before the rename, the old state is valid, and what was written is removed as every temporary file
is. If it is killed afterwards, the new state is valid, and the next process that writes to the
folder moves the rest. The manifest has the digests of the other files, so that a reader notices if
files were moved while it was reading, and reads again.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from infoshot.core.atomic import flush, sole_writer, write_atomically
from infoshot.core.errors import DataError
from infoshot.core.leftovers import temporary_name
from infoshot.core.regular_file import read_regular

COMMIT = ".infoshot-commit"
DIGESTS = "files"
"""The entry of a manifest that has the sha256 of the other files by name."""
Manifest = TypeVar("Manifest", bound=Mapping[str, Any])
_LARGEST = 2**32  # bytes
_READS = 3  # of a state that does not fit together, before it counts as damaged
_PAUSE = 0.02  # seconds between them
_MOST_READS = 100  # of files that other processes change all the time


def digest(content: bytes) -> str:
    """Return the sha256 of a file, as a manifest records it."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class FileSet(Generic[Manifest]):
    """Files that change together.

    Parameters
    ----------
    kind
        What they are in messages, such as ``labelling run``.
    names
        The names of all files, the manifest included.
    manifest
        The name of the manifest, a file that every state has.
    parse
        Makes the manifest from its bytes; the path is for messages. Raises ``DataError``.
    advice
        What to do if files are damaged.
    optional
        Names of files that a state may lack.
    largest
        Bytes that a file may have, by name; 4 GiB for the others.
    """

    kind: str
    names: tuple[str, ...]
    manifest: str
    parse: Callable[[bytes, Path], Manifest]
    advice: str
    optional: Collection[str] = ()
    largest: Mapping[str, int] = field(default_factory=dict)

    @contextmanager
    def open_writer(self, folder: Path) -> Iterator[None]:
        """Lock the folder for this process, and finish what a killed process began.

        Raises
        ------
        DataError
            If another process is writing there, or it cannot be written to.
        """
        with sole_writer(folder):
            self._finish_commit(folder)
            yield

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Replace all files together; an optional file that is not given is removed.

        Only for the process that :meth:`open_writer` lets write.

        Raises
        ------
        DataError
            If they cannot be written; the old state is kept then.
        """
        for name in self.names:
            place = folder / name
            if place.exists() and not place.is_file():
                raise DataError(f"{place}: not a regular file, so it cannot be replaced.")
        staged = temporary_name(folder / "state")
        try:
            staged.mkdir()
            for name in self.names:
                if name in files:
                    write_atomically(staged / name, files[name])
            staged.rename(folder / COMMIT)
            flush(folder)
        except OSError as error:
            raise DataError(f"{folder}: cannot be written to ({error.strerror}).") from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        self._finish_commit(folder)

    def read(self, folder: Path, *names: str) -> tuple[Manifest, dict[str, bytes]]:
        """Read the manifest, and other files of the same state.

        Raises
        ------
        DataError
            If there is no manifest, or the files are damaged or do not belong together.
        """
        last, n_equal = b"", 0
        for _ in range(_MOST_READS):
            text = self.read_file(folder, self.manifest)
            if text is None:
                missing = "" if folder.exists() else "does not exist, so it "
                raise DataError(f"{folder}: {missing}does not contain a finished {self.kind}.")
            facts = self.parse(text, folder / self.manifest)
            found = {name: self.read_file(folder, name) for name in names}
            wrong = _find_wrong(facts, found)
            # Without digests, the files belong together if nothing was replaced meanwhile.
            if wrong is None and (
                DIGESTS in facts or self.read_file(folder, self.manifest) == text
            ):
                return facts, {name: data for name, data in found.items() if data is not None}
            n_equal = n_equal + 1 if text == last else 1
            if wrong is not None and n_equal >= _READS:
                is_missing = found[wrong] is None
                what = "missing" if is_missing else "damaged, or changed since it was written"
                raise DataError(f"{folder / wrong}: {what}; {self.advice}.")
            last = text
            time.sleep(_PAUSE)
        raise DataError(f"{folder}: other processes change it all the time; try again later.")

    def read_file(self, folder: Path, name: str) -> bytes | None:
        """Read one file of the state that is valid now; ``None`` if there is none.

        Raises
        ------
        DataError
            If it cannot be read.
        """
        for _ in range(2):  # it may be moved between the two places
            for place in (folder / COMMIT / name, folder / name):
                try:
                    if place.is_file():
                        return read_regular(place, self.largest.get(name, _LARGEST))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise DataError(f"{place}: cannot be read ({error.strerror}).") from error
                except MemoryError as error:
                    raise DataError(
                        f"{place}: too large for the memory of this machine."
                    ) from error
        return None

    def _finish_commit(self, folder: Path) -> None:
        """Move the files of a state that is valid already to their places."""
        commit = folder / COMMIT
        if not os.path.lexists(commit):
            return
        if commit.is_symlink() or not commit.is_dir():
            raise DataError(f"{commit}: not a folder of this program; move it away.")
        try:
            names = sorted(path.name for path in commit.iterdir())
            if names:
                self._move_files(folder, names)
            commit.rmdir()
            flush(folder)
        except OSError as error:
            raise DataError(f"{folder}: cannot be written to ({error.strerror}).") from error

    def _move_files(self, folder: Path, names: list[str]) -> None:
        """Move files to their places, the manifest last; none is moved if they do not fit."""
        commit = folder / COMMIT
        if set(names) - set(self.names) or self.manifest not in names:
            raise DataError(
                f"{commit}: contains other files than those of a {self.kind}; move it away."
            )
        others = [name for name in self.names if name != self.manifest]
        try:
            facts, _ = self.read(folder, *(set(others) - set(self.optional)))
        except DataError as error:
            raise DataError(f"{commit}: files are missing or damaged; move it away.") from error
        for name in (*others, self.manifest):
            if name in names:
                os.replace(commit / name, folder / name)  # noqa: PTH105 - one call of the system
            elif name in self.optional and name not in facts.get(DIGESTS, {}):
                (folder / name).unlink(missing_ok=True)
        flush(folder)


def _find_wrong(facts: Mapping[str, Any], found: Mapping[str, bytes | None]) -> str | None:
    """Name the first file that is missing or has another digest than the manifest records."""
    digests = facts.get(DIGESTS)
    for name, content in found.items():
        if content is None or (digests is not None and digests.get(name) != digest(content)):
            return name
    return None
