"""The paper as data: printed numbers and the cells they belong to."""

import csv
from dataclasses import astuple
from importlib import resources

import pytest

from infoshot import InvalidArgumentError
from infoshot.reproduction.paper import EXPERIMENTS, LOSSES, cells, published_rows
from infoshot.solvers import METHODS, Method

TIERED_5 = {"dataset": "tiered-imagenet", "shots": 5}
FULL_LOSS = "CE-H(Y)+H(Y|X)"
# Numbers per line of Table 1, counted in the paper, group after group: inductive and transductive
# methods with ResNets, then with WRN28-10.
NUMBERS_PER_METHOD = {
    ("resnet", False): [4, 4, 4, 4, 2, 2, 4, 4, 6, 4],
    ("resnet", True): [2, 2, 2, 2, 2, 4, 4, 6, 6, 6],
    ("wrn28-10", False): [4, 4, 2, 4, 4],
    ("wrn28-10", True): [4, 4, 2, 4, 4, 4, 4],
}


def _value(table, **fields):
    found = [
        row.value
        for row in published_rows(table)
        if all(getattr(row, name) == value for name, value in fields.items())
    ]
    assert len(found) == 1, fields
    return found[0]


def test_counts_per_table():
    counts = {
        table: len(published_rows(table))
        for table in ("table1", "table2", "table3", "table4", "table5")
    }
    # Ways: five methods have numbers for 5 shots only, three have all. Ablation: twelve lines.
    assert counts == {
        "table1": 118,
        "table2": 11,
        "table3": 5 * 2 + 3 * 4,
        "table4": 12 * 6,
        "table5": 4,
    }
    assert len(published_rows()) == sum(counts.values())


@pytest.mark.parametrize("group", NUMBERS_PER_METHOD)
def test_numbers_per_method_of_table_1(group):
    backbone, transductive = group
    counts = {}
    for row in published_rows("table1"):
        if row.backbone.startswith(backbone) and row.transductive == transductive:
            counts[row.method] = counts.get(row.method, 0) + 1
    assert list(counts.values()) == NUMBERS_PER_METHOD[group]


@pytest.mark.parametrize(
    ("value", "table", "method", "fields"),
    [
        (68.4, "table1", "MAML", {"dataset": "cub", "shots": 1}),
        (86.0, "table1", "Distill", TIERED_5),
        (56.3, "table1", "MatchNet+T", {"transductive": True, "shots": 1}),
        (86.92, "table1", "BD-CSPN", TIERED_5),
        (89.8, "table1", "TIM-GD", {"backbone": "wrn28-10", **TIERED_5}),
        (66.9, "table2", "GNN", {"backbone": "resnet10"}),
        (71.0, "table2", "TIM-GD", {"transductive": True}),
        (32.4, "table3", "SimpleShot", {"ways": 20, "shots": 1}),
        (72.9, "table3", "TIM-ADM", {"ways": 10, "shots": 5}),
        (86.5, "table4", "TIM-ADM", {"loss": "CE+H(Y|X)", "dataset": "cub", "shots": 5}),
        (85.4, "table4", "TIM-GD", {"parameters": "phi+W", "loss": "CE-H(Y)", **TIERED_5}),
        (21.0, "table5", "Ent-min", {"parameters": "phi+W"}),
        (0.009, "table5", "SimpleShot", {"transductive": False}),
    ],
)
def test_values_are_those_of_the_paper(value, table, method, fields):
    assert _value(table, method=method, **fields) == value


def test_the_paper_repeats_its_own_numbers_in_the_ablation():
    repeated = [
        row for row in published_rows("table4") if row.parameters == "W" and row.loss == FULL_LOSS
    ]
    assert len(repeated) == 12
    for row in repeated:
        same = {name: getattr(row, name) for name in ("method", "backbone", "dataset", "shots")}
        assert _value("table1", **same) == row.value


def test_more_examples_and_fewer_classes_are_easier():
    values = {astuple(row)[:-1]: row.value for row in published_rows() if row.table != "table5"}
    for (*setting, ways, shots), value in values.items():
        if shots == 1:
            assert values[(*setting, ways, 5)] > value
        if ways == 20:
            assert values[(*setting, 10, shots)] > value


def test_no_number_occurs_twice():
    settings = [astuple(row)[:-1] for row in published_rows()]
    assert len(set(settings)) == len(settings)


def test_fields_have_known_values():
    for row in published_rows():
        assert row.backbone in ("resnet10", "resnet12", "resnet18", "wrn28-10")
        assert row.dataset in ("mini-imagenet", "tiered-imagenet", "cub", "mini-to-cub")
        assert (row.dataset == "mini-to-cub") == (row.table == "table2")
        assert row.parameters in (("W", "phi+W") if row.table in ("table4", "table5") else "")
        losses = ("CE", "CE+H(Y|X)", "CE-H(Y)", FULL_LOSS)
        assert row.loss in (losses if row.table == "table4" else "")
        assert row.ways in ((10, 20) if row.table == "table3" else (5,))
        assert row.shots in (1, 5)
        low, high = (0.001, 100) if row.table == "table5" else (30, 95)
        assert low < row.value < high


def test_the_file_marks_transductive_methods_by_yes_and_no():
    path = resources.files("infoshot.reproduction") / "published.csv"
    lines = list(csv.DictReader(path.read_text().splitlines()))
    assert {line["transductive"] for line in lines} == {"yes", "no"}
    assert all(None not in line and None not in line.values() for line in lines)


def test_an_unknown_table_raises():
    with pytest.raises(InvalidArgumentError, match=r"table.*table1.*table9"):
        published_rows("table9")


def test_published_numbers_belong_to_the_cells():
    found = {
        (cell.name, cell.ways, cell.shots, cell.parameters, cell.loss): cell.published(
            "mini-imagenet", "resnet18"
        )
        for name in EXPERIMENTS
        for cell in cells(name)
    }
    assert found["TIM-ADM", 5, 1, "", ""] == 73.6
    assert found["SimpleShot", 20, 5, "", ""] == 55.4
    assert found["TIM-GD", 5, 1, "W", "CE+H(Y|X)"] == 35.3
    assert found["TIM-ADM", 5, 5, "W", "CE"] == 79.6
    assert all(found["TIM-ADM", 5, shots, "W", loss] for shots in (1, 5) for loss in LOSSES)


def test_entropy_minimisation_of_table_1_is_a_cell_over_the_whole_network():
    by_setting = {cell.setting for cell in cells("table1") if cell.over_network}
    printed = [row for row in published_rows("table1") if row.method == "Ent-min"]
    assert len(printed) == 8
    assert {row.setting for row in printed} == by_setting


def test_methods_of_a_user_are_rows_of_tables_1_to_3_without_published_numbers():
    own = Method(name="mine", solver=METHODS["tim-adm"].solver)
    added = {name: [cell for cell in cells(name, [own]) if cell.run is own] for name in EXPERIMENTS}
    settings = {name: [(cell.ways, cell.shots) for cell in found] for name, found in added.items()}
    assert settings == {
        "table1": [(5, 1), (5, 5)],
        "table2": [(5, 5)],
        "table3": [(10, 1), (10, 5), (20, 1), (20, 5)],
        "table4": [],
        "table5": [],
        "figure1": [],
    }
    assert added["table1"][0].name == "mine"
    assert added["table1"][0].published("mini-imagenet", "resnet18") is None
