"""Shards that change during a solve are named; damaged shards and states are refused."""

import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from infoshot import DataError
from infoshot.core.tensor_file import read_tensor_file, write_tensor_file
from infoshot.shards import solve_shards
from infoshot.shards.shard_reader import open_shard
from tests.shards.made_shards import make_shards

SETTINGS = {"n_steps": 4}
TRUNCATING = """
import os, sys
from infoshot import DataError
from infoshot.shards import solve_shards

support, queries, out, shard = sys.argv[1:]

def truncate(phase, done, total):
    if phase == "solving" and done:
        os.truncate(shard, 1000)

try:
    solve_shards(support, queries, out, settings={"n_steps": 4}, progress=truncate)
except DataError as error:
    print(error)
"""


@pytest.fixture
def good(tmp_path):
    return make_shards(tmp_path)


@pytest.mark.parametrize("name", ["part0.safetensors", "part3.npy"])
def test_a_shard_that_is_truncated_during_the_solve_is_named(good, tmp_path, name):
    """A process that maps a file dies of SIGBUS when the file is truncated, so use another one."""
    arguments = [good.support, good.queries, tmp_path / "out", good.queries / name]
    result = subprocess.run(
        [sys.executable, "-c", TRUNCATING, *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert f"{name}: the file has changed since the solve began." in result.stdout


def rewrite(path):
    """Change one value; name and size stay."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def replace(path):
    other = path.with_name("other.part")
    other.write_bytes(path.read_bytes())
    other.replace(path)


@pytest.mark.parametrize("change", [rewrite, replace, os.unlink])
@pytest.mark.parametrize("phase", ["solving", "labelling"])
def test_any_change_during_the_solve_is_noticed(good, tmp_path, change, phase):
    shard, pending = good.queries / "part3.npy", [change]

    def report(current, done, total):
        if current == phase and (done or phase == "labelling") and pending:
            pending.pop()(shard)

    with pytest.raises(DataError, match=r"part3.npy: (the file has changed|cannot be read \(No)"):
        solve_shards(
            good.support, good.queries, tmp_path / "out", settings=SETTINGS, progress=report
        )
    assert not pending
    assert not (tmp_path / "out" / "run.json").exists()


def test_blocks_and_single_rows_are_read(tmp_path):
    rows = torch.randn(50, 8).half()
    save_file({"features": rows, "labels": torch.arange(3)}, tmp_path / "a.safetensors")
    np.save(tmp_path / "b.npy", rows.float().numpy())
    for name, expected in (("a.safetensors", rows), ("b.npy", rows.float())):
        found = open_shard(tmp_path / name).rows()
        assert len(found) == 50
        assert torch.equal(found[:], expected)
        assert torch.equal(found[7:19], expected[7:19])
        assert torch.equal(found[40:99], expected[40:])
        assert torch.equal(found.pick([3, 49, 0]), expected[[3, 49, 0]])
        assert found.pick([]).shape == (0, 8)


def npy_header(text):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(9 * 24 * 4)


def tensor_header(**changes):
    entry = {"dtype": "F32", "shape": [9, 24], "data_offsets": [0, 864], **changes}
    text = json.dumps({"features": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(864)


def described(descr="'<f4'", order="False", shape="(9, 24)"):
    return npy_header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n")


CASES = {
    "x.npy": {
        "open brackets": npy_header("(" * 3000),
        "an open string": npy_header("{'descr': '''"),
        "a shape beyond all numbers": described(shape="(99999999999999999999, 24)"),
        "a shape beyond the file": described(shape="(1000000000, 24)"),
        "a negative shape": described(shape="(-9, -24)"),
        "fewer rows than bytes": described(shape="(8, 24)"),
        "huge items": described(descr="'|V999999999'"),
        "a nested dtype": described(descr="('<f4', (1000000, 1000000))"),
        "another order": described(order="True"),
        "one axis": described(shape="(216,)"),
    },
    "x.safetensors": {
        "shifted offsets": tensor_header(data_offsets=[4, 868]),
        "a shape beyond the offsets": tensor_header(shape=[2**32, 2**32]),
        "8-bit floats": tensor_header(dtype="F8_E4M3", shape=[9, 96]),
        "no columns": tensor_header(shape=[9, 0], data_offsets=[0, 0]),
        "a nested header": (100_000).to_bytes(8, "little") + b"[" * 100_000,
        "a long header": b"\xff" * 900,
    },
}


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_damaged_shards_are_refused(tmp_path, name, case):
    (tmp_path / name).write_bytes(CASES[name][case])
    with pytest.raises(DataError, match=rf"{name}: .*a shard is safetensors with") as caught:
        open_shard(tmp_path / name)
    assert "\n" not in str(caught.value)


CHANGED_STATES = {
    "no weights": ({}, {"weights": None}),
    "weights of another shape": ({}, {"weights": torch.ones(2, 3, dtype=torch.float64)}),
    "weights of another dtype": ({}, {"weights": torch.ones(7, 24)}),
    "weights that are not finite": ({}, {"weights": torch.full((7, 24), torch.nan).double()}),
    "negative steps": ({"n_steps": -3}, {}),
    "steps as text": ({"n_steps": "3"}, {}),
    "no steps": ({"n_steps": None}, {}),
    "a weight that is not finite": ({"beta": float("nan")}, {}),
    "a note that is a list": ({"note": []}, {}),
    "no provenance": ({"facts": None}, {}),
    "another provenance": ({"facts": {"method": 3}}, {}),
    "provenance of shards": ({"facts": {"shards": 3}}, {}),
}


@pytest.mark.parametrize("case", CHANGED_STATES)
def test_damaged_states_are_refused_and_replaced_by_force(good, tmp_path, case):
    out = tmp_path / "out"
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    tensors, facts = read_tensor_file(out / "state.safetensors", kind="progress")
    changed_facts, changed_tensors = CHANGED_STATES[case]
    if case == "provenance of shards":
        changed_facts = {"facts": {**facts["facts"], "shards": 3}}
    tensors = {k: v for k, v in {**tensors, **changed_tensors}.items() if v is not None}
    facts = {k: v for k, v in {**facts, **changed_facts}.items() if v is not None}
    tensors = tensors or {"other": torch.ones(1)}
    write_tensor_file(out / "state.safetensors", tensors, facts, kind="progress")
    with pytest.raises(DataError, match=r"state.safetensors: .* pass force=True to replace it"):
        solve_shards(good.support, good.queries, out, settings=SETTINGS)
    solve_shards(good.support, good.queries, out, settings=SETTINGS, force=True)


@pytest.mark.parametrize(
    "labels",
    [torch.full((700,), -1), torch.full((700,), 7), torch.full((700,), 2**30), torch.zeros(9)],
    ids=["negative", "unknown", "huge", "few"],
)
def test_labels_that_cannot_be_right_are_made_again(good, tmp_path, labels):
    out = tmp_path / "out"
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    path = out / "labels" / "part0.safetensors"
    before = path.read_bytes()
    tensors, facts = read_tensor_file(path, kind="labels")
    write_tensor_file(path, {**tensors, "labels": labels.int()}, facts, kind="labels")
    solve_shards(good.support, good.queries, out, settings=SETTINGS)
    assert path.read_bytes() == before
