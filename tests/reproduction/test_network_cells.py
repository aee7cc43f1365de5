"""Cells over the whole network: keys from provenance, parts of a cell, several networks."""

import dataclasses
import json
from itertools import islice

import pytest
import torch

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import Encoder, make_backbone
from infoshot.backbones.backbone import weights_digest
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.benchmark import Protocol
from infoshot.features.extract import Extraction
from infoshot.images import open_dataset
from infoshot.reproduction import whole_network
from infoshot.reproduction.api import reproduce
from infoshot.reproduction.ent_min import EntMin
from infoshot.reproduction.finetune import FineTuning
from infoshot.reproduction.measurements import run_cells
from infoshot.reproduction.paper import cells
from infoshot.reproduction.report_cells import (
    Plan,
    check_networks,
    dataset_of,
    network_of,
    plan_cells,
)
from infoshot.reproduction.report_sources import describe_file, read_sources
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.whole_network import Network, network_identity
from infoshot.tasks import TaskSpec
from tests.image_folders import make_folders

SPLITS = {"train": "ab", "val": "cd", "test": "efghi"}
SPEC = TaskSpec(n_way=3, n_shot=2, n_query=4)
ENT_MIN, *_, FULL_LOSS = [cell for name in ("table1", "table4") for cell in cells(name)
                          if cell.over_network]  # fmt: skip


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """Take two steps instead of 25, and store results every two tasks."""
    for adaptation in (FineTuning, EntMin):
        monkeypatch.setitem(adaptation.__init__.__kwdefaults__, "n_steps", 2)
    monkeypatch.setattr(whole_network, "_STORED_AT_ONCE", 2)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("images"), 20, splits=SPLITS, size=(30, 34))


def _network(root, seed=0, **how):
    torch.manual_seed(seed)
    backbone = make_backbone("conv4").eval()
    head = torch.nn.Linear(backbone.feature_dim, 6).state_dict()
    encoder = Encoder("conv4", backbone, weights_digest(backbone), classifier=head)
    how = Extraction(**{"resize": 24, "crop": 20, **how})
    return Network("folder", open_dataset("folder", root).split("test"), encoder, how)


def _keys(features, networks=()):
    plan = Plan(experiments=["table1", "table4"], n_tasks=4)
    planned = plan_cells(plan, features, networks)
    return [item.key for item in planned if item.cell.over_network]


def test_keys_from_provenance_equal_keys_from_the_network(root, tmp_path):
    network = _network(root)
    features = read_sources([network.extract(tmp_path)], [], [])
    keys = _keys(features)
    assert keys == _keys(features, [network])
    assert len(set(keys)) == 10
    [(source, table)] = features
    older = {**table.provenance, "transform": "resize 24, crop 20, bilinear", "infoshot": "0.1.0"}
    assert keys == _keys([(source, dataclasses.replace(table, provenance=older))])
    for name in ("weights_sha256", "split_sha256", "transform"):
        changed = {**table.provenance, name: "resize 92, crop 84"}
        assert not set(keys) & set(
            _keys([(source, dataclasses.replace(table, provenance=changed))])
        )
    unknown = dataclasses.replace(table, provenance={})
    assert set(_keys([(source, unknown)])) == {""}
    assert keys == _keys([(source, unknown)], [network])


def test_keys_depend_on_neither_the_device_nor_the_number_of_tasks(root, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.core.checks.device", lambda name: None)
    features = read_sources([_network(root).extract(tmp_path)], [], [])
    plan = Plan(experiments=["table4"], n_tasks=4)
    found = [
        [item.key for item in plan_cells(changed, features) if item.cell.over_network]
        for changed in (
            plan,
            dataclasses.replace(plan, n_network_tasks=2, device="cuda"),
            dataclasses.replace(plan, seed=1),
        )
    ]
    assert found[0] == found[1]
    assert not set(found[0]) & set(found[2])


@pytest.mark.parametrize("cell", [ENT_MIN, FULL_LOSS], ids=["ent-min", "TIM-GD"])
def test_an_interrupted_cell_resumes_to_the_same_accuracies(cell, root):
    network, protocol = _network(root), Protocol(spec=SPEC, n_tasks=5)
    *_, (whole_row, whole) = network.score(cell, protocol)
    assert (len(whole), whole_row.tasks) == (5, 5)
    stored = list(islice(network.score(cell, protocol), 2))  # killed after the second part
    assert [row.tasks for row, _ in stored] == [2, 4]
    assert [len(accuracies) for _, accuracies in stored] == [2, 4]
    *_, (row, resumed) = _network(root).score(cell, protocol, earlier=stored[-1])
    assert torch.equal(resumed, whole)
    assert (row.mean, row.ci95) == (whole_row.mean, whole_row.ci95)
    assert row.seconds > stored[-1][0].seconds


def test_tasks_of_another_kind_of_device_are_computed_again(root):
    network, protocol = _network(root), Protocol(spec=SPEC, n_tasks=3)
    first, _ = network.score(FULL_LOSS, protocol)
    elsewhere = dataclasses.replace(first[0], device="cuda"), torch.ones(2)
    *_, (_, accuracies) = network.score(FULL_LOSS, protocol, earlier=elsewhere)
    *_, (_, expected) = network.score(FULL_LOSS, protocol)
    assert torch.equal(accuracies, expected)


def test_a_stored_cell_is_continued_or_kept(root, tmp_path, monkeypatch):
    network = _network(root)
    features = read_sources([network.extract(tmp_path)], [], [])
    store = Store(tmp_path, [describe_file(*one) for one in features])
    drawn, image_tasks = [], whole_network.image_tasks

    def count(crops, split, spec, tasks):
        drawn.extend(tasks)
        return image_tasks(crops, split, spec, tasks)

    monkeypatch.setattr(whole_network, "image_tasks", count)
    for n_tasks, computed in ((3, [0, 1, 2]), (2, []), (5, [3, 4])):
        plan = Plan(experiments=["table4"], n_tasks=5, n_network_tasks=n_tasks)
        planned = [
            item
            for item in plan_cells(plan, features, [network])
            if item.cell.over_network and item.cell.shots == 1
        ][-1:]
        run_cells(planned, features, store, networks=[network])
        assert drawn == computed
        drawn.clear()
    (row,) = store.rows.values()
    assert row.tasks == len(store.accuracies[planned[0].key]) == 5


def test_a_network_belongs_to_the_features_it_made(root, tmp_path):
    other = make_folders(tmp_path / "o", 20, splits=SPLITS, size=(32, 30))
    one, two = _network(root), _network(other, seed=1)
    features = read_sources([one.extract(tmp_path), two.extract(tmp_path)], [], [])
    tables = [table for _, table in features]
    networks = [two, one]
    assert [network_of(table, networks) for table in tables] == [one, two]
    assert network_of(tables[0], [two]) is None
    assert [dataset_of(network.checkpoint, features) for network in networks] == ["folder"] * 2
    check_networks(features, networks)
    for other_network in (_network(root, seed=2), _network(other), _network(root, crop=16)):
        with pytest.raises(DataError, match="features must be those of the network in checkpoint"):
            check_networks(features, [one, other_network])


def test_a_shifted_data_set_does_not_decide_which_images_to_open(root, tmp_path):
    network = _network(root)
    [(source, table)] = read_sources([network.extract(tmp_path)], ["mini-imagenet"], [])
    shifted = (dataclasses.replace(source, dataset="mini-to-cub"), table)
    assert dataset_of(network.checkpoint, [shifted, (source, table)]) == "mini-imagenet"
    assert dataset_of(network.checkpoint, [shifted]) == "mini-to-cub"
    unnamed = (dataclasses.replace(source, dataset=""), table)
    assert dataset_of(network.checkpoint, [unnamed]) == "folder"
    with pytest.raises(DataError, match="got features of other weights"):
        dataset_of(_network(root, seed=1).checkpoint, [shifted, unnamed])


def test_provenance_without_a_network_identifies_none():
    assert network_identity({"dataset": "folder", "weights_sha256": "0"}) == ()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Two networks with images of their own; the second has no classifier."""
    folder = tmp_path_factory.mktemp("pairs")
    found = {"checkpoint": [], "root": []}
    for seed in (0, 1):
        torch.manual_seed(seed)
        backbone, name = make_backbone("conv4"), f"network{seed}"
        head = torch.nn.Linear(backbone.feature_dim, 2).state_dict() if seed == 0 else None
        save_checkpoint(folder / name, "conv4", backbone.state_dict(), classifier=head)
        found["checkpoint"].append(folder / name)
        found["root"].append(
            make_folders(folder / f"images{seed}", 20, splits=SPLITS, size=(30 + seed, 30))
        )
    return found


def test_several_networks_and_a_later_report_without_them(pairs, tmp_path):
    few = {"only": "table1", "tasks": 2, "gradient_tasks": 1, "network_tasks": 1}
    first = reproduce(tmp_path / "r", **pairs, dataset=["folder", "folder"], **few)
    text = (tmp_path / "r" / "tables.md").read_text()
    assert text.count("Not run, the checkpoint has no base classifier: Ent-min {phi+W}") == 1
    over = [row for row in first.rows if row.method == "ent-min over the whole network"]
    assert [row.shots for row in over] == [1, 5]
    assert over[0].settings == {"n_steps": 2, "learning_rate": 5e-5, "entropy_weight": 1.0}

    files = [tmp_path / "r" / source["name"] for source in _sources(tmp_path / "r")]
    later = reproduce(tmp_path / "r", features=files, **few)
    assert [(row.method, row.mean) for row in later.rows] == [
        (row.method, row.mean) for row in first.rows
    ]
    text = (tmp_path / "r" / "tables.md").read_text()
    assert text.count("Not run, needs images (checkpoint and root): Ent-min {phi+W}") == 1


def _sources(folder):
    return json.loads((folder / "results.json").read_text())["features"]


def test_networks_and_images_come_in_pairs(pairs, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"base_root must be given with a single"):
        reproduce(tmp_path / "r", **pairs, base_root=tmp_path)
    one_root = {**pairs, "root": pairs["root"][:1]}
    with pytest.raises(InvalidArgumentError, match=r"must be given in pairs; got 2 and 1\.$"):
        reproduce(tmp_path / "r", **one_root)
    assert not (tmp_path / "r").exists()
