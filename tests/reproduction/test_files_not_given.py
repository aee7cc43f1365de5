"""Reports whose feature files are not all given: stored results, missing cells, refused files."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from infoshot import DataError, FeatureTable, InvalidArgumentError
from infoshot.features import default_features_path, write_features
from infoshot.reproduction import measurements
from infoshot.reproduction.api import reproduce

COMMITTED = Path(__file__).parents[2] / "results" / "reproduce"
FEW = {"tasks": 4, "gradient_tasks": 1}
PAGE, TABLES, RESULTS = "report.html", ("tables.md", "tables.tex"), "results.json"
MARK = "; not given, stored results)"


@pytest.fixture
def no_work(monkeypatch):
    """Return a function after whose call no cell may be computed."""

    def fail(*_, **__):
        raise AssertionError("computed")

    return lambda: monkeypatch.setattr(measurements, "score_cell", fail)


def _write(path, seed=0, *, weights="", dataset="cub", base_mean=True, **about):
    """Write features of a network; without ``weights`` they do not record it."""
    generator, labels = torch.Generator().manual_seed(seed), torch.arange(6)
    labels = labels.repeat_interleave(22)
    rows = torch.eye(24)[labels] + 0.5 * torch.rand(len(labels), 24, generator=generator)
    provenance = {"dataset": dataset, "backbone": "resnet18", **about}
    if weights:
        images = {"split_sha256": f"images of {dataset}", "transform": "resize 96, crop 84"}
        provenance |= {"weights_sha256": weights, **images}
    mean = torch.full((24,), 0.3) if base_mean else None
    path.parent.mkdir(exist_ok=True)
    write_features(path, FeatureTable(rows, labels, mean, provenance=provenance))
    return path


@pytest.fixture
def one(tmp_path):
    """A network."""
    return _write(tmp_path / "one.safetensors", weights="1")


@pytest.fixture
def two(tmp_path):
    """A network of another seed."""
    return _write(tmp_path / "two.safetensors", 1, weights="2")


def _tables(folder):
    return [(folder / name).read_text() for name in TABLES]


def _entries(folder):
    return json.loads((folder / RESULTS).read_text())["features"]


def _means(result):
    return sorted((row.features_digest, row.method, row.ways, row.shots, row.mean)
                  for row in result.rows)  # fmt: skip


def test_results_are_shown_without_the_files(one, two, tmp_path, no_work):
    other = _write(tmp_path / "other.safetensors", 2, weights="3", dataset="mini-imagenet")
    arguments = {"only": ["table1", "table3", "table4"], **FEW}
    first = reproduce(tmp_path / "r", features=[one, two, other], **arguments)
    tables, stored = _tables(first.folder), (first.folder / RESULTS).read_bytes()
    assert MARK not in (first.folder / PAGE).read_text()
    no_work()
    for given in ([two], other, [other, one], None):
        again = reproduce(tmp_path / "r", features=given, **arguments)
        assert _means(again) == _means(first)
        assert again.coverage == first.coverage
        assert again.findings == first.findings
        assert _tables(again.folder) == tables
        assert (again.folder / RESULTS).read_bytes() == stored
    page = (again.folder / PAGE).read_text()
    assert page.count(MARK) == 3
    assert re.search(r"two\.safetensors \(sha256 \w{16}\.\.\." + re.escape(MARK), page)


def test_a_second_file_is_added_without_the_first(one, two, tmp_path):
    first = reproduce(tmp_path / "r", features=one, only="table1", **FEW)
    both = reproduce(tmp_path / "r", features=two, only="table1", **FEW)
    assert len(both.rows) == 2 * len(first.rows)
    assert set(_means(first)) < set(_means(both))
    assert [entry["name"] for entry in _entries(both.folder)] == [one.name, two.name]
    assert "CUB, ResNet-18, 2 networks" in (both.folder / PAGE).read_text()
    together = reproduce(tmp_path / "together", features=[one, two], only="table1", **FEW)
    assert _tables(both.folder) == _tables(together.folder)


def test_missing_cells_say_which_file_they_need(one, two, tmp_path, no_work):
    reproduce(tmp_path / "r", features=one, only="table1", **FEW)
    arguments = {"only": ["table1", "table4"], **FEW}
    partial = reproduce(tmp_path / "r", features=two, **arguments)
    text = _tables(partial.folder)[0]
    assert "Not run, needs the feature file one.safetensors: TIM-ADM {W}: CE+H(Y" in text
    assert "1 of 2 networks" in text
    complete = reproduce(tmp_path / "r", features=one, **arguments)
    assert "needs the feature file" not in _tables(complete.folder)[0]
    assert len(complete.rows) > len(partial.rows)
    no_work()
    more = {**arguments, "tasks": 5}
    later = reproduce(tmp_path / "r", **more)  # stored results of fewer tasks are shown
    assert _means(later) == _means(complete)


def test_the_row_of_a_system_does_not_need_its_network(one, tmp_path, no_work):
    distilled = _write(tmp_path / "system.safetensors", 1, weights="2", recipe="distilled",
                       dataset="mini-imagenet")  # fmt: skip
    first = reproduce(tmp_path / "r", features=[one, distilled], only="table1", **FEW)
    distilled.unlink()
    no_work()
    again = reproduce(tmp_path / "r", features=one, only="table1", **FEW)
    assert [row.method for row in again.rows].count("distill") == 2
    assert (again.coverage, _tables(again.folder)) == (first.coverage, _tables(first.folder))


def test_what_a_file_does_not_allow_is_said_without_it(tmp_path, two):
    """The file would not help: it has six classes and no base mean."""
    path = _write(tmp_path / "one.safetensors", weights="1", base_mean=False)
    reproduce(tmp_path / "r", features=path, only="table1", **FEW)
    result = reproduce(tmp_path / "r", features=two, only=["table1", "table3"], **FEW)
    text = _tables(result.folder)[0]
    assert "Not run, the feature file has no base_mean: SimpleShot; LaplacianShot." in text
    assert "Not run, 20 classes are needed, there are 6: " in text
    assert "Not run, 10 classes are needed, there are 6: " in text


def test_the_embedded_file_is_not_added_to_results_of_others(one, tmp_path, no_work):
    default = default_features_path().name
    first = reproduce(tmp_path / "own", features=one, only=["table1", "table5"], **FEW)
    default_report = reproduce(tmp_path / "r", only="table1", **FEW)
    assert [entry["name"] for entry in _entries(default_report.folder)] == [default]
    reproduce(tmp_path / "r", features=one, only="table1", **FEW)
    resumed = reproduce(tmp_path / "r", only=["table1", "table4"], **FEW)
    page = (resumed.folder / PAGE).read_text()
    assert page.count(MARK) == 1  # the embedded file is always at hand
    assert "needs the feature file one.safetensors" in page
    assert f"needs the feature file {default}" not in page
    no_work()
    again = reproduce(tmp_path / "own", only=["table1", "table5", "figure1"], **FEW)
    assert _means(again) == _means(first)
    assert [entry["name"] for entry in _entries(again.folder)] == [one.name]
    assert not (again.folder / "figure1.png").exists()
    with pytest.raises(InvalidArgumentError, match=r"for each feature file; got 1 for 0\.$"):
        reproduce(tmp_path / "own", dataset="cub", only="table1", **FEW)


def test_features_of_the_same_network_are_refused(one, tmp_path, no_work):
    """Extracted again, they would count as a second network."""
    again = _write(tmp_path / "again.safetensors", 3, weights="1")
    reproduce(tmp_path / "r", features=one, only="table1", **FEW)
    before = (tmp_path / "r" / RESULTS).read_bytes()
    no_work()
    with pytest.raises(DataError) as caught:
        reproduce(tmp_path / "r", features=again, only="table1", **FEW)
    assert str(caught.value) == (
        f"{tmp_path / 'r' / RESULTS}: holds results of one.safetensors, and again.safetensors has "
        "the same weights and images but other content; pass the first one instead, or out=DIR for "
        "another report."
    )
    with pytest.raises(InvalidArgumentError) as caught:
        reproduce(tmp_path / "r", features=[one, again], only="table1", **FEW)
    assert str(caught.value) == (
        "features must be of different networks; got 'one.safetensors' and 'again.safetensors' "
        "with the same weights and images."
    )
    assert (tmp_path / "r" / RESULTS).read_bytes() == before


def test_sizes_of_own_images_are_compared_in_one_report(tmp_path):
    """Own images are never averaged, so several files of a network are no error."""
    paths = [
        _write(tmp_path / f"{name}.safetensors", number, weights="1", dataset="folder")
        for number, name in enumerate(("small", "large"))
    ]
    assert len(reproduce(tmp_path / "r", features=paths, only="table1", **FEW).rows) == 2 * 14


def test_a_file_that_may_be_of_the_same_network_is_refused(one, tmp_path, no_work):
    unknown = _write(tmp_path / "unknown.safetensors", 1)
    reproduce(tmp_path / "r", features=unknown, only="table1", **FEW)
    before = (tmp_path / "r" / RESULTS).read_bytes()
    with pytest.raises(DataError) as caught:
        reproduce(tmp_path / "r", features=one, only="table1", **FEW)
    assert str(caught.value).endswith(
        "results.json: holds results of unknown.safetensors, which may be of the same network as "
        "one.safetensors, because one of them does not record its weights; pass both files, or "
        "out=DIR for another report."
    )
    assert (tmp_path / "r" / RESULTS).read_bytes() == before
    shifted = _write(tmp_path / "shifted.safetensors", 2, dataset="mini-imagenet")
    result = reproduce(tmp_path / "r", features=shifted, only="table1", **FEW)  # never averaged
    assert len(_entries(result.folder)) == 2
    reproduce(tmp_path / "r", features=[one, unknown], only="table1", **FEW)
    no_work()
    assert len(reproduce(tmp_path / "r", features=[], only="table1", **FEW).rows) == 3 * 14


def test_files_of_one_name_get_different_names(tmp_path):
    paths = [
        _write(tmp_path / name / "test.safetensors", number, weights=name)
        for number, name in enumerate(("seed0", "seed1"))
    ]
    for path in paths:
        reproduce(tmp_path / "r", features=path, only="table1", **FEW)
    digest = _entries(tmp_path / "r")[0]["digest"]
    names = [f"test.safetensors ({digest[:8]})", "test.safetensors"]
    assert [entry["name"] for entry in _entries(tmp_path / "r")] == names
    reproduce(tmp_path / "r", features=paths, only="table1", **FEW)
    names = ["seed0/test.safetensors", "seed1/test.safetensors"]
    assert [entry["name"] for entry in _entries(tmp_path / "r")] == names


def test_reports_of_earlier_versions_record_sources_only(one, two, tmp_path, no_work):
    other = _write(tmp_path / "other.safetensors", 2, weights="3", dataset="mini-imagenet")
    first = reproduce(tmp_path / "r", features=[one, other], only="table1", **FEW)
    path = first.folder / RESULTS
    document, complete = json.loads(path.read_text()), path.read_bytes()
    for entry in document["features"]:
        for name in ("network", "n_classes", "no_base_mean"):
            del entry[name]
    path.write_text(json.dumps(document))
    with pytest.raises(
        DataError, match=r"one\.safetensors, which may be of the same network as tw"
    ):
        reproduce(first.folder, features=two, only="table1", **FEW)
    no_work()
    assert _means(reproduce(first.folder, features=other, only="table1", **FEW)) == _means(first)
    later = reproduce(first.folder, features=other, only=["table1", "table3"], **FEW)
    assert "Not run, needs the feature file one.safetensors: " in _tables(later.folder)[0]
    reproduce(first.folder, features=[one, other], only="table1", **FEW)
    assert path.read_bytes() == complete


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results/ is not part of the installed package")
def test_the_committed_report_is_made_again_without_features(tmp_path, no_work):
    """Among its numbers are those of whitened features and over the whole network."""
    shutil.copytree(COMMITTED, tmp_path / "r")
    path = COMMITTED.parent / "training" / "cub-resnet18" / "seed3"
    features = path / "cub_test_resnet18_seed3.safetensors"
    no_work()
    tables = [f"table{number}" for number in range(1, 6)]
    arguments = {"only": tables, "tasks": 2000, "gradient_tasks": 300}
    result = reproduce(tmp_path / "r", features=features, **arguments)
    assert _tables(result.folder) == _tables(COMMITTED)
