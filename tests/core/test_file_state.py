"""Files that change together, of any kind; tests/labelling/test_run_files.py has those of runs."""

import json
import shutil

import pytest

from infoshot import DataError
from infoshot.core.file_state import COMMIT, FileSet, digest

FILES = FileSet(
    kind="diary",
    names=("index.json", "text.txt", "notes.txt"),
    manifest="index.json",
    parse=lambda content, path: json.loads(content),
    advice="write it again",
    optional=("notes.txt",),
    largest={"text.txt": 100},
)


def files(text, notes=None):
    content = {"text.txt": text} if notes is None else {"text.txt": text, "notes.txt": notes}
    index = {"files": {name: digest(data) for name, data in content.items()}}
    return {**content, "index.json": json.dumps(index).encode()}


def write(folder, content):
    with FILES.open_writer(folder):
        FILES.write(folder, content)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, files(b"first", b"a note"))
    return tmp_path


def test_a_state_replaces_another_with_its_optional_files(folder):
    assert FILES.read(folder, "text.txt", "notes.txt")[1] == {
        "text.txt": b"first",
        "notes.txt": b"a note",
    }
    write(folder, files(b"second"))
    assert FILES.read(folder, "text.txt")[1] == {"text.txt": b"second"}
    assert FILES.read_file(folder, "notes.txt") is None


def test_a_state_is_valid_before_its_files_are_moved(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(other, files(b"second"))
    (folder / COMMIT).mkdir()
    for name in ("index.json", "text.txt"):
        shutil.copy(other / name, folder / COMMIT)
    assert FILES.read(folder, "text.txt")[1] == {"text.txt": b"second"}
    assert (folder / "text.txt").read_bytes() == b"first"  # readers move nothing
    with FILES.open_writer(folder):
        assert (folder / "text.txt").read_bytes() == b"second"
        assert not (folder / COMMIT).exists()
        assert not (folder / "notes.txt").exists()


def test_messages_name_the_kind_and_what_to_do(folder, tmp_path_factory):
    with pytest.raises(DataError, match="does not contain a finished diary"):
        FILES.read(tmp_path_factory.mktemp("empty"))
    (folder / "text.txt").write_bytes(b"changed")
    with pytest.raises(DataError, match=r"text\.txt: damaged, .* written; write it again\."):
        FILES.read(folder, "text.txt")
    (folder / "text.txt").write_bytes(bytes(101))
    with pytest.raises(DataError, match=r"text\.txt: cannot be read \(larger than 100 bytes"):
        FILES.read(folder, "text.txt")
