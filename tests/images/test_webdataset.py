"""Tar archives of the webdataset format: keys, images, and what is refused."""

import io
import tarfile

import pytest

from infoshot import DataError
from infoshot.images.webdataset import find_samples


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_keys_end_at_the_first_dot_and_other_files_are_ignored(tmp_path):
    members = {
        "0001.jpg": b"first", "0001.json": b"{}", "0001.mask.png": b"a mask", "0001.cls": b"3",
        "cats/0002.JPEG": b"second", "./v1.0/0003.png": b"third", "._0001.jpg": b"of a Mac",
        "README": b"", "0004.txt": b"no image", "old/.hidden.png": b"",
    }  # fmt: skip
    path = write_tar(tmp_path / "a.tar", members)
    found = find_samples(path)
    names = ["0001.jpg", "cats/0002.JPEG", "./v1.0/0003.png"]
    assert [sample.key for sample in found] == ["0001", "cats/0002", "v1.0/0003"]
    assert [sample.path for sample in found] == [f"{path}:{name}" for name in names]
    assert [sample.location.content() for sample in found] == [members[name] for name in names]
    assert {sample.file for sample in found} == {path}


def test_archives_of_a_folder_and_of_a_pattern_are_sorted(tmp_path):
    for number in (2, 0, 1):
        write_tar(tmp_path / f"part-{number}.tar", {f"{number}.jpg": b"", f"{number}b.png": b""})
    assert [s.key for s in find_samples(tmp_path)] == ["0", "0b", "1", "1b", "2", "2b"]
    assert [s.key for s in find_samples(tmp_path / "part-[12].tar")] == ["1", "1b", "2", "2b"]
    (tmp_path / "empty").mkdir()
    for nothing in ("empty", "none-*.tar", "none.tar"):
        assert find_samples(tmp_path / nothing) is None


def test_damaged_archives_are_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"0001.jpg": b"x" * 2000})
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(DataError, match=r"a\.tar: not a complete, uncompressed tar archive"):
        find_samples(path)
    write_tar(path, {"../0001.jpg": b""})
    with pytest.raises(DataError, match=r"points outside the archive"):
        find_samples(path)


def test_two_images_of_a_sample_and_archives_without_images_are_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"a/1.jpg": b"", "a/1.png": b""})
    both = r"the sample 'a/1' has two images, 'a/1.jpg' and 'a/1.png'; only one is expected"
    with pytest.raises(DataError, match=both):
        find_samples(path)
    write_tar(path, {"1.json": b"{}"})
    with pytest.raises(DataError, match=r"a\.tar: the archive contains no images of samples \(KEY"):
        find_samples(path)
