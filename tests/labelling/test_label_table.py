import csv
import dataclasses
import importlib
import io

import pytest
import torch

from infoshot import (
    DataError,
    FeatureTable,
    InvalidArgumentError,
    Status,
    TaskBatch,
    TimAdm,
    solve,
)
from infoshot.features import write_features
from infoshot.labelling import label_table


@pytest.fixture
def table(embedded):
    """Three real classes, 5 labelled and 40 unlabelled rows each, with labels 3, 7 and 11."""
    rows = torch.cat([(embedded.labels == k).nonzero().flatten()[:45] for k in (3, 7, 11)])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    truth = embedded.labels[rows]
    labels = torch.full_like(truth, -1)
    for k in (3, 7, 11):
        labels[(truth == k).nonzero().flatten()[:5]] = k
    names = tuple(f"class {k}, or so" for k in range(20))
    return FeatureTable(embedded.features[rows], labels, class_names=names), truth


def test_table_is_one_task(table):
    table, truth = table
    labelling = label_table(table, method="tim-adm")
    assert torch.equal(labelling.rows, (table.labels == -1).nonzero().flatten())
    assert labelling.classes.tolist() == [3, 7, 11]
    z = torch.nn.functional.normalize(table.features, dim=1)
    known = table.labels >= 0
    y_sup = torch.searchsorted(torch.tensor([3, 7, 11]), table.labels[known])
    expected = solve(TimAdm(), TaskBatch(z[known][None], y_sup[None], z[~known][None], 3))
    torch.testing.assert_close(
        labelling.probabilities, expected.probabilities[0], atol=1e-4, rtol=0
    )
    assert (labelling.labels == truth[labelling.rows]).double().mean() > 0.8


def test_csv_has_labels_and_runners_up(table):
    table, _ = table
    labelling = label_table(table, method="prototype")
    rows = list(csv.DictReader(io.StringIO(labelling.to_csv())))
    assert len(rows) == 120
    for row, place, p in zip(rows, labelling.rows, labelling.probabilities, strict=True):
        best, second = p.sort(descending=True)
        assert int(row["row"]) == place
        assert row["label"] == f"class {labelling.classes[second[0]]}, or so"
        assert row["runner_up"] == f"class {labelling.classes[second[1]]}, or so"
        assert float(row["confidence"]) == pytest.approx(best[0].item(), abs=1e-6)
        assert float(row["margin"]) == pytest.approx((best[0] - best[1]).item(), abs=2e-6)


def test_solve_that_is_not_finite_labels_nothing(table, monkeypatch):
    def overflowing(solver, tasks):
        solution = solve(solver, tasks)
        return dataclasses.replace(solution, status=torch.tensor([int(Status.NON_FINITE)]))

    module = importlib.import_module("infoshot.labelling.table_labels")  # not the function
    monkeypatch.setattr(module, "solve_with_retry", overflowing)
    with pytest.raises(
        DataError, match="tim-adm did not stay finite on this table, so nothing was labelled"
    ):
        label_table(table[0], method="tim-adm")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0, -1], r"at least two classes are needed; got 1"),
        ([-1, -1, -1, -1], r"at least two classes are needed; got 0"),
        ([0, 1, 0, 1], r"nothing to label: no row has the label -1"),
    ],
)
def test_tables_without_classes_or_unlabelled_rows_are_refused(labels, message):
    with pytest.raises(DataError, match=message):
        label_table(FeatureTable(torch.eye(4), torch.tensor(labels)), method="tim-adm")


def test_files_settings_and_dtypes(table, tmp_path):
    write_features(tmp_path / "f.safetensors", table[0])
    expected = label_table(table[0], method="tim-adm", settings={"n_steps": 10})
    again = label_table(tmp_path / "f.safetensors", method="tim-adm", settings={"n_steps": 10})
    assert torch.equal(again.probabilities, expected.probabilities)
    assert label_table(table[0], method=TimAdm(n_steps=10)).summary() == expected.summary()
    assert expected.summary()["n_steps"] == 10
    double = label_table(table[0], method="tim-adm", settings={"n_steps": 10}, dtype="float64")
    assert double.probabilities.dtype == torch.float64
    torch.testing.assert_close(double.probabilities.float(), expected.probabilities)
    with pytest.raises(InvalidArgumentError, match="Unknown dtype 'float16'"):
        label_table(table[0], dtype="float16")


def test_few_rows_give_a_warning(embedded):
    rows = [0, 600, 1200, 1, 601]
    labels = torch.tensor([0, 1, 2, -1, -1])
    with pytest.warns(UserWarning, match="2 unlabelled samples for 3 classes are fewer than three"):
        label_table(FeatureTable(embedded.features[rows], labels), method="tim-adm")
