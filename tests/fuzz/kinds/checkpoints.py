"""Checkpoints, files of weights that PyTorch wrote, and the settings of a training."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

import torch

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import import_weights, load_checkpoint, load_training
from infoshot.training.config_file import SETTINGS
from tests.fuzz.containers import change_zip_record, damage_safetensors, to_zip
from tests.fuzz.kinds.made import make_image, make_weights, put, write
from tests.fuzz.kinds.pickles import damage_pickle
from tests.fuzz.mutations import damage, damage_json, damage_text
from tests.fuzz.runner import Case, Kind, run_command

_CONFIG = """epochs = 1
batch_size = 4
learning_rate = 0.02
schedule = "cosine"
seed = 3
"""


class Checkpoint(Kind):
    """The folder of a checkpoint."""

    name, fast = "checkpoint", True

    def prepare(self, intact: Path) -> None:
        make_weights(intact / "weights")
        for number in range(3):
            write(intact / "images" / "ab"[number % 2] / f"{number}.png", make_image(number))

    def check(self, case: Case) -> None:
        case.copy("weights", "images")
        for use in (_load, _resume, _extract):
            use(case)

    def attempt(self, case: Case) -> None:
        case.copy("weights", "images")
        path = case.random.choice(sorted((case.work / "weights").iterdir()))
        if path.suffix == ".json":
            content, done = damage_json(case.random, path.read_text())
        else:
            content, done = damage_safetensors(case.random, path.read_bytes())
        case.note(f"{path.name}: {done}, {put(case.random, path, content)}")
        use = case.random.choices((_load, _resume, _extract), (3, 2, 1))[0]
        use(case)


def _load(case: Case) -> None:
    encoder = load_checkpoint(case.work / "weights")
    assert encoder.backbone_name == "conv4"


def _resume(case: Case) -> None:
    state = load_training(case.work / "weights")
    assert all(isinstance(value, torch.Tensor) for value in state.tensors.values())


def _extract(case: Case) -> None:
    run_command("extract", "--dataset", "folder", "--root", "images", "--checkpoint", "weights",
                "--out", "f.safetensors")  # fmt: skip


class SmallCheckpoint(Kind):
    """The 8-bit weights of a checkpoint, whose digest is always that of the damaged file."""

    name, fast = "small-checkpoint", True

    def prepare(self, intact: Path) -> None:
        make_weights(intact / "weights", torch.int8)

    def check(self, case: Case) -> None:
        case.copy("weights")
        _load(case)

    def attempt(self, case: Case) -> None:
        case.copy("weights")
        folder = case.work / "weights"
        (old,) = folder.glob("weights-*.safetensors")
        content, done = damage_safetensors(case.random, old.read_bytes())
        case.note(done)
        digest = hashlib.sha256(content).hexdigest()
        (folder / f"weights-{digest[:16]}.safetensors").write_bytes(content)
        path = folder / "checkpoint.json"
        description = json.loads(path.read_text()) | {"weights_sha256": digest}
        path.write_text(json.dumps(description))
        _load(case)


class WeightFile(Kind):
    """A file that ``torch.save`` wrote."""

    name, fast = "weight-file", True

    def prepare(self, intact: Path) -> None:
        torch.manual_seed(0)
        weights = {f"module.{k}": v for k, v in make_backbone("conv4").state_dict().items()}
        for number, content in enumerate((weights, {"state_dict": weights, "epoch": 3})):
            for new in (True, False):
                path = intact / f"weights{number}{'new' if new else 'old'}.pt"
                torch.save(content, path, _use_new_zipfile_serialization=new)

    def check(self, case: Case) -> None:
        for path in case.intact.iterdir():
            import_weights(path, "conv4")

    def attempt(self, case: Case) -> None:
        source = case.random.choice(sorted(case.intact.iterdir()))
        content = source.read_bytes()
        if case.random.random() < 0.4 or "old" in source.name:
            content, done = damage(case.random, content)
        elif case.random.random() < 0.5:
            content, done = _change_pickle(case, content)
        else:
            content, done = change_zip_record(case.random, content)
        (case.work / "weights.pt").write_bytes(content)
        case.note(f"{source.name}: {done}")
        try:
            encoder = import_weights(case.work / "weights.pt", "conv4")
        finally:
            assert [path.name for path in case.work.iterdir()] == ["weights.pt"], "a file was made"
        assert encoder.backbone_name == "conv4"


def _change_pickle(case: Case, content: bytes) -> tuple[bytes, str]:
    """Change the pickle inside the archive, or put one that calls functions in its place."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in members if name.endswith("data.pkl"))
    members[name], done = damage_pickle(case.random, members[name])
    return to_zip(members), done


class TrainConfig(Kind):
    """A TOML file of settings, for a training of one epoch."""

    name = "train-config"

    def prepare(self, intact: Path) -> None:
        for number in range(6):
            split, name = (("train", "ab"), ("val", "cd"))[number // 4]
            write(intact / "data" / split / name[number % 2] / f"{number}.png", make_image(number))

    def check(self, case: Case) -> None:
        case.copy("data")
        (case.work / "config.toml").write_text(_CONFIG)
        _train(case)

    def attempt(self, case: Case) -> None:
        case.copy("data")
        text = _CONFIG
        if case.random.random() < 0.5:
            names = [name for name in SETTINGS if name not in ("epochs",)]
            value = case.random.choice(
                ("-1", "0", "nan", "inf", '""', "[]", "true", "1e300", "'x'", "{}")
            )
            text += f"{case.random.choice(names)} = {value}\n"
        content, done = (
            damage_text(case.random, text)
            if case.random.random() < 0.7
            else (text.encode(), text[-30:])
        )
        (case.work / "config.toml").write_bytes(content)
        case.note(done)
        _train(case)


def _train(case: Case) -> None:
    run_command("train", "--dataset", "folder", "--root", "data", "--backbone", "conv4", "--out",
                "out", "--config", "config.toml", "--epochs", 1, "--device", "cpu")  # fmt: skip
    assert (case.work / "out" / "last" / "checkpoint.json").exists()


KINDS = (Checkpoint(), SmallCheckpoint(), WeightFile(), TrainConfig())
