"""Folders that several processes write to; locked folders are tested with the locks."""

import os

import pytest

from infoshot.core import leftovers
from infoshot.core.atomic import sole_writer
from infoshot.core.leftovers import record_writer, remove_old_temporaries, temporary_name


@pytest.fixture
def leftover(tmp_path, monkeypatch):
    """What another process of a job, which has not locked the folder, has left."""
    with monkeypatch.context() as patch:
        patch.setattr(leftovers, "_TOKEN", "1" * 16)
        record_writer(tmp_path)
        path = temporary_name(tmp_path / "a.txt")
    path.write_text("half")
    return path


def test_leftovers_of_every_process_of_a_job_are_removed(leftover, tmp_path):
    with sole_writer(tmp_path):
        assert not leftover.exists()


def test_old_temporaries_are_removed_and_recent_ones_kept(leftover, tmp_path):
    remove_old_temporaries(tmp_path, 3600)
    assert leftover.exists()
    os.utime(leftover, (0, 0))
    for name in (".notes.part", f".a.{'0' * 32}.infoshot-part", "a.txt"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    remove_old_temporaries(tmp_path, 3600)
    assert len(list(tmp_path.iterdir())) == 4  # these three and the record
    assert not leftover.exists()


def test_a_process_is_recorded_once(tmp_path):
    for _ in range(3):
        record_writer(tmp_path)
    assert len((tmp_path / ".infoshot-writers").read_text().splitlines()) == 1
    own = temporary_name(tmp_path / "a.txt")
    own.touch()
    os.utime(own, (0, 0))
    remove_old_temporaries(tmp_path, 3600)
    assert not own.exists()


def test_folders_that_cannot_be_written_are_left_alone(tmp_path):
    record_writer(tmp_path / "gone")
    remove_old_temporaries(tmp_path / "gone", 0)
    (tmp_path / ".infoshot-writers").mkdir()
    record_writer(tmp_path)
    remove_old_temporaries(tmp_path, 0)
    assert os.listdir(tmp_path) == [".infoshot-writers"]
