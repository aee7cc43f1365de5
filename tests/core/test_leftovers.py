"""Folders that several processes write to; locked folders are tested with the locks."""

import pytest

from infoshot.core import leftovers
from infoshot.core.atomic import sole_writer
from infoshot.core.leftovers import record_writer, temporary_name


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
        assert len((tmp_path / ".infoshot-writers").read_text().splitlines()) == 1


def test_a_failed_job_keeps_the_record_of_its_processes(leftover, tmp_path):
    leftover.unlink()
    with pytest.raises(KeyboardInterrupt), sole_writer(tmp_path):
        raise KeyboardInterrupt
    assert len((tmp_path / ".infoshot-writers").read_text().splitlines()) == 1


def test_a_process_is_recorded_once(tmp_path):
    for _ in range(3):
        record_writer(tmp_path)
    assert len((tmp_path / ".infoshot-writers").read_text().splitlines()) == 1


def test_a_record_that_cannot_be_written_is_no_error_for_other_processes(tmp_path):
    record_writer(tmp_path / "gone")
    (tmp_path / ".infoshot-writers").mkdir()
    record_writer(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".infoshot-writers"]
