"""``coverage`` and ``target`` of ``label``, on real files and through the command."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from infoshot import InvalidArgumentError, labelling
from infoshot.labelling.run_folder import CSV_COLUMNS
from infoshot.labelling.updates import solve_again
from tests.labelling.commands import rows, run


@pytest.fixture(scope="module")
def first(made):
    """A run with both options, by the command, and its output."""
    out = made / "with-promises"
    result = run(
        "label", made / "examples", made / "photos", "--out", out, "--backbone", made / "weights",
        "--cache", made / "cache", "--coverage", 0.9, "--target", 0.95,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return out, result


@pytest.fixture
def copy(first, tmp_path):
    return shutil.copytree(first[0], tmp_path / "copy")


def facts_of(folder):
    return json.loads((folder / "run.json").read_text())


def test_labels_have_a_last_column_with_the_sets(first):
    lines = rows(first[0] / "labels.csv")
    assert tuple(lines[0]) == (*CSV_COLUMNS, "classes")
    for line in lines:
        names = line["classes"].split("|")
        assert names[0] == line["label"]
        assert len({*names}) == len(names) <= 3
        assert len(names) == 1 or names[1] == line["runner_up"]
    right = sum(Path(line["path"]).name[:3] in line["classes"].split("|") for line in lines)
    assert right >= 0.85 * len(lines)
    table = pq.read_table(first[0] / "labels.parquet")
    assert table.column_names[-1] == "classes"
    found = ["|".join(names) for names in table.column("classes").to_pylist()]
    assert found == [line["classes"] for line in lines]


def test_sets_follow_the_probabilities_and_the_recorded_threshold(first):
    table = pq.read_table(first[0] / "labels.parquet").to_pydict()
    facts = facts_of(first[0])
    least, classes = facts["coverage"]["least_probability"], list(facts["classes"])
    for p, names in zip(table["probabilities"], table["classes"], strict=True):
        expected = {name for name, share in zip(classes, p, strict=True) if share >= least}
        assert {*names} == (expected or {classes[p.index(max(p))]})


def test_run_json_records_both_promises(first):
    facts = facts_of(first[0])
    assert facts["request"]["coverage"] == 0.9
    assert facts["request"]["target"] == 0.95
    coverage, target = facts["coverage"], facts["target"]
    assert (coverage["asked"], coverage["held_out"], coverage["needed"]) == (0.9, 21, 9)
    assert sum(coverage["sizes"].values()) == 60
    sizes = sum(int(size) * n for size, n in coverage["sizes"].items())
    assert coverage["mean_size"] == pytest.approx(sizes / 60)
    assert (target["asked"], target["held_out"], target["audited"]) == (0.95, 21, 0)
    assert target["chosen"] == facts["counts"]["labelled"] > 0
    assert target["candidates"] == 60 - facts["counts"]["outlier"]
    assert target["certainty"] >= 0.9
    assert target["expected"] > 0.95


def test_the_most_confident_labels_are_chosen(first):
    lines = rows(first[0] / "labels.csv")
    sure = [float(line["confidence"]) for line in lines if line["status"] == "labelled"]
    unsure = [line for line in lines if line["status"] == "unsure"]
    assert unsure
    assert min(sure) >= max(float(line["confidence"]) for line in unsure)
    assert {line["reason"] for line in unsure} == {
        "not among the labels that are expected to be 95% correct"
    }
    assert {line["reason"] for line in lines if line["status"] == "labelled"} == {""}
    threshold = facts_of(first[0])["thresholds"]["confidence"]
    assert min(sure) == pytest.approx(threshold, abs=1e-4)


def test_command_and_report_say_what_is_promised(first):
    out, result = first
    n = facts_of(out)["target"]["chosen"]
    sentence = f"{n} of {60 - facts_of(out)['counts']['outlier']} labels can be expected to be at "
    report = (out / "report.html").read_text()
    for text in (result.stdout, report):
        assert sentence + "least 95% correct (with a probability of 9" in text
        assert "judged by 21 held-out examples" in text
        assert "about 90% of them should contain the right class" in text
    assert "This applies to photos that belong to one of the classes." in report


def test_without_the_options_nothing_is_added(label, tmp_path):
    result = label(tmp_path / "r")
    assert (result.sets, result.prediction_sets, result.target) == (None, None, None)
    assert tuple(rows(tmp_path / "r" / "labels.csv")[0]) == CSV_COLUMNS
    assert "classes" not in pq.read_table(tmp_path / "r" / "labels.parquet").column_names
    facts = facts_of(tmp_path / "r")
    assert "coverage" not in facts
    assert "target" not in facts
    assert "can be expected" not in (tmp_path / "r" / "report.html").read_text()


def test_the_options_change_no_label_and_no_confidence(label, first, tmp_path):
    result = label(tmp_path / "r")
    lines = rows(first[0] / "labels.csv")
    assert [line["label"] for line in lines] == list(result.labels.values())
    plain = rows(tmp_path / "r" / "labels.csv")
    assert [line["confidence"] for line in lines] == [line["confidence"] for line in plain]


def test_the_result_has_sets_by_path_and_the_sentences(label, first, tmp_path):
    result = label(tmp_path / "r", coverage=0.9, target=0.95)
    lines = rows(first[0] / "labels.csv")
    joined = {path: "|".join(names) for path, names in result.sets.items()}
    assert joined == {line["path"]: line["classes"] for line in lines}
    assert result.target.text() in first[1].stdout
    assert result.prediction_sets.text() in first[1].stdout
    assert label(tmp_path / "r", coverage=0.9, target=0.95).sets == result.sets


def test_corrections_keep_the_options(copy, made, tmp_path):
    path = str(made / "photos" / "cat7.png")
    (tmp_path / "c.csv").write_text(f"path,label\n{path},dog\n")
    result = run("label", "--add", tmp_path / "c.csv", copy)
    assert result.exit_code == 0, result.output
    assert "labels can be expected to be at least 95% correct" in result.stdout
    line = next(line for line in rows(copy / "labels.csv") if line["path"] == path)
    assert (line["classes"], line["status"], line["reason"]) == ("dog", "labelled", "given")
    facts = facts_of(copy)
    assert (facts["request"]["coverage"], facts["request"]["target"]) == (0.9, 0.95)
    assert sum(facts["coverage"]["sizes"].values()) == 59


def test_audit_answers_are_evidence(copy, made):
    photos = [made / "photos" / f"{name}{n}.png" for name in ("cat", "dog") for n in range(7, 12)]
    lines = "".join(f"{photo},{photo.name[:3]},audit\n" for photo in photos)
    lines += f"{made / 'photos' / 'eel7.png'},(none),audit\n"
    (copy / "corrections.csv").write_text("path,label,source\n" + lines)
    decision, _ = solve_again(copy)
    assert decision.target.evidence.text() == "21 held-out examples and 10 audited photos"
    facts = facts_of(copy)
    assert (facts["target"]["audited"], facts["coverage"]["audited"]) == (10, 10)
    found = {line["path"]: line for line in rows(copy / "labels.csv")}
    assert found[str(photos[0])]["classes"] == "cat"
    assert found[str(made / "photos" / "eel7.png")]["classes"] == ""


def test_other_options_are_another_run(label, copy, no_encoding):
    with pytest.raises(labelling.api.DataError, match="contains another run"):
        label(copy, coverage=0.8, target=0.95)


def test_unreadable_photos_have_no_set(label, made, tmp_path):
    photos = shutil.copytree(made / "photos", tmp_path / "photos")
    (photos / "broken.png").write_bytes(b"")
    label(tmp_path / "r", photos=photos, coverage=0.9)
    line = next(line for line in rows(tmp_path / "r" / "labels.csv") if "broken" in line["path"])
    assert (line["status"], line["classes"]) == ("unreadable", "")


def test_withheld_labels_have_no_set(label, tmp_path):
    label(tmp_path / "r", coverage=0.9, reject_outliers=True)
    lines = rows(tmp_path / "r" / "labels.csv")
    assert all((line["classes"] == "") == (line["label"] == "") for line in lines)


def few_examples(made, folder, n):
    for name in ("cat", "dog", "eel"):
        (folder / name).mkdir(parents=True)
        for number in range(n):
            shutil.copy(made / "examples" / name / f"{number}.png", folder / name)
    return folder


def test_too_few_examples_are_reported(label, made, tmp_path):
    examples = few_examples(made, tmp_path / "examples", 2)
    result = label(tmp_path / "r", examples=examples, coverage=0.9, target=0.95)
    text = " ".join(result.warnings)
    assert (
        "Prediction sets with a coverage of 90% take 9 held-out examples or audited photos; got 6 "
        "held-out examples. Every class is in every set."
    ) in text
    assert (
        "No labels can be expected to be 95% correct: that takes 10 held-out examples or audited "
        "photos; got 6 held-out examples. All photos are unsure; more examples may change that."
    ) in text
    assert {len(names) for names in result.sets.values()} == {3}
    assert {image.status for image in result.images} <= {"unsure", "outlier"}
    facts = facts_of(tmp_path / "r")
    assert facts["target"]["expected"] is None
    assert facts["target"]["chosen"] == facts["counts"]["labelled"] == 0
    again = labelling.predict(tmp_path / "r", made / "photos", cache=made / "cache")
    assert sum(image.status == "labelled" for image in again) == 0


def test_names_that_look_like_formulas_are_guarded_in_sets(label, made, tmp_path):
    examples = tmp_path / "examples"
    names = {"cat": "=cat", "dog": "a|b", "eel": "eel"}
    for name, new in names.items():
        shutil.copytree(made / "examples" / name, examples / new)
    result = label(tmp_path / "r", examples=examples, coverage=0.97, csv_safe=True)
    of_path = {line["path"]: line["classes"] for line in rows(tmp_path / "r" / "labels.csv")}
    for path, own in result.sets.items():
        text = "|".join(name.replace("|", r"\x7c") for name in own)
        assert of_path[path] == ("'" if own[0] == "=cat" else "") + text


WRONG = {
    ("--coverage", "1"): "--coverage must be above 0 and below 1; got 1.0.",
    ("--coverage", "0"): "--coverage must be above 0 and below 1; got 0.0.",
    ("--target", "95"): "--target must be above 0 and below 1; got 95.0.",
    ("--target", "0.9", "--threshold", "0.7"): "--target must not be given with a threshold, "
    "which it chooses itself; got 0.9 and 0.7.",
}


@pytest.mark.parametrize("options", WRONG)
def test_wrong_options(options, made, tmp_path, no_encoding):
    result = run(
        "label", made / "examples", made / "photos", "--out", tmp_path / "r", "--backbone",
        made / "weights", *options,
    )  # fmt: skip
    assert result.exit_code == 2
    assert result.stderr == f"Error: {WRONG[options]}\n"
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("options", [("--coverage", 0.9), ("--target", 0.95)])
def test_corrections_take_the_options_of_the_run(options, copy, tmp_path):
    (tmp_path / "c.csv").write_text("path,label\nx.png,cat\n")
    result = run("label", "--add", tmp_path / "c.csv", copy, *options)
    assert result.exit_code == 2
    assert "--add repeats a finished run with its own options" in result.stderr


@pytest.mark.parametrize("name", ["coverage", "target"])
def test_wrong_values_in_python(name, label, tmp_path, no_encoding):
    for wrong in ("0.9", True, float("nan")):
        with pytest.raises(InvalidArgumentError, match=f"{name} must be above 0 and below 1"):
            label(tmp_path / "r", **{name: wrong})
