"""The files of a run, which change together: a reader sees all of one state, or all of the next.

A new state is written to a temporary folder first. Renaming this folder to ``.infoshot-commit`` is
the step that makes it valid: from then on every file is read from there if it is there, else from
the run. Then the files are moved to their places, ``run.json`` last. If the process is killed
before the rename, the old state is valid, and what was written is removed as every temporary file
is. If it is killed afterwards, the new state is valid, and the next process that writes to the run
moves the rest. ``run.json`` has the digests of the other files, so that a reader notices if files
were moved while it was reading, and reads again.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from infoshot.core.atomic import sole_writer, write_atomically
from infoshot.core.errors import DataError
from infoshot.core.json_file import FileText, check_json, parse_json
from infoshot.core.leftovers import temporary_name
from infoshot.core.regular_file import open_regular
from infoshot.version import __version__

LABELS, PARQUET, CLASSIFIER = "labels.csv", "labels.parquet", "classifier.safetensors"
CORRECTIONS, REPORT, FACTS = "corrections.csv", "report.html", "run.json"
STATE_FILES = (LABELS, PARQUET, CLASSIFIER, CORRECTIONS, REPORT, FACTS)
FORMAT = "infoshot.run/1"
COMMIT = ".infoshot-commit"
_LARGEST = {FACTS: 2**26}  # bytes, run.json has some hundred bytes for each example
_LARGEST_OTHER = 2**32
_READS = 3  # of a state that does not fit together, before it counts as damaged
_PAUSE = 0.02  # seconds between them
_MOST_READS = 100  # of a run that other processes change all the time


class RequestFacts(TypedDict):
    """The arguments of the run."""

    examples: FileText
    photos: FileText
    backbone: FileText
    method: str
    settings: dict[str, Any]
    threshold: float
    reject_outliers: bool
    prior: dict[str, float] | None


class EncoderFacts(TypedDict):
    """The provenance of the features."""

    backbone: FileText
    weights_sha256: str
    transform: str
    infoshot: str


class ExampleFacts(TypedDict):
    """An example of the run."""

    path: str
    file: FileText
    label: str
    sha256: str
    given: bool


class CalibrationFacts(TypedDict):
    """The power of the calibration, and whether it comes from held-out examples."""

    by_examples: bool
    exponent: float


class RunFacts(TypedDict):
    """What run.json holds. ``files`` has the sha256 of the other files of the same state."""

    format: str
    request: RequestFacts
    classes: dict[str, int]
    counts: dict[str, int]
    encoder: EncoderFacts
    cache: FileText
    examples: list[ExampleFacts]
    files: NotRequired[dict[str, str]]
    csv_safe: NotRequired[bool]
    method: NotRequired[dict[str, Any]]
    estimate: NotRequired[dict[str, float] | None]
    calibration: NotRequired[CalibrationFacts]
    thresholds: NotRequired[dict[str, float]]
    warnings: NotRequired[list[str]]
    environment: NotRequired[dict[str, Any]]


@contextmanager
def run_writer(folder: Path) -> Iterator[None]:
    """Lock the folder of a run for this process, and finish what a killed process began.

    Raises
    ------
    DataError
        If another process is writing there, or it cannot be written to.
    """
    with sole_writer(folder):
        _finish_commit(folder)
        yield


def write_state(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace all files of a run together; ``corrections.csv`` is removed if it is not given.

    Only for the process that :func:`run_writer` lets write.

    Raises
    ------
    DataError
        If they cannot be written; the old state is kept then.
    """
    for name in STATE_FILES:
        place = folder / name
        if place.exists() and not place.is_file():
            raise DataError(f"{place}: not a regular file, so it cannot be replaced.")
    staged = temporary_name(folder / "state")
    try:
        staged.mkdir()
        for name in STATE_FILES:
            if name in files:
                write_atomically(staged / name, files[name])
        staged.rename(folder / COMMIT)
        _flush(folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written to ({error.strerror}).") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    _finish_commit(folder)


def read_state(folder: Path, *names: str) -> tuple[RunFacts, dict[str, bytes]]:
    """Read run.json, and other files of the same state.

    Raises
    ------
    DataError
        If there is no finished run, or its files are damaged or do not belong together.
    """
    last, n_equal = b"", 0
    for _ in range(_MOST_READS):
        text = read_current(folder, FACTS)
        if text is None:
            raise DataError(f"{folder}: does not contain a finished labelling run.")
        facts = parse_facts(text, folder / FACTS)
        found = {name: read_current(folder, name) for name in names}
        wrong = _find_wrong(facts, found)
        # Without digests, the files belong together if nothing was replaced meanwhile.
        if wrong is None and ("files" in facts or read_current(folder, FACTS) == text):
            return facts, {name: data for name, data in found.items() if data is not None}
        n_equal = n_equal + 1 if text == last else 1
        if wrong is not None and n_equal >= _READS:
            what = "missing" if found[wrong] is None else "damaged, or changed after the run"
            raise DataError(f"{folder / wrong}: {what}; label the images again.")
        last = text
        time.sleep(_PAUSE)
    raise DataError(f"{folder}: other processes change this run all the time; try again later.")


def read_current(folder: Path, name: str) -> bytes | None:
    """Read a file of the state that is valid now; ``None`` if there is none.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    for _ in range(2):  # it may be moved between the two places
        for place in (folder / COMMIT / name, folder / name):
            try:
                if not place.is_file():
                    continue
                with open_regular(place) as file:
                    limit = _LARGEST.get(name, _LARGEST_OTHER)
                    if os.fstat(file.fileno()).st_size > limit:
                        raise DataError(f"{place}: larger than {limit:,} bytes.")
                    return file.read()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise DataError(f"{place}: cannot be read ({error.strerror}).") from error
            except MemoryError as error:
                raise DataError(f"{place}: too large for the memory of this machine.") from error
    return None


def parse_facts(text: bytes, path: Path) -> RunFacts:
    """Parse run.json and check its types.

    Raises
    ------
    DataError
        If it is damaged, or was written by a newer version.
    """
    wrong = f"{path}: not the description of a labelling run"
    try:
        facts = parse_json(text)
        if not isinstance(facts, dict) or "format" not in facts:
            raise ValueError("'format' is missing")
        if facts["format"] != FORMAT:
            found = f"{facts['format']!r:.60}"
            raise ValueError(f"{_name_writer(facts)}its format is {found}, not '{FORMAT}'")
        unknown = check_json(facts, RunFacts)
    except ValueError as error:
        raise DataError(f"{wrong} ({error}).") from error
    if unknown:
        names = ", ".join(f"'{name}'" for name in unknown[:5])
        raise DataError(f"{wrong} of this version ({_name_writer(facts)}unknown entries {names}).")
    return facts  # type: ignore[return-value]


def digest(content: bytes) -> str:
    """Return the sha256 of a file, as run.json records it."""
    return hashlib.sha256(content).hexdigest()


def _finish_commit(folder: Path) -> None:
    """Move the files of a state that is valid already to their places."""
    commit = folder / COMMIT
    if not os.path.lexists(commit):
        return
    if commit.is_symlink() or not commit.is_dir():
        raise DataError(f"{commit}: not a folder of this program; move it away.")
    try:
        names = sorted(path.name for path in commit.iterdir())
        if names:
            _move_files(folder, commit, names)
        commit.rmdir()
        _flush(folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written to ({error.strerror}).") from error


def _move_files(folder: Path, commit: Path, names: list[str]) -> None:
    """Move files over those of the run, run.json last; nothing is moved if they do not fit."""
    if set(names) - set(STATE_FILES) or FACTS not in names:
        raise DataError(f"{commit}: contains other files than those of a run; move it away.")
    try:
        facts, _ = read_state(folder, *(set(STATE_FILES) - {FACTS, CORRECTIONS}))
    except DataError as error:
        raise DataError(f"{commit}: files are missing or damaged; move it away.") from error
    for name in STATE_FILES:
        if name in names:
            os.replace(commit / name, folder / name)  # noqa: PTH105 - one call of the system
        elif name == CORRECTIONS and name not in facts.get("files", {}):
            (folder / name).unlink(missing_ok=True)
    _flush(folder)


def _find_wrong(facts: RunFacts, found: Mapping[str, bytes | None]) -> str | None:
    """Name the first file that is missing or has another digest than run.json records."""
    digests = facts.get("files")
    for name, content in found.items():
        if content is None or (digests is not None and digests.get(name) != digest(content)):
            return name
    return None


def _name_writer(facts: Mapping[str, Any]) -> str:
    """Name the version that wrote a run.json, if it is newer than this one."""
    environment = facts.get("environment")
    writer = str(environment.get("infoshot", "")) if isinstance(environment, Mapping) else ""
    if _numbers(writer) > _numbers(__version__):
        return f"written by InfoShot {writer[:20]}, which is newer than {__version__}: "
    return ""


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]{1,9}", version)[:3]]


def _flush(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system supports it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
