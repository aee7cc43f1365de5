"""``infoshot reproduce`` with networks: files, base classes, numbers to compare with."""

import json
import re
from pathlib import Path

import pytest
import torch

from infoshot import read_features, write_features
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint
from infoshot.features.api import extract
from infoshot.images.splits import published_split
from infoshot.reproduction.ent_min import EntMin
from infoshot.reproduction.paper import comparable_dataset
from tests.image_folders import make_folders
from tests.labelling.commands import run

RESNET18 = Path(__file__).parents[2] / "results" / "training" / "resnet18" / "checkpoint"
TABLE1 = ("--only", "table1", "--tasks", 4, "--gradient-tasks", 1, "--network-tasks", 1)
TABLES = ("--only", "table1,table2", "--tasks", 4, "--gradient-tasks", 1)
MINI = {
    split: [name for name, own in published_split("mini-imagenet").items() if own == split][:5]
    for split in ("train", "test")
}
BIRDS = [f"{number:03}.Bird" for number in range(1, 21)]  # five test classes by the rule of CUB


@pytest.fixture(autouse=True)
def _one_epoch(monkeypatch):
    """Fine-tune for one epoch instead of 25."""
    monkeypatch.setitem(EntMin.__init__.__kwdefaults__, "n_steps", 1)


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("mini"), 20, (40, 40), MINI)


@pytest.fixture(scope="module")
def cub(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("cub"), 20, (40, 40), {"": BIRDS})


@pytest.fixture(scope="module")
def conv4():
    torch.manual_seed(0)
    return make_backbone("conv4").eval()


@pytest.fixture(scope="module")
def mini_network(conv4, tmp_path_factory):
    """A checkpoint that records mini-ImageNet."""
    folder = tmp_path_factory.mktemp("network") / "checkpoint"
    config, names = {"dataset": "mini-imagenet"}, tuple(MINI["train"])
    save_checkpoint(folder, "conv4", conv4.state_dict(), config=config, class_names=names)
    return folder


def save_release(path, backbone):
    """Write weights as the authors' code does, during a training on several GPUs."""
    network = torch.nn.Module()
    network.module = torch.nn.Module()
    for name, child in backbone.named_children():
        network.module.add_module(name, child)
    network.module.fc = torch.nn.Linear(backbone.feature_dim, 64)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    sum(value.sum() for value in network.module.fc.parameters()).backward()
    optimizer.step()
    content = {
        "epoch": 90,
        "arch": "resnet18",
        "state_dict": network.state_dict(),
        "best_prec1": torch.tensor(0.61),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(content, path)
    assert all(name.startswith("module.") for name in content["state_dict"])
    return path


def results(out):
    return json.loads((out / "results.json").read_text())


def extracted(out):
    """The table that a report extracted."""
    (path,) = out.glob("features-*.safetensors")
    return read_features(path)


def reproduce(*arguments):
    result = run("reproduce", *arguments)
    assert result.exit_code == 0, result.output


def test_file_in_the_layout_of_the_authors(conv4, mini_network, mini, tmp_path):
    path = save_release(tmp_path / "model_best.pth.tar", conv4)
    arguments = ("--checkpoint", path, "--root", mini, "--out", tmp_path / "r", *TABLE1)
    reproduce(*arguments, "--backbone", "conv4")
    table = extracted(tmp_path / "r")
    expected = extract("mini-imagenet", mini, checkpoint=mini_network, base_mean=True,
                       dtype="float32")  # fmt: skip
    assert torch.equal(table.features, expected.features)
    assert torch.equal(table.base_mean, expected.base_mean)
    assert table.provenance["backbone"] == "conv4"
    methods = {row["method"] for row in results(tmp_path / "r")["rows"]}
    assert "ent-min over the whole network" in methods  # the file has the base classifier
    result = run("reproduce", *arguments)
    assert result.exit_code == 2
    assert "does not record its network; pass --backbone NAME as well" in result.stderr


@pytest.mark.slow
def test_real_network_in_the_layout_of_the_authors(mini, tmp_path):
    if not RESNET18.is_dir():
        pytest.skip("results/ is not part of this distribution")
    path = save_release(tmp_path / "model_best.pth.tar", load_checkpoint(RESNET18).backbone)
    reproduce("--checkpoint", path, "--backbone", "resnet18", "--root", mini,
              "--out", tmp_path / "file", *TABLE1)  # fmt: skip
    reproduce("--checkpoint", RESNET18, "--root", mini, "--out", tmp_path / "folder", *TABLE1)
    file, folder = extracted(tmp_path / "file"), extracted(tmp_path / "folder")
    assert torch.equal(file.features, folder.features)
    means = [
        {(row["method"], row["shots"]): row["mean"] for row in results(tmp_path / name)["rows"]}
        for name in ("file", "folder")
    ]
    shared = means[0].keys() & means[1].keys()
    # The checkpoint records 64 base classes, of which five are here: it gets no base mean.
    assert len(shared) == len(means[1]) == 10
    assert all(means[0][key] == means[1][key] for key in shared)
    assert "73.6" in (tmp_path / "file" / "tables.md").read_text()


def test_base_mean_is_extracted_so_that_all_methods_run(mini_network, mini, tmp_path):
    reproduce("--checkpoint", mini_network, "--root", mini, "--out", tmp_path / "r", *TABLE1)
    train = extract("mini-imagenet", mini, checkpoint=mini_network, split="train", dtype="float32")
    table = extracted(tmp_path / "r")
    torch.testing.assert_close(table.base_mean, train.features.mean(0))
    methods = {row["method"] for row in results(tmp_path / "r")["rows"]}
    assert {"simpleshot", "laplacianshot"} <= methods
    text = (tmp_path / "r" / "tables.md").read_text()
    reasons = re.findall(r"Not run, (.*?): ", text)
    assert reasons == ["the checkpoint has no base classifier"]
    verdict = next(line for line in text.splitlines() if "above SimpleShot and Laplacian" in line)
    assert "not run" not in verdict


def test_cub_images_and_a_mini_imagenet_network_are_the_domain_shift(
    mini_network, mini, cub, tmp_path
):
    arguments = ("--checkpoint", mini_network, "--root", cub, "--dataset", "cub", *TABLES)
    reproduce(*arguments, "--base-root", mini, "--out", tmp_path / "r")
    assert results(tmp_path / "r")["features"][0]["dataset"] == "mini-to-cub"
    train = extract("mini-imagenet", mini, checkpoint=mini_network, split="train", dtype="float32")
    torch.testing.assert_close(extracted(tmp_path / "r").base_mean, train.features.mean(0))
    text = (tmp_path / "r" / "tables.md").read_text()
    assert "Domain shift: from mini-ImageNet to CUB, run here on features-" in text
    assert "Not run, " not in text


def test_report_says_that_the_base_classes_are_missing(mini_network, cub, tmp_path):
    arguments = ("--checkpoint", mini_network, "--root", cub, "--dataset", "cub", *TABLES)
    reproduce(*arguments, "--out", tmp_path / "r")
    assert extracted(tmp_path / "r").base_mean is None
    text = (tmp_path / "r" / "tables.md").read_text()
    lines = text.splitlines()
    reason = "Not run, no images of the base classes (train classes of mini-imagenet) under root"
    assert re.search(re.escape(reason) + r".*: SimpleShot; LaplacianShot\.", text)
    for method in ("SimpleShot", "LaplacianShot"):
        assert any(line.startswith(f"| {method} |") and "| not run |" in line for line in lines)
    assert any(line.startswith("| TIM-ADM |") and "not run" not in line for line in lines)


def test_images_of_another_data_set_must_be_named(mini_network, cub, tmp_path):
    result = run("reproduce", "--checkpoint", mini_network, "--root", cub, "--out", tmp_path / "r")
    assert result.exit_code == 2
    message = "there are no images of the test classes of mini-imagenet; pass --dataset NAME of th"
    assert message in result.stderr
    assert not (tmp_path / "r").exists()


def test_wrong_folder_of_base_classes_is_an_error(mini_network, cub, tmp_path):
    result = run("reproduce", "--checkpoint", mini_network, "--root", cub, "--dataset", "cub",
                 "--base-root", cub, "--out", tmp_path / "r", *TABLES)  # fmt: skip
    assert result.exit_code == 2
    assert "there are no images of the split 'train'" in result.stderr
    assert not (tmp_path / "r").exists()
    result = run("reproduce", "--base-root", cub, "--out", tmp_path / "r")
    assert result.exit_code == 2
    assert "--base-root must be given together with --checkpoint DIR." in result.stderr
    result = run("reproduce", "--base-dataset", "cub", "--out", tmp_path / "r")
    assert "--base-dataset must be given together with --checkpoint DIR." in result.stderr


def test_user_tells_that_a_file_without_record_is_the_domain_shift(conv4, mini, cub, tmp_path):
    path = save_release(tmp_path / "model_best.pth.tar", conv4)
    reproduce("--checkpoint", path, "--backbone", "conv4", "--root", cub, "--base-root", mini,
              "--dataset", "mini-to-cub", "--out", tmp_path / "r", *TABLES)  # fmt: skip
    assert results(tmp_path / "r")["features"][0]["dataset"] == "mini-to-cub"
    provenance = extracted(tmp_path / "r").provenance
    assert (provenance["dataset"], provenance["base_dataset"]) == ("cub", "mini-imagenet")
    arguments = ("--checkpoint", path, "--backbone", "conv4", "--root", cub, "--base-root", mini,
                 "--dataset", "cub", "--out", tmp_path / "same", *TABLES)  # fmt: skip
    result = run("reproduce", *arguments)
    assert result.exit_code == 2
    assert "--base-dataset must be given together with --base-root DIR" in result.stderr
    reproduce(*arguments, "--base-dataset", "mini-imagenet")
    assert results(tmp_path / "same")["features"] == results(tmp_path / "r")["features"]


def test_feature_file_decides_what_it_is_compared_with(mini_network, cub, tmp_path):
    path = tmp_path / "cub.safetensors"
    result = run("extract", "--dataset", "cub", "--root", cub, "--checkpoint", mini_network,
                 "--out", path)  # fmt: skip
    assert result.exit_code == 0, result.output
    arguments = ("--features", path, "--backbone", "resnet18", *TABLES)
    reproduce(*arguments, "--out", tmp_path / "shift")
    line = next(
        line
        for line in (tmp_path / "shift" / "tables.md").read_text().splitlines()
        if line.startswith("| TIM-ADM | balance |")
    )
    assert "| 70.3 |" in line  # the paper's Table 2; CUB-trained networks have 90.7
    reproduce(*arguments, "--dataset", "cub", "--out", tmp_path / "cub")
    assert results(tmp_path / "cub")["features"][0]["dataset"] == "cub"


def test_files_of_older_versions_are_compared_by_their_data_set(mini_network, cub, tmp_path):
    table = extract("cub", cub, checkpoint=mini_network, dtype="float32")
    for name in ("trained_on", "epoch", "checkpoint"):
        table.provenance.pop(name, None)
    write_features(tmp_path / "old.safetensors", table)
    reproduce("--features", tmp_path / "old.safetensors", "--out", tmp_path / "r", *TABLE1)
    assert results(tmp_path / "r")["features"][0]["dataset"] == "cub"


@pytest.mark.parametrize(
    ("dataset", "trained_on", "expected"),
    [
        ("cub", "mini-imagenet", "mini-to-cub"),
        ("cub", "cub", "cub"),
        ("cub", "", "cub"),
        ("mini-imagenet", "cub", ""),  # the paper has no such numbers
        ("cub", "tiered-imagenet", ""),
        ("folder", "mini-imagenet", "folder"),
        ("", "mini-imagenet", ""),
    ],
)
def test_published_numbers_must_be_of_the_same_training(dataset, trained_on, expected):
    assert comparable_dataset(dataset, trained_on) == expected
