"""Checking a finished run by hand, and suggesting what to label next."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from infoshot import DataError, InvalidArgumentError, labelling
from infoshot.labelling import add_labels, audit, draw_audit, suggest
from tests.labelling.commands import rows


@pytest.fixture(scope="module")
def finished(made):
    out = made / "audited"
    labelling.label(
        made / "examples", made / "photos", out, backbone=made / "weights", cache=made / "cache"
    )
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def fill_in(sheet, n_wrong):
    """Answer with the label, except for the first lines."""
    lines = rows(sheet)
    text = "path,label,truth\n"
    for number, line in enumerate(lines):
        truth = "nonsense" if number < n_wrong else line["label"]
        text += f"{line['path']},{line['label']},{truth}\n"
    sheet.write_text(text)
    return lines


def test_suggestions_can_be_filled_in_and_added(run, tmp_path):
    suggestions = suggest(run, n=5)
    assert suggestions.sheet == run / "suggestions.csv"
    lines = rows(suggestions.sheet)
    assert [line["path"] for line in lines] == [image.path for image in suggestions.images]
    assert len({line["path"] for line in lines}) == 5
    assert {line["label"] for line in lines} == {""}
    lines[0]["label"] = Path(lines[0]["path"]).name[:3]
    with (tmp_path / "filled.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    add_labels(run, tmp_path / "filled.csv")
    assert json.loads((run / "run.json").read_text())["counts"]["examples"] == 22


def test_suggestions_need_cached_features(run, made, tmp_path):
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "cache": str(tmp_path / "gone")}))
    with pytest.raises(DataError, match="the features of this run are not cached any more"):
        suggest(run)


def test_audit_draws_a_sample_and_evaluates_the_answers(run):
    sample = draw_audit(run, n=20)
    assert sample.sheet == run / "audit.csv"
    sheet = fill_in(sample.sheet, n_wrong=2)
    assert [line["path"] for line in sheet] == [image.path for image in sample.images]
    assert len({line["path"] for line in sheet}) == 20
    text = sample.sheet.read_text()
    result = audit(run, sample.sheet)
    overall, *classes = result.lines
    assert (overall.name, overall.n_correct, overall.n_checked) == ("all", 18, 20)
    assert overall.text() == "90.0% (69.9% to 97.2%)"
    assert [line.name for line in classes] == ["cat", "dog", "eel"]
    assert sum(line.n_checked for line in classes) == 20
    assert result.unknown_classes == ["nonsense"]
    with pytest.raises(
        DataError, match=r"has answers already; evaluate them .* pass answers=.*audit\.csv"
    ):
        draw_audit(run)
    assert sample.sheet.read_text() == text
    # A corrected label is correct, which says nothing about the others.
    add_labels(run, {line["path"]: "newt" for line in sheet[:2]})
    assert audit(run, sample.sheet).lines[0].n_checked == 18


def test_samples_depend_on_the_seed(run, tmp_path):
    samples = [
        draw_audit(run, n=20, seed=seed, out=tmp_path / f"{seed}.csv").images for seed in (0, 0, 1)
    ]
    assert samples[0] == samples[1] != samples[2]


def test_a_class_that_was_not_checked_has_no_interval(run, tmp_path):
    line = next(line for line in rows(run / "labels.csv") if line["label"] == "cat")
    (tmp_path / "a.csv").write_text(f"path,truth\n{line['path']},cat\n")
    lines = {line.name: line.text() for line in audit(run, tmp_path / "a.csv").lines}
    assert lines["dog"] == lines["eel"] == "not checked"
    assert lines["cat"].startswith("100.0% (")


WRONG_ANSWERS = {
    "path,truth\nnothing.png,cat\n": "the answers name 'nothing.png', which is not an image of",
    "path,truth\n": "no line has an answer in the column 'truth'",
    "path,label\nx.png,cat\n": "must have a header line with the column 'truth'",
}


@pytest.mark.parametrize("text", WRONG_ANSWERS)
def test_wrong_answers_are_refused(text, run, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=WRONG_ANSWERS[text]):
        audit(run, tmp_path / "a.csv")


def test_wrong_arguments_are_refused(run, tmp_path):
    for function in (draw_audit, suggest):
        with pytest.raises(InvalidArgumentError, match="n must be a whole number of at least 1"):
            function(run, n=0)
        with pytest.raises(DataError, match="does not contain a finished labelling run"):
            function(tmp_path)
