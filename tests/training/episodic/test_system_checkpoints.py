"""Checkpoints with the head of a system, and loading them."""

import json
import shutil

import pytest
import torch

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import make_backbone
from infoshot.backbones.backbone import StoredSystem
from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint
from infoshot.training.episodic.registry import make_head
from infoshot.training.episodic.trained_system import is_system, load_system

HEAD = "tests.heads:Nearest"
NAMES = ("a", "b", "c")


def _save(folder, *, name=HEAD, factor=4.0, **more):
    torch.manual_seed(0)
    settings = {} if name == "protonet" else {"factor": factor, "sizes": [1, 2]}
    head = make_head(name, 64, len(NAMES), settings)
    stored = StoredSystem(name, settings, head.state_dict())
    weights = make_backbone("conv4").state_dict()
    save_checkpoint(folder, "conv4", weights, class_names=NAMES, system=stored, **more)
    return head


def test_system_is_read_back(tmp_path):
    head = _save(tmp_path)
    system = load_system(tmp_path)
    assert is_system(tmp_path)
    assert (system.name, system.encoder.class_names) == (HEAD, NAMES)
    assert torch.equal(system.head.factor, head.factor)
    assert not system.head.training
    assert not system.head.factor.requires_grad
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(2, 9, 64, generator=generator)
    y = torch.arange(3).expand(2, -1)
    expected = head.log_posterior(z[:, :3], y, z[:, 3:], 3)
    torch.testing.assert_close(system.log_posterior(z[:, :3], y, z[:, 3:], 3), expected.detach())
    images = torch.randn(2, 3, 84, 84, generator=generator)
    torch.testing.assert_close(system.encode(images), system.encoder.backbone(images).detach())


def test_head_without_parameters_is_stored_too(tmp_path):
    _save(tmp_path, name="protonet")
    assert load_system(tmp_path).head.temperature == 2.0
    assert len(list(tmp_path.glob("head-*.safetensors"))) == 1


def test_run_folder_stands_for_its_best_checkpoint(tmp_path):
    _save(tmp_path / "best", factor=2.0, epoch=3, chosen_as="best")
    _save(tmp_path / "last", factor=5.0, epoch=4, chosen_as="last")
    assert is_system(tmp_path)
    assert float(load_system(tmp_path).head.factor) == 2.0
    assert float(load_system(tmp_path / "last").head.factor) == 5.0
    assert load_checkpoint(tmp_path).epoch == 3  # the backbone, as of any other checkpoint


def test_old_head_is_removed_and_a_checkpoint_without_system_has_none(tmp_path):
    _save(tmp_path, factor=2.0)
    _save(tmp_path, factor=3.0)
    assert len(list(tmp_path.glob("head-*"))) == 1
    save_checkpoint(tmp_path, "conv4", make_backbone("conv4").state_dict())
    assert not list(tmp_path.glob("head-*"))
    assert load_checkpoint(tmp_path).system is None
    assert not is_system(tmp_path)
    assert not is_system(tmp_path / "missing")
    with pytest.raises(DataError, match="holds a backbone, not a few-shot system"):
        load_system(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_smaller_types_store_the_head_too(tmp_path, dtype):
    _save(tmp_path, factor=1 / 3, dtype=dtype)
    system = load_system(tmp_path)
    assert system.head.factor.dtype == torch.float32
    assert float(system.head.factor) == pytest.approx(1 / 3, abs=1e-3)


def test_digest_covers_weights_head_and_settings(tmp_path):
    digests = set()
    for number, (factor, sizes) in enumerate([(4.0, [1, 2]), (5.0, [1, 2]), (4.0, [1, 3])]):
        folder = tmp_path / str(number)
        head = make_head(HEAD, 64, 3, {"factor": factor, "sizes": sizes})
        torch.manual_seed(0)
        stored = StoredSystem(HEAD, {"factor": 4.0, "sizes": sizes}, head.state_dict())
        weights = make_backbone("conv4").state_dict()
        save_checkpoint(folder, "conv4", weights, class_names=NAMES, system=stored)
        digests.add(load_system(folder).digest)
    _save(tmp_path / "again")
    assert load_system(tmp_path / "again").digest in digests
    save_checkpoint(
        tmp_path / "other", "conv4", make_backbone("conv4").state_dict(), class_names=NAMES,
        system=load_checkpoint(tmp_path / "again").system,
    )  # fmt: skip
    digests.add(load_system(tmp_path / "other").digest)
    assert len(digests) == 4


def _change(folder, change):
    path = folder / "checkpoint.json"
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))


def _truncate(folder):
    [path] = folder.glob("head-*")
    path.write_bytes(path.read_bytes()[:-2])


def _remove(folder):
    [path] = folder.glob("head-*")
    path.unlink()


def _set(**changes):
    return lambda folder: _change(folder, lambda about: about["system"].update(changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate, r"head-.*: truncated or changed"),
        (_remove, r"head-.*: there is no such file"),
        (_set(name=3), "'system' is not valid"),
        (_set(settings=[1]), "'system' is not valid"),
        (_set(sha256="../.."), "'system' is not valid"),
        (lambda f: _change(f, lambda about: about.update(system="x")), "'system' is not valid"),
        (_set(name="protonet", settings={}), r"its head is not one of protonet .*'factor'"),
        (_set(name="protonett"), "Unknown system 'protonett'"),
        (_set(name="os:system"), "the module belongs to Python"),
        (_set(settings={"size": 3}), "Unknown setting of .*'head.size'"),
    ],
)
def test_damage_is_one_sentence(tmp_path, damage, message):
    _save(tmp_path)
    damage(tmp_path)
    with pytest.raises((DataError, InvalidArgumentError), match=message) as caught:
        load_system(tmp_path)
    assert "\n" not in str(caught.value)


def test_head_of_another_width_is_refused(tmp_path):
    _save(tmp_path)
    system = load_checkpoint(tmp_path).system
    wide = StoredSystem(HEAD, system.settings, {"factor": torch.ones(2)})
    shutil.rmtree(tmp_path)
    weights = make_backbone("conv4").state_dict()
    save_checkpoint(tmp_path, "conv4", weights, class_names=NAMES, system=wide)
    with pytest.raises(DataError, match=r"its head is not one of .*such as 'factor'"):
        load_system(tmp_path)
