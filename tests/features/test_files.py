import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from infoshot import DataError, FeatureTable
from infoshot.core.atomic import check_writable, write_atomically
from infoshot.features import default_features_path, digest, read_features, write_features
from infoshot.features.four_bits import pack
from infoshot.images.splits import published_split

FEATURES = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, -1, -1])


def _table(**changes):
    parts = {"features": FEATURES, "labels": LABELS, "base_mean": FEATURES.mean(0)}
    return FeatureTable(**{**parts, **changes})


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_written_tables_are_read_back(tmp_path, dtype):
    path = tmp_path / "a.safetensors"
    table = _table(
        features=FEATURES.to(dtype),
        class_names=("a", "é", "c"),
        provenance={"backbone": "resnet18"},
    )
    write_features(path, table)
    back = read_features(path)
    assert torch.equal(back.features, table.features)
    assert torch.equal(back.labels, LABELS)
    assert torch.equal(back.base_mean, table.base_mean)
    assert back.class_names == ("a", "é", "c")
    assert back.provenance == {"backbone": "resnet18"}
    assert [name.name for name in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("keys", [("features", "labels", "base_mean"), ("f", "y", "base")])
def test_npz_is_read_with_both_sets_of_keys(tmp_path, keys):
    path = tmp_path / "a.npz"
    arrays = (FEATURES.numpy(), LABELS.numpy().astype(np.int32), FEATURES.mean(0).numpy())
    np.savez(path, **dict(zip(keys, arrays, strict=True)), class_names=np.array(["a", "b", "c"]))
    table = read_features(path)
    assert torch.equal(table.features, FEATURES)
    assert table.labels.dtype == torch.int64
    assert torch.equal(table.labels, LABELS)
    assert table.class_names == ("a", "b", "c")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.uint32])
def test_labels_of_any_integer_type_are_accepted(tmp_path, dtype):
    path = tmp_path / "a.safetensors"
    save_file({"features": FEATURES, "labels": LABELS.clamp(min=0).to(dtype)}, path)
    assert torch.equal(read_features(path).labels, LABELS.clamp(min=0))


def test_eight_bit_features_are_scaled_back(tmp_path):
    path = tmp_path / "a.safetensors"
    small = (FEATURES * 255).round().to(torch.uint8)
    scale = torch.arange(1, 7) / 255
    save_file({"features": small, "features_scale": scale, "labels": LABELS}, path)
    torch.testing.assert_close(read_features(path).features, small * scale.unsqueeze(-1))


def test_four_bit_features_are_the_nearest_of_sixteen_squares(tmp_path):
    path = tmp_path / "a.safetensors"
    z = torch.rand(6, 10, generator=torch.Generator().manual_seed(0)) * torch.arange(6).view(6, 1)
    packed, scale = pack(z)
    assert packed.shape == (6, 5)
    save_file({"features_4bit": packed, "features_scale": scale, "labels": LABELS}, path)
    found = read_features(path).features
    levels = (torch.arange(16) / 15).square() * z.amax(1).view(6, 1, 1)
    nearest = (levels.sqrt() - z.sqrt().unsqueeze(2)).abs().argmin(2, keepdim=True)
    expected = levels.expand(6, 10, 16).gather(2, nearest).squeeze(2)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found[0], torch.zeros(10))  # a row of zeros


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": FEATURES}, "holds features twice"),
        ({"features_scale": torch.ones(5)}, "need features_scale, a float for each row"),
        ({"features_4bit": torch.zeros(6, dtype=torch.uint8)}, r"must be uint8 \[N, D / 2\]"),
        ({"features_4bit": torch.zeros(6, 2)}, r"must be uint8 \[N, D / 2\]; got float32"),
        ({"features_4bit": torch.zeros(6, 0, dtype=torch.uint8)}, "N and D at least 1"),
        ({"features_scale": torch.full((6,), torch.nan)}, "features must be finite"),
    ],
)
def test_wrong_four_bit_features_are_named(tmp_path, change, message):
    path = tmp_path / "a.safetensors"
    packed = torch.full((6, 2), 17, dtype=torch.uint8)
    arrays = {"features_4bit": packed, "features_scale": torch.ones(6), "labels": LABELS}
    save_file({**arrays, **change}, path)
    with pytest.raises(DataError, match=message):
        read_features(path)


def test_embedded_features_agree_with_their_provenance(embedded):
    assert embedded.features.shape == (12_000, 512)
    assert embedded.labels.bincount().tolist() == [600] * 20
    assert embedded.base_mean.shape == (512,)
    assert embedded.provenance["dataset"] == "mini-imagenet"
    assert embedded.provenance["split"] == "test"
    assert list(embedded.class_names) == sorted(
        name for name, split in published_split("mini-imagenet").items() if split == "test"
    )
    assert default_features_path().stat().st_size < 7_000_000


def _write(path, **arrays):
    save_file({"features": FEATURES, "labels": LABELS, **arrays}, path)


def _truncate(path, n_bytes):
    path.write_bytes(path.read_bytes()[:-n_bytes])


def _npz(path, save=np.savez, **arrays):
    with path.open("wb") as file:
        save(file, **{"features": FEATURES.numpy(), "labels": LABELS.numpy(), **arrays})


def _scramble(path):
    content = bytearray(path.read_bytes())
    content[80:120] = b"\xff" * 40
    path.write_bytes(content)


def _names(path, text):
    save_file({"features": FEATURES, "labels": LABELS}, path, metadata={"class_names": text})


BAD_FILES = {
    "missing": (lambda path: None, r"there is no such file"),
    "empty": (lambda path: path.touch(), r"the file is empty; a feature file is safetensors or .npz"),
    "truncated safetensors": (lambda path: (_write(path), _truncate(path, 10)), r"truncated, damaged or of another format"),
    "truncated npz": (lambda path: (_npz(path), _truncate(path, 100)), r"truncated, damaged or pickled"),
    "text": (lambda path: path.write_text("a,b\n1,2\n" * 50), r"truncated, damaged or of another format"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps([1, 2, 3] * 50)), r"of another format"),
    "zip of something else": (lambda path: zipfile.ZipFile(path, "w").writestr("a.txt", "hello"), r"the key 'features' is missing \(found nothing\)"),
    "no labels": (lambda path: save_file({"features": FEATURES}, path), r"the key 'labels' is missing \(found features\)"),
    "no features": (lambda path: save_file({"labels": LABELS}, path), r"the key 'features' is missing"),
    "lengths differ": (lambda path: _write(path, labels=LABELS[:4]), r"features and labels must have the same length; got 6 and 4"),
    "flat features": (lambda path: _write(path, features=FEATURES[0]), r"features must be \[N, D\].*got float32 \[4\]"),
    "no rows": (lambda path: _write(path, features=FEATURES[:0], labels=LABELS[:0]), r"N and D at least 1; got float32 \[0, 4\]"),
    "whole-number features": (lambda path: _write(path, features=torch.ones(6, 4, dtype=torch.int32)), r"features must be float16, float32 or float64 \[N, D\] \(convert integers with \.astype\('float32'\)\); got int32 \[6, 4\]"),
    "float labels": (lambda path: _write(path, labels=LABELS.float()), r"labels must be whole numbers \[N\]; got float32 \[6\]"),
    "labels below -1": (lambda path: _write(path, labels=LABELS - 1), r"labels must be at least -1; got -2"),
    "NaN": (lambda path: _write(path, features=FEATURES / 0 * 0), r"features must be finite; got nan at index \(0, 0\)"),
    "base mean of another width": (lambda path: _write(path, base_mean=torch.ones(3)), r"base_mean must be \[4\] like the features; got float32 \[3\]"),
    "names that are no JSON": (lambda path: _names(path, "a,b"), r"class_names must be a JSON list of names; got 'a,b'"),
    "text for labels": (lambda path: _npz(path, labels=np.array(list("abcdef"))), r"labels must hold numbers \(names of classes go into class_names\); got <U1"),
    "damaged compressed npz": (lambda path: (_npz(path, np.savez_compressed), _scramble(path)), r"truncated, damaged or pickled"),
    "a folder": (lambda path: path.mkdir(), r"a folder, not a feature file"),
    "NaN in the base mean": (lambda path: _write(path, base_mean=FEATURES[0] / 0 * 0), r"base_mean must be finite"),
    "flat 8-bit features": (lambda path: _write(path, features=torch.ones(6, dtype=torch.uint8), features_scale=torch.ones(6)), r"features must be \[N, D\]"),
    "names that repeat": (lambda path: _names(path, '["a", "b", "a"]'), r"class_names must differ from each other"),
    "too few names": (lambda path: _names(path, '["a"]'), r"a name for each label up to 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_get_one_clear_sentence(case, tmp_path):
    path = tmp_path / "features.bin"
    make, message = BAD_FILES[case]
    make(path)
    with pytest.raises(DataError, match=message) as caught:
        read_features(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_npz_with_a_pickle_inside_is_not_executed(tmp_path):
    marker = tmp_path / "executed"

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    path = tmp_path / "a.npz"
    np.savez(path, features=np.array([Malicious()], dtype=object), labels=LABELS.numpy())
    with pytest.raises(DataError, match="allow_pickle"):
        read_features(path)
    assert not marker.exists()


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_atomically(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(DataError, match=r"a.json: cannot be written \(No space left on device\)"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_check_before_writing_changes_nothing(tmp_path):
    write_atomically(tmp_path / "a", "old")
    check_writable(tmp_path / "a")
    check_writable(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    for target, reason in (("no/x", "No such file or directory"), (".", "Is a directory")):
        with pytest.raises(DataError, match=rf"cannot be written \({reason}\)"):
            check_writable(tmp_path / target)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_write_into_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\)"):
        write_features(tmp_path / "no" / "a.safetensors", _table())


def test_digest_depends_on_the_content_only(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
