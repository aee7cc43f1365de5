import json
import os
import pickle

import pytest
import torch

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import make_backbone, open_checkpoint, open_encoder
from infoshot.backbones.checkpoints import import_weights, load_checkpoint, save_checkpoint
from infoshot.core.atomic import write_atomically


@pytest.fixture
def conv4():
    torch.manual_seed(0)
    return make_backbone("conv4").eval()


def _same(first, second):
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        return torch.equal(first(images), second(images))


def test_loading_a_saved_checkpoint_gives_the_same_network(conv4, tmp_path):
    digest = save_checkpoint(
        tmp_path / "c", "conv4", conv4.state_dict(), class_names=("a", "b"), config={"lr": 0.1}
    )
    encoder = load_checkpoint(tmp_path / "c")
    assert _same(encoder.backbone, conv4)
    assert not encoder.backbone.training
    assert encoder.digest == digest
    assert encoder.class_names == ("a", "b")
    assert encoder.config == {"lr": 0.1}
    names = ["checkpoint.json", f"weights-{digest[:16]}.safetensors"]
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == names


def _head(seed=0, n_classes=3):
    torch.manual_seed(seed)
    return torch.nn.Linear(make_backbone("conv4").feature_dim, n_classes).state_dict()


def _same_layer(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_the_classifier_comes_back(conv4, tmp_path):
    plain = save_checkpoint(tmp_path / "plain", "conv4", conv4.state_dict())
    digest = save_checkpoint(tmp_path / "c", "conv4", conv4.state_dict(), classifier=_head())
    assert digest == plain  # features do not depend on it
    assert load_checkpoint(tmp_path / "plain").classifier is None
    assert _same_layer(load_checkpoint(tmp_path / "c").classifier, _head())
    save_checkpoint(tmp_path / "c", "conv4", conv4.state_dict(), classifier=_head(seed=1))
    assert _same_layer(load_checkpoint(tmp_path / "c").classifier, _head(seed=1))
    assert len(list((tmp_path / "c").glob("classifier-*"))) == 1
    save_checkpoint(tmp_path / "c", "conv4", conv4.state_dict())
    assert load_checkpoint(tmp_path / "c").classifier is None
    assert not list((tmp_path / "c").glob("classifier-*"))


def test_the_classifier_in_float16(conv4, tmp_path):
    weights = conv4.state_dict()
    save_checkpoint(tmp_path, "conv4", weights, classifier=_head(), dtype=torch.float16)
    classifier = load_checkpoint(tmp_path).classifier
    assert _same_layer(classifier, {k: v.half().float() for k, v in _head().items()})


@pytest.mark.parametrize("case", ["missing", "changed", "another layer"])
def test_a_bad_classifier_gets_one_clear_sentence(case, conv4, tmp_path):
    layer = {"weight": torch.ones(3, 5), "bias": torch.ones(3)}
    save_checkpoint(
        tmp_path,
        "conv4",
        conv4.state_dict(),
        classifier=layer if case == "another layer" else _head(),
    )
    (path,) = tmp_path.glob("classifier-*")
    if case == "missing":
        path.unlink()
    elif case == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    message = {
        "missing": "there is no such file",
        "changed": "truncated or changed",
        "another layer": r"not a linear or cosine classifier of \d+ features",
    }[case]
    with pytest.raises(DataError, match=rf"classifier-\w+\.safetensors: {message}"):
        load_checkpoint(tmp_path)


def test_training_run_stands_for_its_best_checkpoint(conv4, tmp_path):
    other = make_backbone("conv4").eval()
    save_checkpoint(tmp_path / "best", "conv4", conv4.state_dict(), epoch=5, chosen_as="best")
    save_checkpoint(tmp_path / "last", "conv4", other.state_dict(), epoch=9, chosen_as="last")
    for encoder in (load_checkpoint(tmp_path), open_encoder(tmp_path), open_checkpoint(tmp_path)):
        assert _same(encoder.backbone, conv4)
        assert (encoder.epoch, encoder.chosen_as) == (5, "best")
    assert load_checkpoint(tmp_path / "last").epoch == 9


def test_run_without_a_best_checkpoint_is_not_guessed(conv4, tmp_path):
    save_checkpoint(tmp_path / "last", "conv4", conv4.state_dict(), epoch=9, chosen_as="last")
    with pytest.raises(DataError, match=r"not a checkpoint\. Did you mean .*last\?$"):
        load_checkpoint(tmp_path)


def test_checkpoints_of_older_versions_are_read(conv4, tmp_path):
    save_checkpoint(tmp_path, "conv4", conv4.state_dict(), epoch=5, chosen_as="best")
    path = tmp_path / "checkpoint.json"
    description = json.loads(path.read_text())
    del description["epoch"], description["chosen_as"]
    path.write_text(json.dumps(description))
    encoder = load_checkpoint(tmp_path)
    assert (encoder.epoch, encoder.chosen_as, encoder.trained_on) == (None, "", "")


@pytest.mark.parametrize("entry", [{"epoch": "5"}, {"epoch": -1}, {"chosen_as": "first"}])
def test_record_of_the_epoch_is_checked(entry, conv4, tmp_path):
    save_checkpoint(tmp_path, "conv4", conv4.state_dict())
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entry}))
    with pytest.raises(DataError, match="not the description of a checkpoint"):
        load_checkpoint(tmp_path)


def test_network_of_a_checkpoint_may_be_named_but_not_changed(conv4, tmp_path):
    save_checkpoint(tmp_path / "c", "conv4", conv4.state_dict())
    assert _same(open_checkpoint(tmp_path / "c", "conv4").backbone, conv4)
    with pytest.raises(InvalidArgumentError, match=r"^backbone must be conv4, which .*c records"):
        open_checkpoint(tmp_path / "c", "resnet18")


def test_digest_depends_on_the_weights_only(conv4, tmp_path):
    before = save_checkpoint(tmp_path / "a", "conv4", conv4.state_dict())
    assert save_checkpoint(tmp_path / "b", "conv4", conv4.state_dict()) == before
    with torch.no_grad():
        next(conv4.parameters()).add_(1e-6)
    assert save_checkpoint(tmp_path / "c", "conv4", conv4.state_dict()) != before


@pytest.mark.parametrize("name", ["resnet18", "wrn28-10"])
def test_release_layout_is_imported(name, tmp_path):
    backbone = make_backbone(name).eval()
    head = {"resnet18": "fc", "wrn28-10": "linear"}[name]
    weights = {f"module.{key}": value for key, value in backbone.state_dict().items()}
    weights[f"module.{head}.weight"] = torch.rand(64, backbone.feature_dim)
    weights[f"module.{head}.bias"] = torch.rand(64)
    path = tmp_path / "best.pth.tar"
    torch.save({"epoch": 90, "state_dict": weights, "best_prec1": torch.tensor(0.6)}, path)
    encoder = import_weights(path, name)
    assert _same(encoder.backbone, backbone)
    for part, value in encoder.classifier.items():
        assert torch.equal(value, weights[f"module.{head}.{part}"])
    assert encoder.classifier.keys() == {"weight", "bias"}


def _change(path, change):
    path.write_bytes(change(path.read_bytes()))


def _weights(folder):
    return next(folder.glob("weights-*.safetensors"))


BAD = {
    "no folder": (lambda folder: None, "this checkpoint folder does not exist"),
    "no weights": (lambda folder: _weights(folder).unlink(), r"weights-\w+\.safetensors: there is no such file"),
    "truncated weights": (lambda folder: _change(_weights(folder), lambda b: b[:-50]), "truncated or changed"),
    "changed weights": (lambda folder: _change(_weights(folder), lambda b: b[:-1] + b"x"), "truncated or changed"),
    "half a description": (lambda folder: _change(folder / "checkpoint.json", lambda b: b[:30]), "not the description of a checkpoint"),
    "another backbone": (lambda folder: _change(folder / "checkpoint.json", lambda b: b.replace(b'"conv4"', b'"resnet18"')), r"not weights of resnet18: \d+ missing, \d+ unknown, 0 of another shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_checkpoints_get_one_clear_sentence(case, conv4, tmp_path):
    folder = tmp_path / "c"
    if case != "no folder":
        save_checkpoint(folder, "conv4", conv4.state_dict())
    make, message = BAD[case]
    make(folder)
    with pytest.raises(DataError, match=message) as caught:
        load_checkpoint(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


class _Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_import_executes_no_code_of_the_file(tmp_path):
    marker, path = tmp_path / "executed", tmp_path / "evil.pth"
    torch.save({"state_dict": _Malicious(marker)}, path)
    with pytest.raises(
        DataError, match=r"evil\.pth: truncated, or not a file of weights that can be read"
    ):
        import_weights(path, "conv4")
    assert not marker.exists()


@pytest.mark.parametrize("content", [b"", b"hello" * 50, pickle.dumps([1])])
def test_import_refuses_other_files(content, tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.pth: "):
        import_weights(path, "conv4")


@pytest.mark.parametrize("dies_at", [0, 1, 2])
def test_killed_writer_leaves_the_old_checkpoint(dies_at, conv4, tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "c", "conv4", conv4.state_dict(), classifier=_head())
    done = []

    def dying(path, content):
        if len(done) == dies_at:
            raise SystemExit("killed")
        done.append(path)
        write_atomically(path, content)

    monkeypatch.setattr("infoshot.backbones.checkpoints.write_atomically", dying)
    other = make_backbone("conv4").state_dict()
    with pytest.raises(SystemExit):
        save_checkpoint(tmp_path / "c", "conv4", other, classifier=_head(seed=1))
    assert _same(load_checkpoint(tmp_path / "c").backbone, conv4)
    assert _same_layer(load_checkpoint(tmp_path / "c").classifier, _head())


def test_old_weights_are_removed(conv4, tmp_path):
    save_checkpoint(tmp_path / "c", "conv4", conv4.state_dict())
    other = make_backbone("conv4").eval()
    save_checkpoint(tmp_path / "c", "conv4", other.state_dict())
    assert len(list((tmp_path / "c").iterdir())) == 2
    assert _same(load_checkpoint(tmp_path / "c").backbone, other)


def test_files_of_the_user_are_kept_beside_a_checkpoint(conv4, tmp_path):
    for name in ("weights-mine.safetensors", f"training-{'0' * 16}.safetensors"):
        (tmp_path / name).write_text("mine")
    save_checkpoint(tmp_path, "conv4", conv4.state_dict())
    save_checkpoint(tmp_path, "conv4", make_backbone("conv4").state_dict())
    assert sorted(path.read_text() for path in tmp_path.glob("*-[m0]*")) == ["mine", "mine"]
    assert len(list(tmp_path.glob("weights-*"))) == 2


def test_weights_that_a_killed_writer_left_are_removed(conv4, tmp_path, monkeypatch):
    def die(path, content):
        if path.name == "checkpoint.json":
            raise KeyboardInterrupt
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("infoshot.backbones.checkpoints.write_atomically", die)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, "conv4", make_backbone("conv4").state_dict())
    save_checkpoint(tmp_path, "conv4", conv4.state_dict())
    assert len(list(tmp_path.glob("weights-*"))) == 1
