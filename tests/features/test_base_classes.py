"""The base mean is that of the classes a network was trained on, wherever their images are."""

import json

import pytest
import torch

from infoshot import DataError, InvalidArgumentError, extract, read_features
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.images.splits import published_split
from tests.image_folders import make_folders
from tests.labelling.commands import run

MINI = {
    split: [name for name, own in published_split("mini-imagenet").items() if own == split][:5]
    for split in ("train", "test")
}
BIRDS = [f"{number:03}.Bird" for number in range(1, 21)]  # five test classes by the rule of CUB


def save(folder, dataset="", class_names=()):
    """Save a checkpoint with random weights, always the same, with a record of its training."""
    torch.manual_seed(0)
    config = {"dataset": dataset} if dataset else {}
    weights = make_backbone("conv4").state_dict()
    save_checkpoint(folder, "conv4", weights, class_names=tuple(class_names), config=config)
    return folder


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("mini"), 3, splits=MINI)


@pytest.fixture(scope="module")
def cub(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("cub"), 3, splits={"": BIRDS})


@pytest.fixture(scope="module")
def mini_network(tmp_path_factory):
    return save(tmp_path_factory.mktemp("network") / "c", "mini-imagenet", MINI["train"])


def mean_feature(dataset, root, checkpoint, split="train"):
    table = extract(dataset, root, checkpoint=checkpoint, split=split, dtype="float32")
    return table.features.double().mean(0)


def assert_mean(table, expected):
    torch.testing.assert_close(table.base_mean.double(), expected, rtol=1e-5, atol=1e-6)


def test_base_mean_of_cub_features_is_that_of_the_mini_imagenet_classes(cub, mini, mini_network):
    table = extract("cub", cub, checkpoint=mini_network, base_mean=True, base_root=mini)
    assert_mean(table, mean_feature("mini-imagenet", mini, mini_network))
    assert table.class_names == tuple(BIRDS[3::4])
    assert table.provenance["dataset"] == "cub"
    assert table.provenance["trained_on"] == table.provenance["base_dataset"] == "mini-imagenet"
    base = extract("mini-imagenet", mini, checkpoint=mini_network, split="train")
    assert table.provenance["base_sha256"] == base.provenance["split_sha256"]


def test_mean_of_other_classes_is_refused_with_the_next_step(cub, mini, mini_network, tmp_path):
    out = tmp_path / "f.safetensors"
    arguments = ("extract", "--dataset", "cub", "--root", cub, "--checkpoint", mini_network,
                 "--out", out, "--base-mean")  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 2
    assert "the network was trained on mini-imagenet and the images are of cub" in result.stderr
    assert "pass --base-root DIR with the images of mini-imagenet." in result.stderr
    assert not out.exists()
    result = run(*arguments[:-1], "--base-root", mini)  # which implies --base-mean
    assert result.exit_code == 0, result.output
    assert_mean(read_features(out), mean_feature("mini-imagenet", mini, mini_network))


def test_base_mean_of_the_same_data_set_needs_no_more(mini, mini_network):
    table = extract("mini-imagenet", mini, checkpoint=mini_network, base_mean=True)
    assert_mean(table, mean_feature("mini-imagenet", mini, mini_network))


def test_network_without_record_uses_the_train_classes_at_hand(cub, tmp_path):
    checkpoint = save(tmp_path / "c")
    table = extract("cub", cub, checkpoint=checkpoint, base_mean=True)
    assert_mean(table, mean_feature("cub", cub, checkpoint))
    assert "trained_on" not in table.provenance


def test_user_can_tell_what_a_file_of_weights_was_trained_on(cub, mini, tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "model_best.pth.tar"
    torch.save({"state_dict": make_backbone("conv4").state_dict()}, path)
    given = {"checkpoint": path, "backbone": "conv4", "base_root": mini}
    with pytest.raises(InvalidArgumentError, match=r"^base_dataset must be given together with"):
        extract("cub", cub, **given)
    table = extract("cub", cub, base_dataset="mini-imagenet", **given)
    assert_mean(table, mean_feature("mini-imagenet", mini, save(tmp_path / "c")))
    assert table.provenance["trained_on"] == "mini-imagenet"


def test_data_set_of_the_training_must_be_known_and_that_of_the_record(cub, mini_network):
    with pytest.raises(InvalidArgumentError, match=r"Unknown base_dataset 'mini'\."):
        extract("cub", cub, checkpoint=mini_network, base_dataset="mini")
    with pytest.raises(InvalidArgumentError, match=r"was trained on mini-imagenet, not on cub"):
        extract("cub", cub, checkpoint=mini_network, base_dataset="cub", base_mean=True)


def test_classes_of_the_training_must_be_there(mini, tmp_path):
    more = save(tmp_path / "more", "mini-imagenet", [*MINI["train"], "n13133613"])
    with pytest.raises(DataError, match=r"1 of its 6 classes are missing and 0 are others"):
        extract("mini-imagenet", mini, checkpoint=more, base_mean=True)
    half = save(tmp_path / "half", "mini-imagenet", MINI["train"][:3])
    with pytest.raises(DataError, match=r"0 of its 3 classes are missing and 2 are others"):
        extract("mini-imagenet", mini, checkpoint=half, base_mean=True)
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": MINI["train"][:3], "test": MINI["test"]}))
    table = extract("mini-imagenet", mini, checkpoint=half, base_mean=True, splits=splits)
    assert table.provenance["base_dataset"] == "mini-imagenet"


def test_layouts_with_other_names_of_a_published_data_set_are_accepted(mini, tmp_path):
    named = save(tmp_path / "c", "mini-imagenet", ["house finch", "robin"])
    table = extract("mini-imagenet", mini, checkpoint=named, base_mean=True)
    assert_mean(table, mean_feature("mini-imagenet", mini, named))


def test_two_folders_of_own_images_are_not_confused(tmp_path):
    first = make_folders(tmp_path / "first", 3, splits={"train": "ab", "test": "cd"})
    second = make_folders(tmp_path / "second", 3, splits={"train": "xy", "test": "vw"})
    only_test = make_folders(tmp_path / "third", 3, splits={"test": "vw"})
    network = save(tmp_path / "c", "folder", "ab")
    with pytest.raises(DataError, match=r"2 of its 2 classes are missing and 2 are others"):
        extract("folder", second, checkpoint=network, base_mean=True)
    with pytest.raises(DataError, match=r"third: there are no images of the split 'train', the b"):
        extract("folder", only_test, checkpoint=network, base_mean=True)
    for root in (second, only_test):
        table = extract("folder", root, checkpoint=network, base_root=first)
        assert_mean(table, mean_feature("folder", first, network))
