import pytest
import torch
from safetensors.torch import save_file

from infoshot import DataError
from infoshot.core.tensor_file import read_tensor_file, write_tensor_file

TENSORS = {
    "weights": torch.rand(3, 4, generator=torch.Generator().manual_seed(0)),
    "labels": torch.tensor([1, 2, -1]),
    "empty": torch.empty(0, 5, dtype=torch.float16),
}
FACTS = {"format": 1, "names": ["a", "é", "\n"], "nested": {"x": 0.1, "y": None}, "yes": True}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensor_file(path, TENSORS, FACTS, kind="classifier")
    return path


def test_tensors_and_facts_are_read_back(path, tmp_path):
    tensors, facts = read_tensor_file(path, kind="classifier")
    assert facts == FACTS
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_some_tensors_can_be_read_alone(path):
    tensors, facts = read_tensor_file(path, kind="classifier", only=("labels",))
    assert tensors.keys() == {"labels"}
    assert facts == FACTS
    assert read_tensor_file(path, kind="classifier", only=()) == ({}, FACTS)


def test_equal_content_gives_equal_bytes(path, tmp_path):
    again = tmp_path / "b.safetensors"
    tensors = dict(reversed(TENSORS.items()))
    write_tensor_file(again, tensors, dict(reversed(FACTS.items())), kind="classifier")
    assert again.read_bytes() == path.read_bytes()
    write_tensor_file(again, TENSORS, {**FACTS, "format": 2}, kind="classifier")
    assert again.read_bytes() != path.read_bytes()


def test_views_and_gradients_are_stored_as_values(tmp_path):
    table = torch.rand(4, 6, requires_grad=True)
    write_tensor_file(tmp_path / "a", {"x": table.T[::2], "y": table[1]}, {}, kind="state")
    tensors, _ = read_tensor_file(tmp_path / "a", kind="state")
    assert torch.equal(tensors["x"], table.detach().T[::2])
    assert torch.equal(tensors["y"], table.detach()[1])
    assert not tensors["x"].requires_grad


def test_tensors_are_aligned_whatever_the_facts(tmp_path):
    for length in range(1, 70, 7):
        write_tensor_file(tmp_path / "a", TENSORS, {"text": "x" * length}, kind="state")
        tensors, _ = read_tensor_file(tmp_path / "a", kind="state")
        assert tensors["weights"].data_ptr() % 64 == 0


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def _without_facts(path):
    save_file(TENSORS, path)


def _wrong_facts(path):
    save_file(TENSORS, path, metadata={"classifier": "{"})


def _list_of_facts(path):
    save_file(TENSORS, path, metadata={"classifier": "[1, 2]"})


BAD = {
    "truncated": (_truncate, "damaged, or not a classifier file ("),
    "empty": (lambda path: path.write_bytes(b""), "damaged, or not a classifier file ("),
    "text": (lambda path: path.write_text("hello " * 50), "damaged, or not a classifier file ("),
    "without facts": (_without_facts, "damaged, or not a classifier file ('classifier')."),
    "wrong facts": (_wrong_facts, "damaged, or not a classifier file ("),
    "list of facts": (_list_of_facts, "damaged, or not a classifier file ("),
    "missing": (lambda path: path.unlink(), "there is no such file."),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "there is no such file."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_clear_sentence(case, path):
    make, message = BAD[case]
    make(path)
    with pytest.raises(DataError) as caught:
        read_tensor_file(path, kind="classifier")
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_files_of_another_kind_are_refused(path):
    with pytest.raises(DataError, match=r"damaged, or not a shard file \('shard'\)\.$"):
        read_tensor_file(path, kind="shard")
    with pytest.raises(DataError, match="damaged, or not a classifier file"):
        read_tensor_file(path, kind="classifier", only=("nothing",))


def test_failed_write_keeps_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
        write_tensor_file(path, TENSORS, {}, kind="classifier")
    assert path.read_bytes() == before
