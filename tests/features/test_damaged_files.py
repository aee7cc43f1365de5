"""Feature files with any bytes in them are read, or refused in one sentence before they cost much."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save

from infoshot import DataError, FeatureTable, bench, label_table, reproduce, solve_shards
from infoshot.features import npz_file, read_features, write_features
from tests.shards.made_shards import make_shards

N, D = 6, 4
FEATURES = torch.rand(N, D, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, -1, -1])
ENTRY = {"dtype": "F32", "shape": [N, D], "data_offsets": [48, 144]}


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def with_header(text, version=1):
    """The features as .npy data with another header."""
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    data = FEATURES.numpy().tobytes()
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin1") + data


def described(descr="'<f4'", order="False", shape=f"({N}, {D})"):
    return with_header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")


def npz(features=None, method=zipfile.ZIP_STORED, **others):
    """An archive with these members; the labels are added."""
    file = io.BytesIO()
    members = {"features": npy(FEATURES.numpy()) if features is None else features}
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in {**members, "labels": npy(LABELS.numpy()), **others}.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def patched(offset, content, *, in_local=None):
    """An archive with other bytes in the first entry of its directory (and before the data)."""
    archive = bytearray(npz())
    start = archive.index(b"PK\x01\x02") + offset
    archive[start : start + len(content)] = content
    if in_local is not None:
        archive[in_local : in_local + len(content)] = content
    return bytes(archive)


def twice():
    file = io.BytesIO(npz())
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(file, "a") as archive:
        archive.writestr("features.npy", npy(FEATURES.numpy() + 1))
    return file.getvalue()


def tensors(header=None, more=b"", **changes):
    """A safetensors file: labels, then features, with changes to the entry of the features."""
    entries = {"labels": {"dtype": "I64", "shape": [N], "data_offsets": [0, 48]}}
    entries["features"] = {**ENTRY, **changes}
    text = json.dumps(entries if header is None else {**entries, **header}).encode()
    content = LABELS.numpy().tobytes() + FEATURES.numpy().tobytes() + more
    return len(text).to_bytes(8, "little") + text + content


def raw(text):
    return len(text).to_bytes(8, "little") + text + bytes(144)


def named(text):
    return save({"features": FEATURES, "labels": LABELS}, metadata={"class_names": text})


CASES = {
    "header of open brackets": (lambda: npz(with_header("(" * 3000)), "damaged"),
    "header of an open string": (lambda: npz(with_header("{'descr': '''")), "damaged"),
    "header that never closes": (lambda: npz(described(shape="(6, 4")), "damaged"),
    "header of bytes": (lambda: npz(with_header("\x00\xff" * 40)), "damaged"),
    "header of calls": (lambda: npz(with_header("__import__('os').abort()")), "damaged"),
    "header of another version": (lambda: npz(with_header("{}", version=3)), r"version \(3, 0\)"),
    "header that is long": (lambda: npz(with_header(" " * 20_000)), "damaged"),
    "header with an invalid escape": (lambda: npz(described(descr=r"'\d'")), "damaged"),
    "shape beyond all numbers": (lambda: npz(described(shape="(99999999999999999999, 4)")), "not possible"),
    "shape beyond the file": (lambda: npz(described(shape="(100000000000, 4)")), "bytes by its shape"),
    "negative shape": (lambda: npz(described(shape="(-6, -4)")), "not possible"),
    "shape of many axes": (lambda: npz(described(shape=f"({'1, ' * 70})")), "damaged"),
    "dtype of pairs": (lambda: npz(described(descr="[('a', '<f4'), ('b', '|O')]")), "damaged"),
    "dtype of huge items": (lambda: npz(described(descr="'|V999999999'")), "bytes by its shape"),
    "array that is shorter": (lambda: npz(npy(FEATURES.numpy())[:-4]), "bytes by its shape"),
    "objects": (lambda: npz(npy(np.array([{}], object))), "allow_pickle"),
    "dates": (lambda: npz(npy(np.zeros((N, D), "M8[ns]"))), "float32 or float64; got datetime64"),
    "encrypted": (lambda: patched(8, b"\x01", in_local=6), "features is encrypted"),
    "unknown compression": (lambda: patched(10, b"\x63", in_local=8), "method that NumPy does not use"),
    "bzip2": (lambda: npz(method=zipfile.ZIP_BZIP2), "method that NumPy does not use"),
    "declared size": (lambda: patched(24, struct.pack("<I", 2**31), in_local=22), "damaged"),
    "compressed size": (lambda: patched(20, struct.pack("<I", 2**31), in_local=18), "larger than the file"),
    "place outside": (lambda: patched(42, struct.pack("<I", 2**31)), "features.bin: "),
    "checksum": (lambda: patched(16, b"\0\0\0\0"), "Bad CRC-32"),
    "two members of one name": (twice, "the array 'features' occurs twice"),
    "two names of one array": (lambda: npz(f=npy(FEATURES.numpy())), "features occurs twice"),
    "names of several axes": (lambda: npz(class_names=npy(np.array([["a", "b", "c"]]))), "not a list of names"),
    "names of floats": (lambda: npz(class_names=npy(np.ones(3))), "not a list of names"),
    "names that are no text": (lambda: npz(class_names=npy(np.array([b"\xff", b"a", b"b"]))), "damaged"),
    "header longer than the file": (lambda: b"\xff" * 100, "longer than the file"),
    "header that is a list": (lambda: raw(b"[1, 2]"), "not a JSON object"),
    "header that is nested": (lambda: raw(b"[" * 100_000), "not JSON"),
    "header with bytes": (lambda: raw(b'{"\xff": 1}'), "not JSON"),
    "many entries": (lambda: raw(b"{" + b'"a":{},' * 200_000 + b'"b":{}}'), "not JSON of this format"),
    "entry that is a number": (lambda: tensors({"z": 7}), "lacks dtype, shape or data_offsets"),
    "entry without a shape": (lambda: tensors({"z": {"dtype": "F32"}}), "lacks dtype"),
    "two entries of one name": (lambda: raw(b'{"features": {}, "features": {}}'), "occurs twice"),
    "shifted offsets": (lambda: tensors(data_offsets=[52, 148], more=bytes(4)), r"data_offsets \[52, 148\]"),
    "offsets with a hole": (lambda: tensors(data_offsets=[56, 152], more=bytes(8)), "ends at 48"),
    "offsets that overlap": (lambda: tensors(data_offsets=[0, 96]), "ends at 48"),
    "negative offsets": (lambda: tensors(data_offsets=[-48, 48]), "damaged"),
    "offsets that are swapped": (lambda: tensors({"labels": {"dtype": "I64", "shape": [N], "data_offsets": [96, 144]}}, data_offsets=[0, 96]), "ends at 0"),
    "bytes at the end": (lambda: tensors(more=b"x"), "the file has 145"),
    "shape beyond the offsets": (lambda: tensors(shape=[2**32, 2**32]), "in 96 bytes"),
    "shape of fractions": (lambda: tensors(shape=[6.0, 4]), "damaged"),
    "shape of no rows": (lambda: tensors(shape=[0, 2**62], data_offsets=[48, 48]), "damaged"),
    "8-bit floats": (lambda: tensors(dtype="F8_E4M3", shape=[N, 4 * D]), r"features must be float16, float32 or float64; got F8_E4M3 \[6, 16\]"),
    "whole numbers": (lambda: tensors(dtype="I32", shape=[N, D]), r"float64 \[N, D\] \(convert integers with \.astype\('float32'\)\); got int32 \[6, 4\]"),
    "truth values": (lambda: tensors(dtype="BOOL", shape=[N, 4 * D]), r"got bool \[6, 16\]"),
    "metadata of numbers": (lambda: tensors({"__metadata__": {"class_names": 3}}), "metadata"),
    "labels beyond 63 bits": (lambda: save({"features": FEATURES, "labels": torch.full((N,), -1).view(torch.uint64)}), "labels must be below"),
    "nested names": (lambda: named('[["a"], ["b"], ["c"]]'), "class_names must be a JSON list of names"),
    "names of numbers": (lambda: named("[1, 2, 3]"), "class_names must be a JSON list of names"),
    "deep names": (lambda: named("[" * 100_000), "class_names must be a JSON list of names"),
    "half a surrogate pair": (lambda: named('["a", "b", "\\ud800"]'), r"the class name '\\ud800' contains the character"),
    "long names": (lambda: named(json.dumps(["a", "b", "c" * 2000])), "at most 1000 characters"),
    "names by number": (lambda: named('{"0": "a"}'), "class_names must be a JSON list of names"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_damaged_files_are_refused(case, tmp_path):
    make, message = CASES[case]
    path = tmp_path / "features.bin"
    path.write_bytes(make())
    with pytest.raises(DataError, match=message) as caught:
        read_features(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    assert len(text) < 800


def test_the_files_that_are_damaged_above_are_sound_otherwise(tmp_path):
    for content in (npz(), npz(described()), npz(method=zipfile.ZIP_DEFLATED), tensors()):
        (tmp_path / "a").write_bytes(content)
        assert torch.equal(read_features(tmp_path / "a").features, FEATURES)
    (tmp_path / "a").write_bytes(named('["a", "é", "c"]'))
    assert read_features(tmp_path / "a").class_names == ("a", "é", "c")


def test_names_that_cannot_be_a_path_are_refused(tmp_path):
    with pytest.raises(DataError, match="embedded null byte"):
        read_features(tmp_path / "a\0b")


def test_arrays_that_grow_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npz_file, "_LARGE", 2**16)
    zeros = np.zeros((10_000, 4), np.float32)
    np.savez_compressed(tmp_path / "a.npz", features=zeros, labels=np.zeros(10_000, np.int64))
    with pytest.raises(DataError, match=r"features.npy is compressed [\d,]+ times; numpy.savez"):
        read_features(tmp_path / "a.npz")


def test_arrays_larger_than_the_memory_are_refused(tmp_path, monkeypatch):
    for name in ("features.npz_file", "features.files"):
        monkeypatch.setattr(f"infoshot.{name}.total_memory", lambda: 50)
    for content in (npz(), tensors()):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(DataError, match="larger than the memory"):
            read_features(tmp_path / "a")


def test_equal_labels_compress_well_and_are_read(tmp_path):
    labels = np.where(np.arange(100_000) < 2, np.arange(100_000), -1)
    features = np.random.default_rng(0).normal(size=(100_000, 2)).astype(np.float16)
    np.savez_compressed(tmp_path / "a.npz", features=features, labels=labels)
    assert (read_features(tmp_path / "a.npz").labels < 0).sum() == 99_998


def test_other_arrays_of_an_archive_are_not_read(tmp_path):
    content = npz(notes=npy(np.array([{}], object)), broken=b"x", class_names=npy(np.arange(3)))
    (tmp_path / "a").write_bytes(content)
    assert read_features(tmp_path / "a").class_names == ("0", "1", "2")


def test_names_that_could_not_be_read_again_are_not_written(tmp_path):
    table = FeatureTable(FEATURES, LABELS, None, ("a", "b", "\ud800"))
    with pytest.raises(DataError, match="contains the character"):
        write_features(tmp_path / "a.safetensors", table)


@pytest.fixture
def far_labels(tmp_path):
    """Seven classes of 21 rows; the last has a number around four thousand million."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(7).repeat_interleave(21)
    features = torch.randn(7, 24, generator=generator)[labels]
    features += 0.1 * torch.randn(len(labels), 24, generator=generator)
    labels[labels == 6] = 2**32 - 7
    labels[::3] = -1
    write_features(tmp_path / "far.safetensors", FeatureTable(features, labels))
    return tmp_path


def test_the_highest_label_does_not_determine_the_cost(far_labels):
    """With one array entry per possible class, these calls took 8.6 GB and more than 40 s."""
    path = far_labels / "far.safetensors"
    assert int(label_table(path, method="prototype").labels.max()) == 2**32 - 7
    rows = bench(path, "prototype", tasks=2, shots=1, queries=2, progress=False).rows
    assert rows[0].tasks == 2
    with pytest.raises(DataError, match=r"'6' \(and 4294967282 more classes\) has no labelled row"):
        solve_shards(path, make_shards(far_labels).queries, far_labels / "out")
    with pytest.raises(DataError, match=r"tasks of the paper need 16 rows of every class; '0' has"):
        reproduce(far_labels / "report", features=path, only="table1", tasks=1)
