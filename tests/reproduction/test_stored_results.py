"""Stored results of a report: other devices, more and fewer tasks, files of earlier versions."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from infoshot import FeatureTable
from infoshot.features import write_features
from infoshot.reproduction import measurements
from infoshot.reproduction.api import reproduce
from infoshot.reproduction.report_store import Store

SMALL = {"tasks": 20, "gradient_tasks": 1}


@pytest.fixture
def features(tmp_path):
    """Random features of 20 classes, quick to solve, without a base mean."""
    rows = torch.rand(20 * 22, 8, generator=torch.Generator().manual_seed(0)) + 0.1
    path = tmp_path / "random.safetensors"
    write_features(path, FeatureTable(rows, torch.arange(20).repeat_interleave(22)))
    return path


def test_stored_results_serve_other_devices_and_fewer_tasks(features, tmp_path, monkeypatch):
    """A report of a GPU is extended without one; a result is replaced by one with more tasks."""
    arguments = {"features": features, "only": "table1"}
    first = reproduce(tmp_path / "r", **arguments, **SMALL)
    calls, score = [], measurements.score_cell

    def count(table, method, protocol, **options):
        calls.append(protocol.n_tasks)
        return score(table, method, dataclasses.replace(protocol, device="cpu"), **options)

    monkeypatch.setattr(measurements, "score_cell", count)
    monkeypatch.setattr("infoshot.core.checks.device", lambda name: None)
    again = reproduce(tmp_path / "r", tasks=8, gradient_tasks=1, device="cuda", **arguments)
    assert not calls
    assert [row.mean for row in again.rows] == [row.mean for row in first.rows]
    more = reproduce(tmp_path / "r", tasks=21, gradient_tasks=1, device="cuda", **arguments)
    assert set(calls) == {21}
    assert "numbers; " not in more.report.read_text()  # all of one machine
    by_cell = {(row.method, row.shots): row.tasks for row in more.rows}
    assert by_cell["prototype", 1] == 21
    assert by_cell["tim-gd", 1] == 1  # not computed again


def test_a_report_of_two_machines_says_so(features, tmp_path):
    arguments = {"features": features, "only": "table1", **SMALL}
    n_rows = len(reproduce(tmp_path / "r", **arguments).rows)
    path = tmp_path / "r" / "results.json"
    document = json.loads(path.read_text())
    for row in document["rows"][:3]:
        row["device"] = "cuda:0"
        row["environment"] = {**row["environment"], "gpu": "Fast GPU"}
    path.write_text(json.dumps(document))
    text = reproduce(tmp_path / "r", **arguments).report.read_text()
    assert f"cores): {n_rows - 3} numbers; the first of them below" in text
    assert "Fast GPU: 3 numbers; " in text


def test_reports_of_earlier_versions_hold_accuracies(features, tmp_path, monkeypatch):
    """Files of today hold numbers of correct queries; both are read."""
    path = tmp_path / "r" / "accuracies.safetensors"
    first = reproduce(tmp_path / "r", features=features, only=["table1", "table3"], **SMALL)
    counts = load_file(path)
    assert {tensor.dtype for tensor in counts.values()} == {torch.uint8}
    rows = json.loads((tmp_path / "r" / "results.json").read_text())["rows"]
    n_queries = {row["key"]: row["ways"] * row["queries"] for row in rows}
    save_file({key: tensor / n_queries[key] for key, tensor in counts.items()}, path)
    monkeypatch.setattr(measurements, "score_cell", None)
    again = reproduce(tmp_path / "r", features=features, only=["table1", "table3"], **SMALL)
    assert [row.mean for row in again.rows] == [row.mean for row in first.rows]
    assert all(map(torch.equal, again.accuracies, first.accuracies))


def test_counts_take_as_few_bytes_as_they_need(features, tmp_path):
    """20-way tasks have 300 queries, but 8 bits are enough where at most 255 are right."""
    (row, *_) = reproduce(tmp_path / "r", features=features, only="table3", **SMALL).rows
    few, many = torch.tensor([0.0, 255 / 300]), torch.tensor([0.0, 256 / 300, 1.0])
    store = Store(tmp_path, ())
    store.add("few", dataclasses.replace(row, ways=20), few)
    store.add("many", dataclasses.replace(row, ways=20), many)
    counts = load_file(tmp_path / "accuracies.safetensors")
    assert torch.equal(counts["few"], torch.tensor([0, 255], dtype=torch.uint8))
    assert torch.equal(counts["many"], torch.tensor([0, 256, 300], dtype=torch.int16))
    again = Store(tmp_path, ())
    again.read()
    assert torch.equal(again.accuracies["few"], few)
    assert torch.equal(again.accuracies["many"], many)
