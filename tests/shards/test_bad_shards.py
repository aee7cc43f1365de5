"""One sentence names a file that cannot be used, and finished results are kept."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from infoshot import DataError, InvalidArgumentError
from infoshot.core.types import FeatureTable
from infoshot.features import write_features
from infoshot.shards import find_shards, solve_shards
from infoshot.shards.shard_reader import open_shard
from tests.labelling.commands import run
from tests.shards.made_shards import make_shards

SETTINGS = {"n_steps": 3}
OTHER_SETTINGS = {"n_steps": 3, "temperature": 3.0}


@pytest.fixture
def good(tmp_path):
    return make_shards(tmp_path)


def add(good, name, rows):
    path = good.queries / name
    if name.endswith(".npy"):
        np.save(path, rows)
    else:
        save_file({"features": rows}, path)
    return path


def cut(path):
    path.write_bytes(path.read_bytes()[:-10])


def with_value(value, row):
    rows = torch.ones(9, 24)
    rows[row] = value
    return rows


def break_header(good):
    (good.queries / "x.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{not json....}")


CASES = {
    "cut safetensors": (
        lambda good: cut(add(good, "x.safetensors", torch.ones(9, 24))),
        "x.safetensors: truncated, damaged or not a shard (the tensors have 864 bytes by the "
        "header, the file has 854); a shard is",
    ),
    "cut npy": (
        lambda good: cut(add(good, "x.npy", np.ones((9, 24), np.float32))),
        "x.npy: truncated, damaged or not a shard (the array has 864 bytes by its header",
    ),
    "no header": (break_header, "x.safetensors: truncated, damaged or not a shard"),
    "no bytes": (
        lambda good: (good.queries / "x.npy").write_bytes(b""),
        "x.npy: truncated, damaged or not a shard",
    ),
    "other tensor": (
        lambda good: save_file({"f": torch.ones(2, 24)}, good.queries / "x.safetensors"),
        "x.safetensors: truncated, damaged or not a shard (no tensor 'features', found f)",
    ),
    "other width": (
        lambda good: add(good, "x.npy", np.ones((9, 23), np.float32)),
        "x.npy: has 23 features per row, but part0.safetensors has 24.",
    ),
    "float64": (
        lambda good: add(good, "x.npy", np.ones((9, 24))),
        "x.npy: features are float64 [9, 24]; convert them, such as with .astype('float32'); a",
    ),
    "whole numbers": (
        lambda good: add(good, "x.safetensors", torch.ones(9, 24, dtype=torch.int32)),
        "x.safetensors: features are I32 [9, 24]; convert them, such as with .astype('float32'); a",
    ),
    "one axis": (
        lambda good: add(good, "x.npy", np.ones(9, np.int64)),
        "x.npy: features are int64 [9]; a shard is safetensors with features",
    ),
    "pickled": (
        lambda good: np.save(good.queries / "x.npy", np.array([{}], object), allow_pickle=True),
        "x.npy: truncated, damaged or not a shard (Object arrays cannot be loaded",
    ),
    "columns first": (
        lambda good: np.save(good.queries / "x.npy", np.ones((24, 9), np.float32).T),
        "columns first",
    ),
    "NaN": (
        lambda good: add(good, "x.safetensors", with_value(torch.nan, 4)),
        "x.safetensors: row 4 has values that are not finite.",
    ),
    "infinite": (
        lambda good: add(good, "x.safetensors", with_value(torch.inf, 8)),
        "x.safetensors: row 8 has values that are not finite.",
    ),
    "all zero": (
        lambda good: add(good, "x.safetensors", with_value(0.0, 2)),
        "x.safetensors: row 2 is all zero, which has no direction.",
    ),
    "same name": (
        lambda good: add(good, "part0.npy", np.ones((9, 24), np.float32)),
        "has the same name; both would write the same file of labels.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_shards_are_named(good, tmp_path, case):
    spoil, sentence = CASES[case]
    spoil(good)
    with pytest.raises(DataError) as error:
        solve_shards(good.support, good.queries, tmp_path / "out", settings=SETTINGS)
    assert sentence in str(error.value)
    assert str(good.queries) in str(error.value)
    assert not (tmp_path / "out" / "run.json").exists()


def test_byte_order_is_checked(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12, dtype=">f4").reshape(3, 4))
    with pytest.raises(DataError, match=r"x.npy: features are >f4"):
        open_shard(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.arange(12, dtype="<f2").reshape(3, 4))
    assert open_shard(tmp_path / "x.npy").rows()[2:].tolist()[0] == [8, 9, 10, 11]


def test_missing_and_empty_folders_are_named(good, tmp_path):
    with pytest.raises(DataError, match="there is no such folder of shards"):
        find_shards(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the folder has no shards"):
        find_shards(tmp_path / "empty")
    np.save(tmp_path / "empty" / "x.npy", np.ones((0, 24), np.float32))
    with pytest.raises(DataError, match="all shards are empty"):
        find_shards(tmp_path / "empty")


@pytest.mark.parametrize(
    ("labels", "names", "sentence"),
    [
        ([0, 0, 2], (), "s.safetensors: class '1' has no labelled row."),
        ([0, 1, 1], ("cat", "dog", "eel", "fox"), "class 'eel' (and 1 more classes) has no"),
        ([0, 0, 0], (), "at least two classes"),
        ([-1, -1, -1], (), "at least two classes"),
    ],
)
def test_classes_without_rows_are_named(good, tmp_path, labels, names, sentence):
    table = FeatureTable(torch.ones(3, 24), torch.tensor(labels), None, names)
    write_features(tmp_path / "s.safetensors", table)
    with pytest.raises(DataError) as error:
        solve_shards(tmp_path / "s.safetensors", good.queries, tmp_path / "out")
    assert sentence in str(error.value)


def test_support_and_shards_must_have_the_same_width(good, tmp_path):
    write_features(
        tmp_path / "s.safetensors", FeatureTable(torch.ones(2, 5), torch.arange(2), None)
    )
    with pytest.raises(DataError, match=r"has 24 features per row, but s.safetensors has 5"):
        solve_shards(tmp_path / "s.safetensors", good.queries, tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "prototype"}, "method must be one of tim-adm, tim-auto for shards; got 'prot"),
        ({"method": "tim-gd"}, "method must be one of tim-adm, tim-auto for shards; got 'tim-gd'"),
        ({"method": "tim-adn"}, "Unknown method 'tim-adn'. Did you mean 'tim-adm'?"),
        ({"settings": {"linearized": False}}, "linearized=true and another form than gram"),
        ({"settings": {"form": "gram"}}, "linearized=true and another form than gram"),
        ({"settings": {"steps": 3}}, "Unknown setting of tim-adm 'steps'"),
        (
            {"method": "tim-auto", "settings": {"n_neighbours": 3}},
            "smoothing and n_neighbours cannot be set for shards",
        ),
        ({"tolerance": -1.0}, "tolerance must be"),
        (
            {"method": "tim-auto", "tolerance": 0.1},
            "tolerance must be left out for the method 'tim-auto', which does not use one.",
        ),
        (
            {"method": "tim-auto", "prior": {"a": 1.0}},
            "prior must be left out for the method 'tim-auto', which does not use one.",
        ),
        ({"prior": {"a": 1.0}}, "prior must name every class once; missing: b, c, d, e, f and 1"),
        ({"prior": dict.fromkeys("abcdefgh", 1.0)}, "'h' is not one"),
        ({"device": "abacus"}, "device 'abacus' is not available here"),
    ],
)
def test_bad_arguments_are_named(good, tmp_path, arguments, sentence):
    with pytest.raises(InvalidArgumentError) as error:
        solve_shards(good.support, good.queries, tmp_path / "out", **arguments)
    assert sentence in str(error.value)
    assert not (tmp_path / "out").exists()


def test_another_solve_is_replaced_only_by_force(good, tmp_path):
    out = tmp_path / "out"
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    with pytest.raises(DataError, match=r"another solve \(the settings differ\); pass force=True"):
        solve_shards(good.support, good.queries, out, settings=OTHER_SETTINGS)
    (good.queries / "part3.npy").touch()
    with pytest.raises(DataError, match=r"another solve \(shards have changed: part3.npy\)"):
        solve_shards(good.support, good.queries, out, settings=SETTINGS)
    before = load_file(out / "labels" / "part0.safetensors")["confidence"]
    solve_shards(good.support, good.queries, out, settings=OTHER_SETTINGS, force=True)
    assert not torch.equal(load_file(out / "labels" / "part0.safetensors")["confidence"], before)


def test_finished_labels_are_kept_when_the_disk_is_full(good, tmp_path, monkeypatch):
    """Writing fails after two shards; the next call writes only the others."""
    from infoshot.shards import output_folder

    write, n_written = output_folder.write_tensor_file, 0

    def full(path, *arguments, **options):
        nonlocal n_written
        n_written += path.parent.name == "labels"
        if n_written > 2:
            raise DataError(f"{path}: cannot be written (No space left on device).")
        write(path, *arguments, **options)

    out = tmp_path / "out"
    monkeypatch.setattr(output_folder, "write_tensor_file", full)
    with pytest.raises(DataError, match=r"part2.safetensors: cannot be written \(No space left"):
        solve_shards(good.support, good.queries, out, settings=SETTINGS)
    finished = {path: path.stat().st_mtime_ns for path in (out / "labels").iterdir()}
    assert sorted(path.name for path in finished) == ["part0.safetensors", "part1.safetensors"]
    monkeypatch.setattr(output_folder, "write_tensor_file", write)
    summary = solve_shards(good.support, good.queries, out, settings=SETTINGS)
    assert summary.seconds_per_step is None  # no iteration was taken again
    assert len(list((out / "labels").iterdir())) == 5
    assert all(path.stat().st_mtime_ns == time for path, time in finished.items())


def test_damaged_state_is_named(good, tmp_path):
    out = tmp_path / "out"
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    whole = (out / "state.safetensors").read_bytes()
    (out / "state.safetensors").write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"state.safetensors: damaged, or not a progress file"):
        solve_shards(good.support, good.queries, out, settings=SETTINGS)
    solve_shards(good.support, good.queries, out, settings=SETTINGS, force=True)
    assert (out / "state.safetensors").read_bytes() == whole


def test_a_shard_that_changes_during_the_solve_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    shard = open_shard(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    with pytest.raises(DataError, match=r"x.npy: the file has changed since the solve began"):
        shard.rows()
    (tmp_path / "x.npy").unlink()
    with pytest.raises(DataError, match=r"x.npy: cannot be read \(No such file"):
        shard.rows()


def test_damaged_labels_are_made_again(good, tmp_path):
    out = tmp_path / "out"
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    path = out / "labels" / "part0.safetensors"
    whole = path.read_bytes()
    for damage in (b"", whole[:100], b"x" * 50):
        path.write_bytes(damage)
        solve_shards(good.support, good.queries, out, settings=SETTINGS)
        assert path.read_bytes() == whole


def test_command_prints_one_sentence(good, tmp_path):
    arguments = ("--support", good.support, "--queries", good.queries, "--out", tmp_path / "out")
    for more, sentence in (
        (("--prior", "a=1"), "prior must name every class once; missing: b, c, d, e, f and 1"),
        (("--prior", "shares.json"), "shares.json: there is no such file"),
        (("--method", "tim-auto", "--tolerance", "0.1"), "tolerance must be left out"),
        (("--method", "tim-auto", "--prior", "a=1"), "prior must be left out"),
        (("--method", "tim-adm,tim-auto"), "Unknown method 'tim-adm,tim-auto'"),
        (("--set", "n_steps=0"), "n_steps"),
        (("--tolerance", "-1"), "tolerance"),
    ):
        result = run("solve-shards", *arguments, *more)
        assert result.exit_code == 2, result.output
        assert sentence in result.stderr
        assert "Traceback" not in result.stderr


def test_a_folder_of_another_command_is_not_changed(good, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text("{}")
    for force in (False, True):
        with pytest.raises(DataError, match=r"run.json: belongs to another command"):
            solve_shards(good.support, good.queries, out, settings=SETTINGS, force=force)
    assert (out / "run.json").read_text() == "{}"


def test_labels_of_removed_shards_are_removed(good, tmp_path):
    out = tmp_path / "out"
    add(good, "extra.safetensors", torch.ones(9, 24))
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    (good.queries / "extra.safetensors").unlink()
    solve_shards(good.support, good.queries, out, settings=SETTINGS, force=True)
    assert len(list((out / "labels").iterdir())) == 5


def test_files_of_the_user_are_never_removed(good, tmp_path):
    out = tmp_path / "out"
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    own = [out / "labels" / "mine.safetensors", out / "labels" / "notes.txt"]
    save_file({"labels": torch.ones(3)}, own[0])
    own[1].write_text("mine")
    before = [path.read_bytes() for path in own]
    solve_shards(good.support, good.queries, out, settings=OTHER_SETTINGS, force=True)
    assert [path.read_bytes() for path in own] == before
    other = tmp_path / "other"
    other.mkdir()
    save_file({"weights": torch.ones(3)}, other / "state.safetensors")
    with pytest.raises(DataError, match=r"state.safetensors: damaged, or not a progress file"):
        solve_shards(good.support, good.queries, other, settings=SETTINGS, force=True)
    assert (other / "state.safetensors").exists()


def test_results_are_not_written_among_the_shards(good):
    with pytest.raises(DataError, match="out and queries must be different folders"):
        solve_shards(good.support, good.queries, good.queries / ".." / "queries", settings=SETTINGS)
    assert len(list(good.queries.iterdir())) == 5


def test_labels_of_another_solve_are_replaced(good, tmp_path):
    solve_shards(good.support, good.queries, tmp_path / "out", settings=SETTINGS)
    solve_shards(good.support, good.queries, tmp_path / "other", settings=OTHER_SETTINGS)
    own, foreign = (tmp_path / name / "labels" / "part0.safetensors" for name in ("out", "other"))
    before = own.read_bytes()
    own.write_bytes(foreign.read_bytes())
    solve_shards(good.support, good.queries, tmp_path / "out", settings=SETTINGS)
    assert own.read_bytes() == before
