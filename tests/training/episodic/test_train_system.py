"""``infoshot.train`` with a system, and its command: usage, from images to features, refusals."""

import json

import pytest
from typer.testing import CliRunner

from infoshot import DataError, InvalidArgumentError, train
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.cli.app import app
from infoshot.features import read_features
from infoshot.training import EpisodicConfig, TrainConfig, load_system
from infoshot.training.episodic.registry import SYSTEMS, System
from tests.encoders import one_sentence, save_conv4
from tests.heads import Linear
from tests.image_folders import make_folders

NET = "tests.heads:TinyNet"
SMALL = {
    "epochs": 1, "episodes_per_epoch": 4, "tasks_per_step": 2, "n_way": 3, "n_query": 2,
    "val_tasks": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("images"), 5, size=(20, 20))


@pytest.fixture(scope="module")
def base(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("base")
    settings = {"epochs": 1, "batch_size": 10, "val_tasks": 5}
    return train("folder", root, NET, out, settings=settings, device="cpu").best


def _train(root, out, system="protonet", settings=None, **more):
    more = {"backbone": NET, "device": "cpu", **more}
    return train("folder", root, out=out, system=system, settings=SMALL | (settings or {}), **more)


def _run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_from_images_to_a_method(root, tmp_path):
    options = ("--dataset", "folder", "--root", root, "--device", "cpu")
    settings = [f"--set={name}={value}" for name, value in SMALL.items() if "per_step" not in name]
    result = _run("train", *options, "--backbone", NET, "--out", tmp_path / "run", "--system",
                  "protonet", "--epochs", 2, "--batch-size", 4, "--lr", "0.01", "--seed", 3,
                  *settings[1:], "--set", "head.temperature=3")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Best of 2 epochs: " in result.stdout
    assert "% (protonet, 1-shot)" in result.stdout
    system = load_system(tmp_path / "run")
    config = system.encoder.config
    expected = {"epochs": 2, "tasks_per_step": 4, "learning_rate": 0.01, "seed": 3, "system":
                "protonet", "head.temperature": 3, "dataset": "folder"}  # fmt: skip
    assert {name: config[name] for name in expected} == expected
    assert system.head.temperature == 3
    result = _run("extract", *options, "--checkpoint", tmp_path / "run", "--out", tmp_path / "f")
    assert result.exit_code == 0, result.output
    assert read_features(tmp_path / "f").provenance["weights_sha256"] == system.encoder.digest
    result = _run("bench", "--features", tmp_path / "f", "--methods",
                  f"prototype,system:{tmp_path / 'run'}", "--ways", 3, "--shots", 1, "--queries", 2,
                  "--tasks", 20)  # fmt: skip
    assert result.exit_code == 0, result.output


def test_configuration_of_a_run_repeats_it(root, base, tmp_path):
    first = _train(root, tmp_path / "a", "tests.heads:Linear", init=base)
    again = train("folder", root, NET, tmp_path / "b", system="tests.heads:Linear", init=base,
                  config=first.config_file, device="cpu")  # fmt: skip
    assert again.config.to_json() == first.config.to_json()
    assert load_system(again.last).digest == load_system(first.last).digest
    assert load_checkpoint(first.last).config["init_sha256"] == load_checkpoint(base).digest
    with pytest.raises(DataError, match=r"config.toml: holds the settings of the system tests.hea"):
        train("folder", root, NET, tmp_path / "c", config=first.config_file, device="cpu")


def test_system_starts_from_the_network_it_is_given(root, base, tmp_path):
    settings = {"learning_rate": 1e-12, "optimizer": "sgd", "backbone_rate": 1e-3}
    result = _train(root, tmp_path, "tests.heads:Linear", settings, init=base)
    ours, theirs = (load_checkpoint(f).backbone.state_dict() for f in (result.last, base))
    assert (ours["layers.0.weight"] - theirs["layers.0.weight"]).abs().max() < 1e-8


def test_frozen_backbone_stays_as_it_is(root, base, tmp_path):
    result = _train(root, tmp_path, "tests.heads:Linear", {"backbone_rate": 0}, init=base)
    assert load_checkpoint(result.last).digest == load_checkpoint(base).digest
    assert result.records[0].val_accuracy is not None
    _train(root, tmp_path, "tests.heads:Linear", {"backbone_rate": 0}, init=base)  # all done


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"system": "protonte"}, InvalidArgumentError, "Unknown system 'protonte'. Did you mean"),
        ({"settings": {"n_way": 5}}, DataError, "n_way must be at most 4, the number of classes"),
        ({"settings": {"n_query": 9}}, DataError, r"must be at most 5 for class 'a' .*got 1 \+ 9"),
        ({"settings": {"n_ways": 5}}, InvalidArgumentError, "Did you mean 'n_way'"),
        ({"settings": {"backbone_rate": 0}}, InvalidArgumentError, "init must be the checkpoint"),
        ({"init": "nowhere"}, DataError, "nowhere: this checkpoint folder does not exist"),
        ({"recipe": "strong"}, InvalidArgumentError, "recipe must be 'paper' with a system"),
        (
            {"teacher": "x"},
            InvalidArgumentError,
            "teacher must be left out for a system, which is not distilled; to start from a "
            "trained network, pass init=CHECKPOINT",
        ),
        ({"config": TrainConfig(backbone=NET)}, InvalidArgumentError, "must be an EpisodicConfig"),
        ({"lr": -1}, InvalidArgumentError, "lr must be a finite number above 0; got -1"),
        ({"batch_size": 0}, InvalidArgumentError, "tasks_per_step must be a whole number of at l"),
        ({"backbone": "resnet19"}, InvalidArgumentError, "Unknown backbone 'resnet19'"),
        (
            {"system": None, "init": "x"},
            InvalidArgumentError,
            "init must be given together with system=NAME: base training starts from random",
        ),
        (
            {"system": None, "config": EpisodicConfig(backbone=NET, system="protonet")},
            InvalidArgumentError,
            "config holds settings of the system protonet; pass system=protonet too",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(root, tmp_path, change, error, message):
    given = {"dataset": "folder", "root": root, "backbone": NET, "system": "protonet",
             "out": tmp_path / "runs" / "one", "device": "cpu"}  # fmt: skip
    settings = SMALL | change.get("settings", {})
    if "batch_size" in change:
        settings.pop("tasks_per_step")
    if change.get("system", "") is None:
        settings = {}
    with pytest.raises(error, match=message) as caught:
        train(**{**given, **change, "settings": settings})
    one_sentence(caught)
    assert not any(tmp_path.iterdir())


def test_init_of_another_network_is_refused(root, tmp_path):
    save_conv4(tmp_path / "conv4")
    with pytest.raises(InvalidArgumentError, match=rf"of {NET}; .*conv4 is one of conv4") as caught:
        _train(root, tmp_path / "run", init=tmp_path / "conv4")
    one_sentence(caught)


def test_systems_that_need_a_network_or_parameters_say_so(root, base, tmp_path, monkeypatch):
    needy = System(name="needy", title="Needy", summary="x", reference="x", head=Linear,
                   trains="head", starts_from="frozen-base-network")  # fmt: skip
    monkeypatch.setattr("infoshot.training.episodic.registry.SYSTEMS", {**SYSTEMS, "needy": needy})
    with pytest.raises(InvalidArgumentError, match="init must be the checkpoint of a trained"):
        _train(root, tmp_path / "run", "needy")
    assert _train(root, tmp_path / "needy", "needy", init=base).config.backbone_rate == 0
    for system, message in (
        ("protonet", "for protonet, whose head has nothing to learn; got 0"),
        ("tests.heads:MapHead", "for tests.heads:MapHead, which reads maps, not features; got 0"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"backbone_rate must be above 0 {message}"):
            _train(root, tmp_path / "run", system, {"backbone_rate": 0}, init=base)


def test_backbone_without_maps_is_refused(root, tmp_path):
    with pytest.raises(InvalidArgumentError, match="must give feature maps, but PlainModule"):
        _train(root, tmp_path, "tests.heads:MapHead", backbone="tests.heads:VectorNet")


def test_missing_validation_gives_a_warning(tmp_path):
    root = make_folders(tmp_path / "data", 4, size=(20, 20), splits={"train": "abc", "test": "d"})
    with pytest.warns(UserWarning, match="fewer than 2 classes of 2 images, so there is no valid"):
        result = _train(root, tmp_path / "run")
    assert result.records[0].val_accuracy is None


def test_other_run_in_the_folder_is_refused(root, base, tmp_path):
    _train(root, tmp_path)
    for change, message in (
        ({"system": "matchnet"}, "protonet there, matchnet here"),
        ({"init": base}, "its init differs"),
        ({"settings": {"head.temperature": 7}}, "head.temperature 2.0 there, 7 here"),
    ):
        with pytest.raises(DataError, match=rf"different training run \({message}\)") as caught:
            _train(root, tmp_path, **change)
        one_sentence(caught)


def test_command_lists_the_systems(tmp_path):
    result = _run("systems", "--json", tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    entries = {entry["system"]: entry for entry in json.loads((tmp_path / "all.json").read_text())}
    assert entries.keys() == SYSTEMS.keys()
    for name, system in SYSTEMS.items():
        assert f"{name}: {system.title}" in result.stdout
        assert entries[name]["needs_init"] == system.needs_init
    assert "random weights; --init is optional" in result.stdout
    assert entries["protonet"]["reads"] == "vectors"
    balanced = {name for name, entry in entries.items() if entry["assumes"] == ["balance"]}
    assert balanced == {"sib", "maml"}
    assert all(entry["assumes"] == [] for name, entry in entries.items() if name not in balanced)
    # Fractions are rounded for people, published decimals and files are not.
    shown = " ".join(result.stdout.split())
    assert "drops=(0.3333, 0.3333, 0.6667, 0.8333), drop_factor=0.2" in shown
    assert "head.dropout=0.307651" in shown
    assert "head.l2_weight=3.623413e-10" in shown
    assert entries["metaopt"]["settings"]["drops"] == [1 / 3, 1 / 3, 2 / 3, 5 / 6]
    of_sib = result.stdout.partition("\nsib: ")[2].partition("\nleo: ")[0]
    assert "  assumes      balance (every class has about the same number of queries)" in of_sib


def test_command_names_options(root, tmp_path):
    arguments = ("train", "--dataset", "folder", "--root", root, "--backbone", NET, "--out",
                 tmp_path / "run", "--device", "cpu")  # fmt: skip
    result = _run(*arguments, "--init", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: --init must be given together with --system NAME: base training starts from "
        "random weights.\n"
    )
    result = _run(*arguments, "--system", "protonet", "--teacher", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: --teacher must be left out for a system, which is not distilled; to start from a "
        "trained network, pass --init CHECKPOINT.\n"
    )
    result = _run(*arguments, "--system", "protonte")
    assert result.exit_code == 2
    assert "Unknown system 'protonte'. Did you mean 'protonet'?" in result.stderr
