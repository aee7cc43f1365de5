"""Checking a finished run by hand, and suggesting what to label next."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from infoshot import DataError, InvalidArgumentError, labelling
from infoshot.labelling import add_labels, audit, draw_audit, predict, suggest
from tests.labelling import commands
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
    again = draw_audit(run)
    assert again.sheet == run / "audit-2.csv"
    assert again.note == (
        f"{sample.sheet} is filled in, so it is kept; the new sheet is {again.sheet}."
    )
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


SHEETS = {  # what a person may have done to a sheet
    "filled in": "path,label,truth\na.png,cat,dog\n",
    "filled in, saved by a spreadsheet": "\ufeffpath;label;truth\r\na.png;cat;dog\r\n",
    "saved as UTF-16": "path\tlabel\ttruth\na.png\tcat\tdog\n".encode("utf-16"),
    "suggestions": "path,label,guess,runner_up,confidence\na.png,dog,cat,eel,0.5\n",
    "corrections": "path,label\na.png,dog\n",
    "notes beside the sheet": "path,label,truth\na.png,cat,,ask Ann\n",
    "another column": "path,label,truth,notes\na.png,cat,,ask Ann\n",
    "not a sheet": "Dear Ann,\n",
    "labels": "path,label,confidence,runner_up,margin,status,reason\na.png,cat,1,,1,labelled,\n",
    "in an encoding that is not read": "path,label,truth\nKöln.png,cat,\n".encode("cp1252"),
    "bytes": b"\xff\x00\x01" * 9,
    "quotes that do not end": 'path,label,truth\n"a.png,cat,',
}


@pytest.mark.parametrize("name", SHEETS)
@pytest.mark.parametrize("function", [suggest, draw_audit])
def test_a_sheet_is_never_replaced_unless_it_has_no_answers(function, name, run, tmp_path):
    default = run / ("suggestions.csv" if function is suggest else "audit.csv")
    content = SHEETS[name] if isinstance(SHEETS[name], bytes) else SHEETS[name].encode()
    for wanted, out in ((default, None), (tmp_path / "mine.csv", tmp_path / "mine.csv")):
        wanted.write_bytes(content)
        made = function(run, n=3, out=out)
        assert wanted.read_bytes() == content
        assert made.sheet == wanted.with_name(f"{wanted.stem}-2.csv")
        assert len(rows(made.sheet)) == 3
        assert str(wanted) in made.note
        assert str(made.sheet) in made.note


@pytest.mark.parametrize("function", [suggest, draw_audit])
def test_a_sheet_without_answers_is_replaced(function, run, tmp_path):
    (tmp_path / "a.csv").touch()
    for n in (3, 4):
        made = function(run, n=n, out=tmp_path / "a.csv")
        assert (made.sheet, made.note) == (tmp_path / "a.csv", "")
        assert len(rows(made.sheet)) == n
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "run"]


def test_names_of_sheets_are_numbered(run):
    for number in (1, 2, 3):
        sample = draw_audit(run, n=2)
        assert sample.sheet.name == ("audit.csv" if number == 1 else f"audit-{number}.csv")
        fill_in(sample.sheet, n_wrong=0)


RUN_FILES = [
    "run.json", "labels.csv", "labels.parquet", "classifier.safetensors", "report.html",
    "corrections.csv", "imagefolder/cat/a.png", ".lock", ".state/x", "sub/../RUN.json",
]  # fmt: skip


@pytest.mark.parametrize("name", RUN_FILES)
def test_files_of_the_run_are_never_replaced(name, run, made, tmp_path):
    (run / "sub").mkdir()
    (tmp_path / "other way").symlink_to(run)
    (tmp_path / "link").symlink_to(run / name)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    functions = (
        lambda out: suggest(run, out=out),
        lambda out: draw_audit(run, out=out),
        lambda out: predict(run / "classifier.safetensors", made / "photos", out=out),
    )
    for out in (run / name, tmp_path / "other way" / name, tmp_path / "link"):
        for function in functions:
            with pytest.raises(DataError) as caught:
                function(out)
            assert str(caught.value).startswith(f"{out}: ")
    answers = tmp_path / "answers.csv"
    answers.write_text(f"path,truth\n{rows(run / 'labels.csv')[0]['path']},cat\n")
    result = commands.run("audit", run, "--answers", answers, "--json", run / name)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_the_commands_say_which_sheet_they_wrote(run):
    for command, column in (("audit", "truth"), ("suggest", "label")):
        sheet = run / ("audit.csv" if command == "audit" else "suggestions.csv")
        sheet.write_text(f"path,{column}\na.png,cat\n")
        result = commands.run(command, run, "--n", 2)
        assert result.exit_code == 0, result.output
        new = sheet.with_name(f"{sheet.stem}-2.csv")
        sentence = f"Note: {sheet} is filled in, so it is kept; the new sheet is {new}."
        assert result.stderr == f"{sentence}\n"
        assert str(new) in result.stdout
        assert sheet.read_text() == f"path,{column}\na.png,cat\n"


def test_no_command_replaces_a_sheet_with_answers(run, tmp_path):
    sheet = tmp_path / "answers.csv"
    sheet.write_text(f"path,truth\n{rows(run / 'labels.csv')[0]['path']},cat\n")
    other = tmp_path / "other.csv"
    other.write_text(sheet.read_text())
    for arguments in (
        ("audit", run, "--answers", sheet, "--json", other),
        ("predict", run, tmp_path / "photos", "--out", other),
        ("methods", "--json", other),
        ("bench", "--tasks", 2, "--csv", other),
        ("data", "inspect", "--dataset", "folder", "--root", run, "--json", other),
    ):
        result = commands.run(*arguments)
        assert result.exit_code == 2, result.output
        assert f"{other}: a person has filled in this sheet" in result.stderr
    assert other.read_text() == sheet.read_text()
