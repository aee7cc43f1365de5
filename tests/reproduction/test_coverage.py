"""How many of the 223 numbers of Tables 1 to 4 are measured, counted in the paper's own list."""

import csv
from importlib import resources

import pytest

from infoshot.reproduction.coverage import cover
from infoshot.reproduction.paper import ACCURACY_TABLES
from tests.reproduction.synthetic_results import make_results, source

ON_FEATURES = {"SimpleShot", "LaplacianShot", "TIM-ADM", "TIM-GD"}
VARIANTS = {"BD-CSPN", "Baseline", "Baseline++"}  # on the network of all other methods
UNAVAILABLE = {"TEAM", "vFSL"}
ALL_FILES = [
    ("mini-imagenet", "resnet18"), ("mini-imagenet", "wrn28-10"), ("cub", "resnet18"),
    ("mini-to-cub", "resnet18"),
]  # fmt: skip


def _printed():
    """Return Tables 1 to 4 as they are in the file, read without the package's code."""
    text = (resources.files("infoshot.reproduction") / "published.csv").read_text()
    return [line for line in csv.DictReader(text.splitlines()) if line["table"] != "table5"]


def _cover(folder, files, choose=lambda cell: [50.0, 60.0], experiments=ACCURACY_TABLES):
    results = make_results(folder, {source(*names): choose for names in files}, experiments)
    return cover(results, experiments)


def _no_images(cell):
    return "needs images (checkpoint and root)" if cell.over_network else [50.0, 60.0]


def test_all_numbers_that_our_data_and_methods_allow(tmp_path):
    files = [*ALL_FILES, ("mini-imagenet", "resnet12")]
    coverage = _cover(tmp_path, files)
    assert coverage.sentence == (
        "Measured 92 of the 223 numbers of Tables 1 to 4, 7 more with a variant of the system; 60 "
        "have no data here (tiered-ImageNet), 60 need their own training, 4 are published only "
        "(TEAM, vFSL)."
    )


@pytest.mark.parametrize("files", [ALL_FILES[:1], ALL_FILES[:2], ALL_FILES[2:], ALL_FILES])
def test_counts_equal_those_of_the_printed_tables(tmp_path, files):
    coverage = _cover(tmp_path, files, _no_images)
    datasets = {dataset for dataset, _ in files}
    lines = [line for line in _printed() if line["method"] not in UNAVAILABLE]
    assert len(lines) + 4 == len(coverage.entries) == 223
    with_data = [line for line in lines if line["dataset"] in datasets]
    ours = [line for line in with_data if line["method"] in ON_FEATURES | VARIANTS | {"Ent-min"}]
    ran = [
        line
        for line in ours
        if (line["dataset"], line["backbone"]) in files
        and line["parameters"] != "phi+W"
        and line["method"] != "Ent-min"
    ]
    variants = [line for line in ran if line["method"] in VARIANTS]
    counts = coverage.count()
    assert counts["published only"] == 4
    assert counts["no data"] == len(lines) - len(with_data)
    assert counts["needs its own training"] == len(with_data) - len(ours)
    assert counts["measured"] == len(ran) - len(variants)
    assert counts["variant"] == len(variants)
    assert counts["another backbone"] == (2 if files == ALL_FILES[:1] else 0)  # BD-CSPN
    assert counts["not run"] == len(ours) - len(ran) - counts["another backbone"]
    assert sum(coverage.count(table).total() for table in ACCURACY_TABLES) == 223


def test_what_was_not_run_has_a_reason(tmp_path):
    coverage = _cover(tmp_path, ALL_FILES, _no_images)
    reasons = {entry.text for entry in coverage.entries if entry.status == "not run"}
    assert reasons == {
        "not run: needs images (checkpoint and root)",
        "not run: no features of ResNet-12 on mini-ImageNet",
    }
    assert coverage.sentence.endswith(", 20 were not run (the report says why).")


def test_tables_that_were_not_requested_are_not_run(tmp_path):
    coverage = _cover(tmp_path, ALL_FILES, _no_images, experiments=("table1",))
    assert coverage.count("table1")["measured"] == 8 + 8 + 8
    assert coverage.count("table4")["measured"] == 0
    texts = {e.text for e in coverage.entries if e.published.table == "table3"}
    assert texts == {"not run: Table 3 was not requested", "needs its own training"}


def test_tiered_imagenet_counts_where_it_is_given(tmp_path):
    coverage = _cover(tmp_path, [("tiered-imagenet", "resnet18")])
    assert coverage.count()["measured"] == 8 + 24
    assert "no data here (mini-ImageNet, CUB, mini-ImageNet to CUB)" in coverage.sentence


def test_one_network_of_several_is_enough(tmp_path):
    files = {source("cub"): _no_images, source("cub", number=1): lambda cell: [50.0, 60.0]}
    coverage = cover(make_results(tmp_path, files), ACCURACY_TABLES)
    assert coverage.count("table4")["measured"] == 24
