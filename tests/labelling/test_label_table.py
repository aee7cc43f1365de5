import csv
import dataclasses
import io

import pytest
import torch

from infoshot import DataError, FeatureTable, Status, TaskBatch, TimAdm, solve
from infoshot.labelling import label_table
from infoshot.solvers import METHODS


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
    labelling = label_table(table, METHODS["tim-adm"])
    assert torch.equal(labelling.rows, (table.labels == -1).nonzero().flatten())
    assert labelling.classes.tolist() == [3, 7, 11]
    z = torch.nn.functional.normalize(table.features, dim=1)
    known = table.labels >= 0
    y_sup = torch.searchsorted(torch.tensor([3, 7, 11]), table.labels[known])
    expected = solve(TimAdm(), TaskBatch(z[known][None], y_sup[None], z[~known][None], 3))
    torch.testing.assert_close(
        labelling.probabilities, expected.probabilities[0], atol=1e-4, rtol=0
    )
    right = labelling.classes[labelling.probabilities.argmax(1)] == truth[labelling.rows]
    assert right.double().mean() > 0.8


def test_csv_names_label_and_runner_up(table):
    table, _ = table
    labelling = label_table(table, METHODS["prototype"])
    rows = list(csv.DictReader(io.StringIO(labelling.to_csv())))
    assert len(rows) == 120
    for row, place, p in zip(rows, labelling.rows, labelling.probabilities, strict=True):
        best, second = p.sort(descending=True)
        assert int(row["row"]) == place
        assert row["label"] == f"class {labelling.classes[second[0]]}, or so"
        assert row["runner_up"] == f"class {labelling.classes[second[1]]}, or so"
        assert float(row["confidence"]) == pytest.approx(best[0].item(), abs=1e-6)
        assert float(row["margin"]) == pytest.approx((best[0] - best[1]).item(), abs=2e-6)


def test_solve_that_went_wrong_labels_nothing(table, monkeypatch):
    def overflowing(solver, tasks):
        solution = solve(solver, tasks)
        return dataclasses.replace(solution, status=torch.tensor([int(Status.NON_FINITE)]))

    monkeypatch.setattr("infoshot.labelling.label_table.solve", overflowing)
    with pytest.raises(
        DataError, match="tim-adm went non-finite on this table; nothing was labelled"
    ):
        label_table(table[0], METHODS["tim-adm"])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0, -1], r"at least two classes are needed; got 1"),
        ([-1, -1, -1, -1], r"at least two classes are needed; got 0"),
        ([0, 1, 0, 1], r"nothing to label: no row has the label -1"),
    ],
)
def test_nothing_to_learn_or_to_label_is_said(labels, message):
    with pytest.raises(DataError, match=message):
        label_table(FeatureTable(torch.eye(4), torch.tensor(labels)), METHODS["tim-adm"])
