"""Exports replace earlier exports, and nothing else."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from infoshot import DataError
from infoshot.core.atomic import sole_writer
from infoshot.labelling.exports import EXPORTS
from infoshot.labelling.exports.export_folder import MARKER
from tests.labelling.exported import FOLDERS, export, listed, make_photos, tree


@pytest.fixture
def photos(tmp_path):
    return make_photos(tmp_path)


@pytest.mark.parametrize("kind", FOLDERS)
def test_export_is_replaced(kind, photos, tmp_path):
    out = tmp_path / "out"
    export(kind, photos, out)
    (out / ".DS_Store").touch()  # written by macOS
    export(kind, photos[:1], out)
    assert sum(path.is_symlink() for path in out.rglob("*")) == 1
    assert listed(tmp_path) == ["out", "photos"]
    fresh = tmp_path / "fresh"
    export(kind, photos[:1], fresh)
    assert (out / MARKER).read_text() == (fresh / MARKER).read_text()
    assert tree(out) == {".DS_Store": b"", **tree(fresh)}


@pytest.mark.parametrize("kind", FOLDERS)
def test_hidden_files_of_the_user_stay_in_place(kind, photos, tmp_path):
    out = tmp_path / "out"
    export(kind, photos, out)
    inside = next(path for path in sorted(out.rglob("*")) if path.is_symlink()).parent
    (out / ".git" / "objects").mkdir(parents=True)
    own = [out / ".notes.txt", out / ".git" / "objects" / "a", inside / ".DS_Store"]
    for path in own:
        path.write_text("mine")
    for some in (photos[2:], photos, []):
        export(kind, some, out)
        assert [path.read_text() for path in own] == ["mine"] * 3
        fresh = tmp_path / f"fresh {len(some)}"
        export(kind, some, fresh)
        visible = {path: content for path, content in tree(out).items() if "/." not in f"/{path}"}
        assert visible == tree(fresh)
    assert listed(tmp_path) == ["fresh 0", "fresh 5", "fresh 7", "out", "photos"]


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_content_of_linked_folders_is_never_touched(kind, photos, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ".hidden").write_text("mine")
    (tmp_path / "out").symlink_to(mine)
    export(kind, photos, tmp_path / "out")  # to the folder that the link points to
    export(kind, photos[:1], tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert (mine / ".hidden").read_text() == "mine"
    part = next(path for path in sorted(mine.rglob("*")) if path.is_symlink()).parent
    part.rename(tmp_path / "moved")
    before = tree(tmp_path / "moved")
    part.symlink_to(tmp_path / "moved")
    with pytest.raises(DataError, match=rf"'{part.name}' was changed since the export; move it"):
        export(kind, photos, mine)
    assert part.is_symlink()
    assert tree(tmp_path / "moved") == before


@pytest.mark.parametrize("kind", EXPORTS)
def test_what_the_user_changed_is_never_replaced(kind, photos, tmp_path):
    out = tmp_path / "out"
    export(kind, photos, out)
    changed = next(
        path for path in sorted(out.rglob("*")) if path.name[0] != "." and path.is_file()
    )
    changed.unlink()
    changed.write_text("better")
    with pytest.raises(DataError, match=rf"'.*{changed.name}' was changed since the export; move"):
        export(kind, photos, out)
    assert changed.read_text() == "better"


@pytest.mark.parametrize("kind", EXPORTS)
def test_folders_of_the_user_are_never_removed(kind, photos, tmp_path):
    out = tmp_path / "out"
    export(kind, photos, out)
    (out / "to do").mkdir()
    with pytest.raises(DataError, match=r"not part of an export, such as 'to do'; move them"):
        export(kind, photos, out)
    assert (out / "to do").is_dir()


@pytest.mark.parametrize("kind", FOLDERS)
def test_an_export_of_the_first_version_is_replaced(kind, photos, tmp_path):
    out = tmp_path / "out"
    export(kind, photos, out)
    names = sorted(tree(out))
    (out / MARKER).write_text("\n".join(["Exported by InfoShot (tim-auto 1.0):", *names]))
    export(kind, photos[:1], out)
    assert sum(path.is_symlink() for path in out.rglob("*")) == 1


@pytest.mark.parametrize("kind", FOLDERS)
def test_other_files_are_never_replaced(kind, photos, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(
        DataError, match=r"out: contains 1 files that are not part of an export, such"
    ):
        export(kind, photos, out)
    (out / "notes.txt").rename(tmp_path / "notes.txt")
    export(kind, photos, out)  # an empty folder is accepted
    first = next(path for path in sorted(out.rglob("*")) if path.is_symlink())
    first.rename(out / "sorted by hand.jpg")
    with pytest.raises(DataError, match=r"such as 'sorted by hand\.jpg'; move them, or"):
        export(kind, photos, out)
    assert (out / "sorted by hand.jpg").is_symlink()


@pytest.mark.parametrize("kind", FOLDERS)
def test_impossible_folders_are_refused(kind, photos, tmp_path):
    with pytest.raises(DataError, match=r"photos: the export would replace the images themselves"):
        export(kind, photos, tmp_path / "photos")
    (tmp_path / "by link").symlink_to("photos")
    linked = dataclasses.replace(photos[0], file=tmp_path / "by link" / "a.jpg")
    with pytest.raises(DataError, match=r"photos: the export would replace the images themselves"):
        export(kind, [linked], tmp_path / "photos")
    with pytest.raises(DataError, match=r"a\.jpg: a file; an export needs a folder"):
        export(kind, photos, photos[0].file)
    with pytest.raises(DataError, match=r"out: cannot be written \(Not a directory\)"):
        export(kind, photos, photos[0].file / "out")
    photos[0].file.unlink()
    assert len(tree(tmp_path / "photos")) == 6


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("kill", [False, True], ids=["interrupted", "killed"])
def test_an_interrupted_export_leaves_nothing_incomplete(kind, kill, photos, tmp_path, monkeypatch):
    run = tmp_path / "run"
    link_to = Path.symlink_to

    def stopping(link, target):
        if sum(path.is_symlink() for path in run.rglob("*")) % 6 == 3:
            raise KeyboardInterrupt
        link_to(link, target)

    def stop():
        with monkeypatch.context() as patch:
            patch.setattr(Path, "symlink_to", stopping)
            if kill:  # a killed process removes nothing
                patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            with pytest.raises(KeyboardInterrupt), sole_writer(run):
                export(kind, photos, run / "out")

    run.mkdir()
    stop()
    assert not (run / "out").exists()
    assert len(listed(run)) == 2 + int(kill)  # with the lock and the record of the writer
    with sole_writer(run):
        export(kind, photos, run / "out")
    before = tree(run / "out")
    stop()
    assert tree(run / "out") == before
    with sole_writer(run):
        assert listed(run) == [".infoshot-writers", ".lock", "out"]


def refuse_renames(monkeypatch, refused):
    rename = Path.rename

    def refusing(path, target):
        if refused(path, target):
            raise OSError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refusing)


def test_old_export_is_restored_if_the_new_one_cannot_replace_it(photos, tmp_path, monkeypatch):
    out = tmp_path / "out"
    export("imagefolder", photos, out)
    (out / "cat" / ".hidden").write_text("mine")
    before = tree(out)
    refusals = [out / "dog"]

    def refused(path, target):
        return target in refusals and not refusals.remove(target)

    refuse_renames(monkeypatch, refused)
    with pytest.raises(DataError, match=r"out: cannot be written \(Permission denied\)"):
        export("imagefolder", photos[:3], out)
    assert tree(out) == before
    export("imagefolder", photos[:1], out)
    assert tree(out) == {"cat/.hidden": b"mine", "cat/a.jpg": photos[0].file.read_bytes()}


def test_an_export_that_was_killed_while_it_was_replaced_is_replaced(photos, tmp_path, monkeypatch):
    out = tmp_path / "out"
    export("imagefolder", photos, out)
    with monkeypatch.context() as patch:
        moved = []
        refuse_renames(patch, lambda path, _: len(moved) == 3 or moved.append(path))
        with pytest.raises(DataError):
            export("imagefolder", photos[:4], out)
    assert len(listed(out)) < 5  # a killed process does not move anything back
    export("imagefolder", photos[:1], out)
    assert tree(out) == {"cat/a.jpg": photos[0].file.read_bytes()}
