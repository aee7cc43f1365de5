"""Inputs here and elsewhere: folders, patterns, remote files, and what is wrong with them."""

import sys
from pathlib import Path

import fsspec
import pytest

from infoshot.core.errors import DataError, InvalidArgumentError, MissingDependencyError
from infoshot.core.outputs import check_remote_output, write_output
from infoshot.core.places import (
    RemotePath,
    find_files,
    find_version,
    local_files,
    local_path,
    locate,
    open_place,
)


@pytest.fixture
def bucket():
    """Three files in the memory file system."""
    system = fsspec.filesystem("memory")
    for name in ("b.parquet", "a.parquet", "notes.txt", ".hidden.parquet", "sub/c.parquet"):
        system.pipe_file(f"/bucket/{name}", name.encode())
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


def names(places):
    return [place.name for place in places]


def test_protocols_differ_from_paths():
    for text in ("s3://b/k.parquet", "hf://datasets/x", "simplecache::s3://b/*", "memory://x"):
        assert isinstance(locate(text), RemotePath)
        assert str(locate(text)) == text
    for text in ("a/b.parquet", "c:/x.npz", "c://x.npz", "odd:name", "a::b.npz", "/s3://x"):
        assert locate(text) == Path(text)
    assert locate(Path("x")) == Path("x")
    place = RemotePath("s3://b/part.0.parquet")
    assert locate(place) is place
    assert (place.name, place.stem, place.suffix) == ("part.0.parquet", "part.0", ".parquet")


def test_folders_and_patterns_list_their_files(tmp_path, bucket):
    for name in ("b.parquet", "a.parquet", "notes.txt", ".hidden.parquet"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.parquet").touch()
    for place in (tmp_path, locate(bucket)):
        assert names(find_files(place, [".parquet"])) == ["a.parquet", "b.parquet"]
        pattern = locate(f"{place}/[b-z]*")
        assert {"b.parquet", "notes.txt"} <= set(names(find_files(pattern)))
        assert names(find_files(locate(f"{place}/*/*.parquet"), [".parquet"])) == ["c.parquet"]
        assert find_files(locate(f"{place}/none-*"), [".parquet"]) == []
        assert find_files(locate(f"{place}/a.parquet"), [".parquet"]) is None
    assert local_files(str(tmp_path / "[ab].parquet")) == [
        tmp_path / "a.parquet", tmp_path / "b.parquet",
    ]  # fmt: skip
    assert local_files(tmp_path) == [tmp_path]
    assert local_files(bucket) == []


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path):
    path = tmp_path / "part[1].parquet"
    path.touch()
    assert find_files(path, [".parquet"]) is None


def test_names_that_no_file_can_have_are_no_folders():
    for name in ("a" * 300, "x" * 5000, "a\0b", "[" * 300):
        assert not find_files(Path(name))
        assert local_files(name) == [Path(name)]


def test_remote_files_are_read_and_change_their_version(bucket):
    place = locate(f"{bucket}/a.parquet")
    with open_place(place) as file:
        assert file.read() == b"a.parquet"
    before = find_version(place)
    assert before == find_version(place)
    write_output(place, b"A.parquet")
    with open_place(place) as file:
        assert file.read() == b"A.parquet"
    assert find_version(place) != before


def test_missing_remote_files_are_named(bucket):
    for ask in (find_version, lambda place: open_place(place).__enter__()):
        with pytest.raises(DataError, match=r"memory://bucket/none: there is no such file\."):
            ask(locate(f"{bucket}/none"))


def test_without_fsspec_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingDependencyError, match=r"s3://b/k: remote paths need fsspec; install "
                       r"it with pip install 'infoshot\[remote\]'\."):  # fmt: skip
        find_files(locate("s3://b/k"))


def test_a_missing_package_of_a_protocol_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingDependencyError, match=r"s3://b/k: a package for this kind of path "
                       r"is missing \(.*s3fs.*\)\."):  # fmt: skip
        find_files(locate("s3://b/k"))


def test_other_failures_are_one_sentence(bucket, monkeypatch):
    with pytest.raises(DataError, match=r"nothing://x: cannot be read \(Protocol not known"):
        find_files(locate("nothing://x"))

    def fail(*_, **__):
        raise RuntimeError("no\naccess.")

    for name, ask, what in (
        ("info", lambda: find_version(locate(f"{bucket}/a.parquet")), "read"),
        ("pipe_file", lambda: write_output(f"{bucket}/a.parquet", "text"), "written"),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(fsspec.implementations.memory.MemoryFileSystem, name, fail)
            with pytest.raises(DataError, match=rf"cannot be {what} \(no access\)\.$"):
                ask()


def test_remote_outputs_never_replace_inputs(bucket):
    for given in (bucket, f"{bucket}/a.parquet", f"{bucket}/*.parquet"):
        with pytest.raises(DataError, match=r"a\.parquet: would replace an input"):
            check_remote_output(given, f"{bucket}/a.parquet")
        check_remote_output(given, f"{bucket}/new.parquet")
    check_remote_output("a.parquet", f"{bucket}/a.parquet")


def test_arguments_that_must_be_local_say_so():
    with pytest.raises(InvalidArgumentError, match=r"out must be a path of this machine; got s3:"):
        local_path("out", "s3://bucket/out")
    assert local_path("out", "folder") == Path("folder")
