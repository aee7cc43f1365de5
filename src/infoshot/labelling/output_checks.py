"""Files that no output may replace: those of a run, and sheets that a person has filled in."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from infoshot.core.csv_file import parse_header, read_lines, read_text
from infoshot.core.errors import DataError
from infoshot.core.file_state import COMMIT
from infoshot.core.outputs import check_outputs, is_stream
from infoshot.labelling.exports import EXPORTS
from infoshot.labelling.run_files import ANSWER_LOG, FACTS, RUN_FILES
from infoshot.labelling.run_folder import CSV_COLUMNS

SUGGESTION_COLUMNS = ("path", "label", "guess", "runner_up", "confidence")
AUDIT_COLUMNS = ("path", "label", "truth")
_SHEETS = (SUGGESTION_COLUMNS, AUDIT_COLUMNS)
_OF_SHARDS = ("state.safetensors", "labels", "decoded")
_OF_RUNS = {*RUN_FILES.names, ANSWER_LOG, *EXPORTS, *_OF_SHARDS}
_RECORD = re.compile(rb'\s*\{.*"format"\s*:\s*"infoshot\.', re.DOTALL)
_START = 4096  # bytes in which a record of a run says what it is, and a sheet has its header


def check_results(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    """Check outputs as :func:`check_outputs` does, and keep runs and the answers of a person.

    Raises
    ------
    DataError
        If an output cannot be written, or is an input, another output, a file of a run, or a sheet
        with answers.
    """
    for output in outputs:
        if output is None or is_stream(output):
            continue
        _check_run_file(output)
        if has_answers(output):
            raise DataError(f"{output}: a person has filled in this sheet; choose another file.")
    check_outputs(inputs, outputs)


def choose_sheet(wanted: Path) -> tuple[Path, str]:
    """Choose the file for a new sheet: the one that is wanted, or one beside it.

    A file is replaced only if it is empty or a sheet without answers.

    Returns
    -------
    The file, and why it is another one than wanted; empty if it is not.

    Raises
    ------
    DataError
        If the wanted file belongs to a run, or the file cannot be written.
    """
    if not is_stream(wanted):
        _check_run_file(wanted)
    check_outputs([], [wanted])
    sheet, number = wanted, 1
    while not _is_free(sheet):
        number += 1
        sheet = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
    check_outputs([], [sheet])
    if sheet == wanted:
        return sheet, ""
    reason = "is filled in" if has_answers(wanted) else "is not an empty sheet"
    return sheet, f"{wanted} {reason}, so it is kept; the new sheet is {sheet}."


def has_answers(path: Path) -> bool:
    """Whether a file is a sheet of this program, or of corrections, that a person has filled in.

    Such a sheet has a column ``path``, and a column ``truth`` or ``label`` that is not empty. A
    file of labels that a command wrote is not a sheet.
    """
    names, separator = parse_header(_read_start(path), "path")
    answers = next((name for name in ("truth", "label") if name in names), None)
    if answers is None or names == CSV_COLUMNS:
        return False
    try:
        _, *lines = read_lines(path, read_text(path), separator)
    except (DataError, ValueError):
        return True  # nobody can tell, so it is kept
    column = names.index(answers)
    # Cells beyond the header are notes of a person.
    cells = (cell for _, row in lines for cell in (*row[column : column + 1], *row[len(names) :]))
    return any(cell.strip() for cell in cells)


def _is_free(path: Path) -> bool:
    """Whether a sheet may be written there: to nothing, an empty file or a sheet without answers.

    What is not a file is free too, because it is refused or written into, and never replaced.
    """
    if is_stream(path) or not path.is_file() or not path.stat().st_size:
        return True
    names, _ = parse_header(_read_start(path), "path")
    return names in _SHEETS and not has_answers(path)


def _check_run_file(output: Path) -> None:
    """Refuse the files of a run, also through links and other spellings of their path."""
    place = Path(os.path.realpath(output))
    if _is_record(place):
        raise DataError(f"{output}: the record of a run; choose another file.")
    for folder in place.parents:
        name = place.relative_to(folder).parts[0]
        own = name.casefold() in _OF_RUNS or name.startswith(".")
        if own and (_is_record(folder / FACTS) or _is_record(folder / COMMIT / FACTS)):
            raise DataError(f"{output}: belongs to the run in {folder}; choose another file.")


def _is_record(path: Path) -> bool:
    """Whether a file is JSON in which this program records a run."""
    return _RECORD.match(_read_start(path)) is not None


def _read_start(path: Path) -> bytes:
    """Read the first bytes of a file; nothing of what is not a file or cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_START)
    except OSError:
        return b""
