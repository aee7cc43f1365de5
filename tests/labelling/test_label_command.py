"""``infoshot label``, ``suggest``, ``audit`` and ``predict`` as commands."""

import json
import re
import shutil

import pytest

from tests.labelling.commands import rows, run


@pytest.fixture(scope="module")
def first(made):
    """A run that the command wrote, and its output."""
    out = made / "by-command"
    result = run(
        "label", made / "examples", made / "photos", "--out", out, "--backbone", made / "weights",
        "--cache", made / "command-cache",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return out, result


@pytest.fixture
def copy(first, tmp_path):
    return shutil.copytree(first[0], tmp_path / "copy")


@pytest.fixture
def command(made):
    """Run ``infoshot label`` on the photos of the tests."""

    def command(out, *more):
        return run(
            "label", made / "examples", made / "photos", "--out", out,
            "--backbone", made / "weights", *more,
        )  # fmt: skip

    return command


def test_output_has_counts_estimate_and_paths(first):
    out, result = first
    assert "60 photos (" in result.stdout
    assert re.search(r"Estimated accuracy: \d+% \(95% interval \d+% to \d+%\), by 21 held-out "
                     r"examples\.", result.stdout)  # fmt: skip
    assert f"Report: {out}/report.html; labels: {out}/labels.csv" in result.stdout
    assert "reading images ..." in result.stderr
    assert "encoding 60 images ..." in result.stderr
    assert len(rows(out / "labels.csv")) == 60


def test_command_and_function_write_the_same_labels(first, label, tmp_path):
    label(tmp_path / "r")
    for name in ("labels.csv", "classifier.safetensors"):
        assert (tmp_path / "r" / name).read_bytes() == (first[0] / name).read_bytes()


def test_corrections_of_a_file(copy, made, tmp_path):
    (tmp_path / "c.csv").write_text(f"path,label\n{made / 'photos' / 'cat7.png'},ferret\n")
    result = run("label", "--add", tmp_path / "c.csv", copy, "--export", "imagefolder")
    assert result.exit_code == 0, result.output
    assert f"Exported: {copy}/imagefolder" in result.stdout
    assert (copy / "imagefolder" / "ferret" / "cat7.png").exists()


@pytest.mark.parametrize("more", [("--threshold", 0.9), ("--method", "prototype"), ("--force",)])
def test_corrections_accept_few_options(more, copy, tmp_path):
    (tmp_path / "c.csv").write_text("path,label\nx.png,cat\n")
    result = run("label", "--add", tmp_path / "c.csv", copy, *more)
    assert result.exit_code == 2
    assert "--export, --device and --csv-safe" in result.stderr


def test_suggest_audit_and_predict(copy, made, tmp_path):
    result = run("suggest", copy, "--n", 5)
    assert result.exit_code == 0, result.output
    assert f"infoshot label --add {copy}/suggestions.csv {copy}" in result.stdout
    assert len(rows(copy / "suggestions.csv")) == 5
    result = run("audit", copy, "--n", 20)
    assert result.exit_code == 0, result.output
    assert f"infoshot audit {copy} --answers {copy}/audit.csv" in result.stdout
    sheet = rows(copy / "audit.csv")
    text = "path,label,truth\n"
    for number, line in enumerate(sheet):
        text += f"{line['path']},{line['label']},{'nonsense' if number < 2 else line['label']}\n"
    (copy / "audit.csv").write_text(text)
    result = run("audit", copy, "--answers", copy / "audit.csv", "--json", tmp_path / "a.json")
    assert result.exit_code == 0, result.output
    assert "90.0% (69.9% to 97.2%)" in result.stdout
    assert "a review does not read these answers" in result.stdout
    assert f"(infoshot review {copy})." in result.stdout
    assert "Warning: the run has no class 'nonsense'; these answers count as" in result.stderr
    overall, *classes = json.loads((tmp_path / "a.json").read_text())
    assert (overall["right"], overall["checked"]) == (18, 20)
    assert sum(line["checked"] for line in classes) == 20
    result = run("audit", copy)
    assert result.exit_code == 0, result.output
    assert (copy / "audit.csv").read_text() == text
    assert f"infoshot audit {copy} --answers {copy}/audit-2.csv" in result.stdout
    new = tmp_path / "new.csv"
    result = run("predict", copy / "classifier.safetensors", made / "photos", "--out", new)
    assert result.exit_code == 0, result.output
    assert f"Labels: {new}" in result.stdout
    assert len(rows(new)) == 60


WRONG = {
    ("--prior", "cat=0.5,dog=0.5"): "--prior must name every class once",
    ("--prior", "cat"): "--prior must look like",
    ("--threshold", "2"): "--threshold must be between 0 and 1",
    ("--method", "label-propagation"): "--method must be able to classify new images",
    ("--method", "tim-outo"): "Did you mean 'tim-auto'?",
    ("--export", "coco"): "Unknown export 'coco'.",
    ("--set", "nonsense=1"): "nonsense",
}


@pytest.mark.parametrize("options", WRONG)
def test_messages_name_options(options, command, tmp_path, no_encoding):
    result = command(tmp_path / "r", *options)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert WRONG[options] in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_force_is_named_as_an_option(command, copy):
    result = command(copy, "--method", "prototype")
    assert result.exit_code == 2
    assert "; pass --force to replace it." in result.stderr
    assert command(copy, "--method", "prototype", "--force").exit_code == 0


def test_missing_arguments_are_refused(made, tmp_path):
    result = run("label", made / "examples", "--out", tmp_path / "r")
    assert result.exit_code == 2
    for command in ("audit", "suggest"):
        result = run(command, tmp_path)
        assert result.exit_code == 2
        assert "does not contain a finished labelling run" in result.stderr
