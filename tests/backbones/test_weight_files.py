"""PyTorch's files of weights are read as data, in both formats; everything else is refused."""

import collections
import io
import json
import pickle
import struct
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch

from infoshot import DataError, InfoshotError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import import_weights, load_checkpoint, save_checkpoint
from infoshot.backbones.weight_files import read_weights
from infoshot.core.memory import watch_peak

FORMATS = {"zip": True, "before 1.6": False}


def _weights():
    base = torch.arange(24, dtype=torch.float32)
    return {
        "plain": torch.rand(3, 4),
        "turned": torch.rand(3, 4).t(),
        "part of another": base.view(4, 6)[1:3, 2:5],
        "whole of it": base,
        "parameter": torch.nn.Parameter(torch.rand(2)),
        "half": torch.rand(3).half(),
        "bfloat16": torch.rand(3).bfloat16(),
        "number": torch.tensor(7),
        "truth": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "expanded": torch.rand(1).expand(5),
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_tensors_are_those_that_pytorch_saved(kind, tmp_path):
    weights = _weights()
    content = {"state_dict": weights, "epoch": 3, "best": np.float64(0.5), "args": ["a", None]}
    path = tmp_path / "a.pth"
    torch.save(content, path, _use_new_zipfile_serialization=FORMATS[kind])
    found = read_weights(path)
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value.detach())


@pytest.mark.parametrize("kind", FORMATS)
def test_state_dict_of_a_network_is_read(kind, tmp_path):
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    torch.save(network.state_dict(), tmp_path / "a", _use_new_zipfile_serialization=FORMATS[kind])
    found = read_weights(tmp_path / "a")
    assert all(torch.equal(found[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize("kind", FORMATS)
def test_random_changes_give_weights_or_one_error(kind, tmp_path):
    stream, path = io.BytesIO(), tmp_path / "a.pth"
    torch.save(_weights(), stream, _use_new_zipfile_serialization=FORMATS[kind])
    whole, random = stream.getvalue(), np.random.default_rng(0)
    for case in range(200):
        content = bytearray(whole)
        for place in random.integers(0, len(content), 1 + int(random.integers(5))):
            content[place] = random.integers(256)
        path.write_bytes(
            content[: int(random.integers(len(content)))] if case % 4 == 0 else content
        )
        with suppress(DataError):
            read_weights(path)


def _archive(path, program, storages=()):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/version", b"3\n")
        archive.writestr("a/data.pkl", program)
        for number, content in enumerate(storages):
            archive.writestr(f"a/data/{number}", content)


def _text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _storage(n_values, key="0", kind="FloatStorage"):
    number = b"J" + struct.pack("<i", n_values)
    name = b"ctorch\n" + kind.encode() + b"\n"
    return b"(" + _text("storage") + name + _text(key) + _text("cpu") + number + b"tQ"


def _tensor(storage, offset=b"K\x00", size=b"K\x04\x85", stride=b"K\x01\x85"):
    name = b"ctorch._utils\n_rebuild_tensor_v2\n"
    return name + b"(" + storage + offset + size + stride + b"\x89}tR"


def _named(value):
    return b"\x80\x02}" + _text("w") + value + b"s."


CRAFTED = {
    "much memory": _named(b"c__builtin__\nbytearray\nJ\x00\x00\x00\x30\x85R"),
    "slow encoding": _named(b"c_codecs\nencode\n" + _text("ab") + _text("punycode") + b"\x86R"),
    "code": _named(b"cos\nmkdir\n" + _text("executed") + b"\x85R"),
    "deep key": b"\x80\x02})" + b"\x85" * 100_000 + b"Ns.",
    "beyond its storage": _named(_tensor(_storage(4), offset=b"K\x01")),
    "absurd shape": _named(_tensor(_storage(4), size=b"J\xff\xff\xff\x7f\x85")),
    "negative stride": _named(_tensor(_storage(4), stride=b"J\xff\xff\xff\xff\x85")),
    "negative size": _named(_tensor(_storage(-4))),
    "storage beyond the file": _named(_tensor(_storage(2**30))),
    "storage shorter than said": _named(_tensor(_storage(8))),
    "storage that is missing": _named(_tensor(_storage(4, key="7"))),
    "storage of another type": _named(_tensor(_storage(4, kind="Tensor"))),
    "no storage": _named(_tensor(b"K\x01")),
    "not tensors": _named(b"K\x01"),
    "not a dict": b"\x80\x02]."
}  # fmt: skip


@pytest.mark.parametrize("case", CRAFTED)
def test_crafted_files_are_refused_and_take_no_memory(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.pth"
    _archive(path, CRAFTED[case], [bytes(16)])
    peak = watch_peak()
    with pytest.raises(DataError, match=r"a\.pth: (truncated, or not|must hold)") as caught:
        import_weights(path, "conv4")
    assert not peak() > 100e6
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "executed").exists()


def test_compressed_members_are_not_expanded(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(100_000_000))
    peak = watch_peak()
    with pytest.raises(DataError, match=r"the member 'data\.pkl' is compressed"):
        read_weights(tmp_path / "a.pth")
    assert not peak() > 50e6


WRONG = {
    "nested": "[" * 100_000,
    "a list": "[]",
    "backbone is a list": {"backbone": []},
    "digest is a number": {"weights_sha256": 5},
    "digest is a path": {"weights_sha256": "../../../../../etc"},
    "names are numbers": {"class_names": [1]},
    "names are missing": {"class_names": None},
    "config is a list": {"config": [1]},
    "training is a text": {"training": "x"},
    "training has no digest": {"training": {"epochs": []}},
    "backbone of Python itself": {"backbone": "os:getcwd"},
    "unknown backbone": {"backbone": "conv44"},
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_descriptions_give_one_error(case, tmp_path):
    save_checkpoint(tmp_path, "conv4", make_backbone("conv4").state_dict())
    path = tmp_path / "checkpoint.json"
    change = WRONG[case]
    text = change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change)
    path.write_text(text)
    expected = InfoshotError if "backbone" in case else DataError
    with pytest.raises(expected) as caught:
        load_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_ordered_dicts_with_attributes_are_read(tmp_path):
    weights = collections.OrderedDict(w=torch.ones(2))
    weights._metadata = {"version": 1}
    torch.save(weights, tmp_path / "a.pth")
    assert read_weights(tmp_path / "a.pth")["w"].tolist() == [1, 1]


def test_plain_pickles_are_not_files_of_weights(tmp_path):
    (tmp_path / "a.pth").write_bytes(pickle.dumps({"w": np.zeros(3)}))
    with pytest.raises(DataError, match="it does not begin as PyTorch's files do"):
        read_weights(tmp_path / "a.pth")
