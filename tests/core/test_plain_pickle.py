"""Pickles are read as data: what real files hold is read, and everything else is refused."""

import pickle
import struct
from collections import OrderedDict
from contextlib import suppress

import numpy as np
import pytest

from infoshot import DataError
from infoshot.core.memory import watch_peak
from infoshot.core.plain_pickle import read_plain_pickle

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
VALUES = {
    "uint8": PIXELS,
    "columns": np.asfortranarray(PIXELS),
    "empty": np.zeros((0, 3), np.uint8),
    "no axes": np.array(7),
    "float32": np.linspace(0, 1, 5, dtype=np.float32),
    "big endian": np.arange(5, dtype=">i4"),
    "truth": np.array([True, False]),
    "bytes": np.array([b"n01", b"n0198"]),
    "text": np.array(["n01", "dächer"]),
    "scalars": [np.int64(3), np.float32(0.5), np.str_("n01"), np.bool_(True)],
    "nested": {"a": [1, -2, 2**70, 0.5, None, True, "é", b"\xff\x00"], "b": ({}, [])},
    "ordered": OrderedDict([("b", PIXELS), ("a", 2)]),
}


def _read(tmp_path, content):
    path = tmp_path / "a.pkl"
    path.write_bytes(content)
    return read_plain_pickle(path)


def _assert_equal(found, expected):
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            _assert_equal(found[key], expected[key])
    else:
        assert found == expected
        assert type(found) is type(expected)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_are_read_in_every_protocol(protocol, name, tmp_path):
    found = _read(tmp_path, pickle.dumps(VALUES[name], protocol=protocol))
    _assert_equal(found, VALUES[name])


@pytest.mark.parametrize("protocol", [2, 4])
def test_names_of_older_numpy_are_read(protocol, tmp_path):
    content = pickle.dumps(PIXELS, protocol=protocol)
    long, short = b"numpy._core.multiarray", b"numpy.core.multiarray"
    content = content.replace(b"\x8c\x16" + long, b"\x8c\x15" + short).replace(long, short)
    if protocol == 4:  # the frame is one byte shorter
        content = content[:3] + struct.pack("<Q", len(content) - 11) + content[11:]
    _assert_equal(_read(tmp_path, content), PIXELS)


PYTHON_2 = {
    0: b"cnumpy.core.multiarray\n_reconstruct\np0\n(cnumpy\nndarray\np1\n(I0\ntS'b'\ntRp2\n(I1\n(I2\nI2\ntcnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x00\\xffa\\n'\ntb.",
    2: b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03(K\x01K\x02K\x02\x86cnumpy\ndtype\nq\x04U\x02u1K\x00K\x01\x87Rq\x05(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x04\x00\xffa\ntb.",
}  # fmt: skip


@pytest.mark.parametrize("protocol", PYTHON_2)
def test_arrays_that_python_2_wrote_are_read(protocol, tmp_path):
    found = _read(tmp_path, PYTHON_2[protocol])
    _assert_equal(found, np.array([[0, 255], [97, 10]], dtype=np.uint8))


def _text(text):
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _data_type(code, state=b"(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"):
    return b"cnumpy\ndtype\n" + _text(code) + b"\x89\x88\x87R" + state


def _array(shape, data_type, content):
    """What protocol 5 writes."""
    content = b"B" + struct.pack("<I", len(content)) + content
    name = b"cnumpy._core.numeric\n_frombuffer\n"
    return name + b"(" + content + data_type + shape + _text("C") + b"tR"


FIELDS = (
    b"(K\x03X\x01\x00\x00\x00|N"
    + _text("f")
    + b"\x85}"
    + _text("f")
    + _data_type("u1")
    + b"K\x00\x86sK\x08K\x01K\x00tb"
)
TUPLES = b")" + b"\x85" * 200_000
REFUSED = {
    "objects": (_array(b"K\x01\x85", _data_type("O"), b"A" * 8), "arrays of type 'O' are not allowed"),
    "fields": (_array(b"K\x01\x85", _data_type("u8", FIELDS), b"A" * 8), "arrays with fields"),
    "void": (_array(b"K\x01\x85", _data_type("V8"), b"A" * 8), "arrays of type 'V8'"),
    "too few bytes": (_array(b"K\x05\x85", _data_type("u1"), b"A" * 4), r"uint8 \[5\] cannot have 4 bytes"),
    "negative side": (_array(b"J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86", _data_type("u1"), b"A"), "the shape of an array"),
    "text as a shape": (_array(_text("ab"), _data_type("u1"), b"A"), "the shape of an array"),
    "not Unicode": (_array(b"K\x01\x85", _data_type("U1", b""), b"\xff" * 4), "text that is not Unicode"),
    "a type is called": (b"cnumpy\nndarray\nJ\x00\x00\x00\x7f\x85\x85R", "it calls a type"),
    "another function": (b"cos\nsystem\n" + _text("true") + b"\x85R", r"it calls os\.system; only arrays"),
    "attribute of a name": (b"\x8c\x05numpy\x8c\x0dndarray.dtype\x93", r"it calls numpy\.ndarray\.dtype"),
    "another encoding": (b"c_codecs\nencode\n" + _text("ab") + _text("punycode") + b"\x86R", "only bytes may be encoded as text"),
    "function as argument": (b"c_codecs\nencode\nc_codecs\nencode\n" + _text("latin1") + b"\x86R", "only bytes may be encoded as text"),
    "state of a name": (b"cnumpy\nndarray\n}" + _text("make") + b"NsbN.", "it sets the state of something"),
    "state of a list": (b"]}b", "it sets the state of something"),
    "call of a list": (b"])R", "it calls something that is not a function"),
    "items of an array": (_array(b"K\x01\x85", _data_type("u1"), b"A") + b"K\x00K\x01s", "it sets items of something that is not a dict"),
    "deep key": (b"}" + TUPLES + b"Ns", "the keys of a dict must be texts or numbers"),
    "deep pair": (b"ccollections\nOrderedDict\n]" + TUPLES + b"N\x86a\x85R", "the keys of a dict"),
    "object of a class": (b"cnumpy\nndarray\n)\x81", "it has an operation that plain data do not need"),
    "extension": (b"\x82\x01", "it has an operation"),
    "identifier": (b"K\x01Q", "it refers to objects outside"),
    "set": (b"\x8f", "it has an operation"),
    "unknown operation": (b"\xff", "it has an operation"),
    "nothing on the stack": (b"R", "pop from empty list"),
    "no mark": (b"t", "pop from empty list"),
    "unknown memo": (b"h\x05", "Memo value not found|it has an operation|5"),
    "long digits": (b"I" + b"9" * 5000 + b"\n", "digits|integer"),
    "truncated": (b"X\x05\x00\x00\x00ab", "EOFError"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_everything_else_is_refused_in_one_sentence(case, tmp_path):
    content, message = REFUSED[case]
    with pytest.raises(DataError, match=rf"a\.pkl: .*({message})") as caught:
        _read(tmp_path, b"\x80\x04" + content + ("" if case == "truncated" else ".").encode())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


HUGE = struct.pack("<Q", 2**33)
SMALL_FILES = {
    "number of a memo": b"]r\x00\x00\x00\x08",
    "length of bytes": b"\x8e" + HUGE + b"abc",
    "length of changeable bytes": b"\x96" + HUGE + b"abc",
    "length of text": b"\x8d" + HUGE + b"abc",
    "length of a frame": b"\x95" + HUGE + b"abc",
    "impossible length": b"\x8e" + struct.pack("<Q", 2**63 - 1),
    "one text encoded often": _text("x" * 100_000) + b"q\x00c_codecs\nencode\nq\x01"
    + (b"h\x01h\x00" + _text("latin1") + b"\x86R") * 20_000,
}  # fmt: skip


@pytest.mark.parametrize("case", SMALL_FILES)
def test_memory_is_limited_by_the_size_of_the_file(case, tmp_path):
    peak = watch_peak()
    with suppress(DataError):
        _read(tmp_path, b"\x80\x05" + SMALL_FILES[case] + b".")
    assert not peak() > 400e6


@pytest.mark.parametrize("operation", [b"]", b"}", b"(", b")\x85", b"N", b"K\x00"])
def test_number_of_objects_is_limited_by_the_size_of_the_file(operation, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.core.plain_pickle._FREE", 2**20)
    with pytest.raises(DataError, match="it builds far more than a file of its size should"):
        _read(tmp_path, b"\x80\x05" + operation * 50_000 + b".")


def test_shared_lists_are_visited_once(tmp_path):
    value = [PIXELS]
    for _ in range(60):
        value = [value, value]
    found = _read(tmp_path, pickle.dumps(value))
    for _ in range(60):
        assert found[0] is found[1]
        found = found[0]
    _assert_equal(found[0], PIXELS)


@pytest.mark.parametrize("protocol", range(6))
def test_pickle_cut_anywhere_is_refused(protocol, tmp_path):
    content = pickle.dumps([PIXELS, 2**70, 0.5, "é", b"\xff", {"a": 300}], protocol=protocol)
    for length in range(len(content)):
        with pytest.raises(DataError, match=r"a\.pkl: not allowed, or not a complete pickle"):
            _read(tmp_path, content[:length])


def test_random_changes_give_data_or_one_error(tmp_path):
    whole = pickle.dumps({"image_data": PIXELS, "class_dict": {"a": [0, 1]}}, protocol=2)
    random = np.random.default_rng(0)
    for _ in range(400):
        content = bytearray(whole)
        for place in random.integers(0, len(content), 1 + int(random.integers(4))):
            content[place] = random.integers(256)
        with suppress(DataError):
            _read(tmp_path, bytes(content))
