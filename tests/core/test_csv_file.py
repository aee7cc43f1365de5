"""CSV files as spreadsheets save them, and files that are none."""

import csv
import io
import os

import pytest

from infoshot import DataError
from infoshot.core.csv_file import csv_text, read_csv

TEXT = "path,label\nGröße.png,Köln\n"
ROWS = [{"path": "Größe.png", "label": "Köln"}]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_files_of_spreadsheets_are_read(tmp_path, encoding, separator, end):
    text = TEXT.replace(",", separator).replace("\n", end)
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    assert read_csv(tmp_path / "a.csv", "path", "label") == ROWS


def test_spaces_in_the_header_and_empty_cells_at_the_end_do_not_count(tmp_path):
    (tmp_path / "a.csv").write_text(" path, label ,,\n x,y.png,,,\n\nz.png\n")
    assert read_csv(tmp_path / "a.csv", "path") == [
        {"path": " x", "label": "y.png"},
        {"path": "z.png", "label": ""},
    ]


SAVE = r"save it as 'CSV UTF-8' and try again"
REFUSED = {
    "cp1252": (TEXT.encode("cp1252"), rf"line 2 is not UTF-8 text \(byte 0xf6\); {SAVE}"),
    "half of UTF-16": (TEXT.encode("utf-16")[:-1], f"is not UTF-16 text .* {SAVE}"),
    "UTF-16 without a mark": (TEXT.encode("utf-16-le"), f"line 2 is not UTF-8 .* {SAVE}"),
    "zero byte": (b"path,label\na.png,c\0t\n", f"line 2 has a zero byte, .* {SAVE}"),
    "long field": (b"path,label\n" + b"x" * 200_000, "line 2 is not CSV .*field larger"),
    "no end": (b'path,label\n"a.png,cat\nb.png,dog\n', "not CSV .*unexpected end of data"),
    "comma": (
        b"path,label\nok.png,cat\na,b.png,dog\n",
        "line 3 has 3 fields, but the header has 2",
    ),
    "two columns": (b"path,label,label\na.png,cat,dog\n", "has several columns 'label'"),
    "no column": (b"file,label\na.png,cat\n", "must have a header line with the column 'path'"),
    "empty": (b"", "must have a header line with the column 'path'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_files_are_refused_with_the_place(case, tmp_path):
    content, message = REFUSED[case]
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.csv: .*{message}"):
        read_csv(tmp_path / "a.csv", "path", "label")


def test_what_is_not_a_file_of_fair_size_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(2**40)
    for name, message in {
        "pipe.csv": "cannot be read .a named pipe, not a regular file",
        "huge.csv": r"cannot be read \(larger than 1,073,741,824 bytes",
        "none.csv": "cannot be read",
        "folder": "cannot be read .Is a directory",
    }.items():
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(DataError, match=f"{name}: {message}"):
            read_csv(tmp_path / name, "path")


def test_what_is_written_is_valid_and_exact():
    rows = [["a,b", 'q"'], ["\r", "\n"], [os.fsdecode(b"\xe9"), " x "]]
    text = csv_text(["path", "label"], rows)
    text.encode()
    read = list(csv.reader(io.StringIO(text, newline="")))
    assert read == [["path", "label"], *rows[:2], [r"\xe9", " x "]]
