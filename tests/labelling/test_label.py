"""``infoshot label`` and what comes after it, on real files."""

import csv
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from infoshot.labelling.run_folder import CSV_COLUMNS
from tests.labelling.commands import rows, run


@pytest.fixture(scope="module")
def finished(made):
    out = made / "finished"
    result = run(
        "label", made / "examples", made / "photos", "--out", out, "--backbone", made / "weights",
        "--cache", made / "cache",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def _no_encoding(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("the encoder saw an image")

    monkeypatch.setattr("infoshot.features.extract.encode", fail)


def test_photos_get_the_label_of_their_class(finished, made):
    lines = rows(finished / "labels.csv")
    assert tuple(lines[0]) == CSV_COLUMNS
    assert [line["path"] for line in lines] == sorted(map(str, (made / "photos").iterdir()))
    right = [line["label"] == Path(line["path"]).name[:3] for line in lines]
    assert len(right) == 60
    assert sum(right) > 57
    for line in lines:
        confidence, margin = float(line["confidence"]), float(line["margin"])
        assert 1 / 3 <= confidence <= 1
        assert 0 <= margin <= confidence
        assert line["runner_up"] != line["label"]
        assert line["status"] in ("labelled", "unsure", "outlier")


def test_parquet_says_the_same_and_more(finished):
    table = pq.read_table(finished / "labels.parquet")
    lines = rows(finished / "labels.csv")
    assert table.column("path").to_pylist() == [line["path"] for line in lines]
    assert table.column("label").to_pylist() == [line["label"] for line in lines]
    for p, confidence in zip(
        table.column("probabilities").to_pylist(), table.column("confidence").to_pylist(),
        strict=True,
    ):  # fmt: skip
        assert sum(p) == pytest.approx(1, abs=1e-5)
        assert max(p) == pytest.approx(confidence)
    assert all(len(digest) == 64 for digest in table.column("sha256").to_pylist())


def test_run_json_says_where_labels_come_from(finished):
    facts = json.loads((finished / "run.json").read_text())
    assert facts["counts"]["photos"] == 60
    assert sum(facts["counts"][s] for s in ("labelled", "unsure", "outlier", "unreadable")) == 60
    assert sum(facts["classes"].values()) == 60
    assert facts["estimate"]["held_out"] == 21
    assert facts["estimate"]["low"] < facts["estimate"]["accuracy"] <= facts["estimate"]["high"]
    assert facts["calibration"]["by_examples"] is True
    assert facts["method"]["name"] == "tim-auto"
    assert "The estimated class imbalance is" in facts["method"]["decided"]
    assert facts["encoder"]["backbone"] == "conv4"


def test_the_same_command_again_sees_no_image_and_changes_nothing(made, finished, monkeypatch):
    _no_encoding(monkeypatch)
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    again = run(
        "label", made / "examples", made / "photos", "--out", finished, "--backbone",
        made / "weights",
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    for name in ("labels.csv", "labels.parquet", "classifier.safetensors", "report.html"):
        assert (finished / name).read_bytes() == before[name]


def test_another_method_sees_no_image_either(label, tmp_path, monkeypatch):
    _no_encoding(monkeypatch)
    result = label(tmp_path / "r", "--method", "prototype")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "r" / "run.json").read_text())["method"]["name"] == "prototype"


def test_corrections_become_examples(copy, made, tmp_path, monkeypatch):
    _no_encoding(monkeypatch)
    wrong = str(made / "photos" / "cat7.png")
    other = str(made / "photos" / "dog9.png")
    (tmp_path / "c.csv").write_text(f"path,label\n{wrong},ferret\n{other},dog\n")
    result = run("label", "--add", tmp_path / "c.csv", copy)
    assert result.exit_code == 0, result.output
    lines = {line["path"]: line for line in rows(copy / "labels.csv")}
    assert len(lines) == 60
    assert (lines[wrong]["label"], lines[wrong]["reason"]) == ("ferret", "given")
    assert (lines[other]["label"], lines[other]["confidence"]) == ("dog", "1.0000")
    facts = json.loads((copy / "run.json").read_text())
    assert set(facts["classes"]) == {"cat", "dog", "eel", "ferret"}
    assert facts["counts"]["examples"] == 23
    # Corrections stay, and more can be added.
    (tmp_path / "c.csv").write_text(f"path,label\n{wrong},cat\n")
    assert run("label", "--add", tmp_path / "c.csv", copy).exit_code == 0
    facts = json.loads((copy / "run.json").read_text())
    assert set(facts["classes"]) == {"cat", "dog", "eel"}
    assert facts["counts"]["examples"] == 23
    assert rows(copy / "corrections.csv") == [
        {"path": wrong, "label": "cat"}, {"path": other, "label": "dog"},
    ]  # fmt: skip


def test_examples_can_be_corrected_and_named_by_their_file(copy, made, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    (tmp_path / "c.csv").write_text("path,label\nexamples/cat/3.png,dog\nphotos/eel8.png,eel\n")
    result = run("label", "--add", tmp_path / "c.csv", copy)
    assert result.exit_code == 0, result.output
    facts = json.loads((copy / "run.json").read_text())
    assert facts["counts"]["examples"] == 22
    example = next(e for e in facts["examples"] if e["path"].endswith("cat/3.png"))
    assert (example["label"], example["given"]) == ("dog", False)
    lines = {Path(line["path"]).name: line for line in rows(copy / "labels.csv")}
    assert lines["eel8.png"]["reason"] == "given"


@pytest.mark.parametrize("more", [("--threshold", 0.9), ("--method", "prototype"), ("--force",)])
def test_a_run_is_solved_again_as_it_was_asked_for(more, copy, tmp_path):
    (tmp_path / "c.csv").write_text("path,label\nx.png,cat\n")
    result = run("label", "--add", tmp_path / "c.csv", copy, *more)
    assert result.exit_code == 2
    assert "no options but --export and --device" in result.stderr


def test_a_correction_that_cannot_be_used_is_forgotten(copy, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / "c.csv").write_text(f"path,label\n{tmp_path / 'broken.png'},cat\n")
    result = run("label", "--add", tmp_path / "c.csv", copy)
    assert result.exit_code == 2
    assert "this example cannot be used (not an image" in result.stderr
    assert not (copy / "corrections.csv").exists()


def test_force_keeps_corrections_unless_the_images_are_others(label, copy, made, tmp_path):
    (tmp_path / "c.csv").write_text(f"path,label\n{made / 'photos' / 'cat7.png'},eel\n")
    assert run("label", "--add", tmp_path / "c.csv", copy).exit_code == 0
    assert label(copy).exit_code == 0  # the same run: kept
    assert json.loads((copy / "run.json").read_text())["counts"]["examples"] == 22
    refused = label(copy, "--method", "prototype")
    assert "--force replaces it, and its 1 corrections stay." in refused.stderr
    assert label(copy, "--method", "prototype", "--force").exit_code == 0
    assert json.loads((copy / "run.json").read_text())["counts"]["examples"] == 22
    (tmp_path / "some.txt").write_text("\n".join(map(str, (made / "photos").glob("cat*.png"))))
    others = ("label", made / "examples", tmp_path / "some.txt", "--out", copy)
    assert "its 1 corrections are lost." in run(*others).stderr
    assert run(*others, "--force").exit_code == 0
    assert json.loads((copy / "run.json").read_text())["counts"]["examples"] == 21


def test_a_correction_of_no_photo_is_named(copy, tmp_path):
    before = (copy / "labels.csv").read_bytes()
    (tmp_path / "c.csv").write_text("path,label\nnothing.png,cat\n")
    result = run("label", "--add", tmp_path / "c.csv", copy)
    assert result.exit_code == 2
    assert "nothing.png: no photo of this run" in result.stderr
    assert (copy / "labels.csv").read_bytes() == before


def test_suggestions_can_be_filled_in_and_added(copy, tmp_path):
    result = run("suggest", copy, "--n", 5)
    assert result.exit_code == 0, result.output
    lines = rows(copy / "suggestions.csv")
    assert len({line["path"] for line in lines}) == 5
    assert {line["label"] for line in lines} == {""}
    lines[0]["label"] = Path(lines[0]["path"]).name[:3]
    with (tmp_path / "filled.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    assert run("label", "--add", tmp_path / "filled.csv", copy).exit_code == 0
    assert json.loads((copy / "run.json").read_text())["counts"]["examples"] == 22


def test_audit_draws_a_sample_and_takes_the_answers(copy, tmp_path):
    assert run("audit", copy, "--n", 20).exit_code == 0
    sheet = rows(copy / "audit.csv")
    assert len({line["path"] for line in sheet}) == 20
    text = "path,label,truth\n"
    for number, line in enumerate(sheet):
        truth = "nonsense" if number < 2 else line["label"]
        text += f"{line['path']},{line['label']},{truth}\n"
    (copy / "audit.csv").write_text(text)
    result = run("audit", copy, "--answers", copy / "audit.csv", "--json", tmp_path / "a.json")
    assert result.exit_code == 0, result.output
    assert "90.0% (69.9% to 97.2%)" in result.stdout
    assert "no class of this run is called 'nonsense'" in result.stderr
    overall, *classes = json.loads((tmp_path / "a.json").read_text())
    assert (overall["right"], overall["checked"]) == (18, 20)
    assert sum(line["checked"] for line in classes) == 20
    again = run("audit", copy)  # answers are never overwritten
    assert again.exit_code == 2
    assert "has answers already" in again.stderr
    assert (copy / "audit.csv").read_text() == text
    # What was corrected since is right by itself, and says nothing of the others.
    assert run("label", "--add", _sheet(tmp_path, sheet[:2], "newt"), copy).exit_code == 0
    later = run("audit", copy, "--answers", copy / "audit.csv", "--json", tmp_path / "a.json")
    assert later.exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text())[0]["checked"] == 18


def _sheet(folder, lines, label):
    path = folder / "given.csv"
    path.write_text("path,label\n" + "".join(f"{line['path']},{label}\n" for line in lines))
    return path


def test_newcomers_get_the_labels_their_class_has(finished, made, tmp_path):
    out = tmp_path / "new.csv"
    arguments = ("predict", finished / "classifier.safetensors", made / "photos", "--out", out)
    assert run(*arguments).exit_code == 0
    together = {line["path"]: line for line in rows(out)}
    right = [line["label"] == Path(path).name[:3] for path, line in together.items()]
    assert sum(right) > 57
    alone = tmp_path / "one"
    alone.mkdir()
    shutil.copy(made / "photos" / "eel9.png", alone)
    assert run(*arguments[:2], alone, "--out", out).exit_code == 0
    (line,) = rows(out)
    expected = together[str(made / "photos" / "eel9.png")]
    assert {**line, "path": ""} == {**expected, "path": ""}


def test_an_encoder_is_found_from_another_folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    out = tmp_path / "r"
    assert run("label", "examples", "photos", "--out", out, "--backbone", "weights").exit_code == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INFOSHOT_CACHE", str(tmp_path / "empty"))
    result = run("predict", out / "classifier.safetensors", made / "photos")
    assert result.exit_code == 0, result.output
    assert len(rows(tmp_path / "predictions.csv")) == 60


def test_classifier_of_something_else_is_refused(made, tmp_path):
    (tmp_path / "c.safetensors").write_bytes(b"text")
    result = run("predict", tmp_path / "c.safetensors", made / "photos")
    assert result.exit_code == 2
    assert "damaged" in result.stderr


def test_threshold_and_prior(label, tmp_path):
    assert label(tmp_path / "a", "--threshold", 1).exit_code == 0
    assert {line["status"] for line in rows(tmp_path / "a" / "labels.csv")} <= {"unsure", "outlier"}
    result = label(tmp_path / "b", "--prior", "cat=8,dog=1,eel=1")
    assert result.exit_code == 0, result.output
    facts = json.loads((tmp_path / "b" / "run.json").read_text())
    assert facts["method"]["name"] == "tim-adm"
    assert facts["method"]["settings"]["class_prior"] == pytest.approx([0.8, 0.1, 0.1])


WRONG = {
    ("--prior", "cat=0.5,dog=0.5"): "--prior must name every class once",
    ("--prior", "cat"): "--prior must look like",
    ("--threshold", "2"): "--threshold must be between 0 and 1",
    ("--method", "label-propagation"): "leaves no classifier behind",
    ("--method", "tim-outo"): "tim-auto",
    ("--export", "coco"): "export",
    ("--set", "nonsense=1"): "has a setting 'nonsense'",
}


@pytest.mark.parametrize("options", WRONG)
def test_wrong_options_are_refused_before_any_work(options, label, tmp_path, monkeypatch):
    _no_encoding(monkeypatch)
    result = label(tmp_path / "r", *options)
    assert result.exit_code == 2
    assert WRONG[options] in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_wrong_folders_are_refused_before_any_work(label, made, tmp_path, monkeypatch):
    _no_encoding(monkeypatch)
    examples = shutil.copytree(made / "examples", tmp_path / "examples")
    shutil.copy(examples / "cat" / "0.png", examples / "dog" / "same.png")
    result = label(tmp_path / "r", examples=examples)
    assert result.exit_code == 2
    assert "the same image is an example of 'cat' and of 'dog'" in result.stderr
    (examples / "dog" / "same.png").write_bytes(b"")
    empty = label(tmp_path / "r", photos=tmp_path / "nothing")
    assert "there is no such folder or file with photos" in empty.stderr
    unknown = run("label", made / "examples", made / "photos", "--out", tmp_path / "r",
                  "--backbone", "efficientnet-lite9")  # fmt: skip
    assert unknown.exit_code == 2
    assert "efficientnet-lite0" in unknown.stderr
    assert not (tmp_path / "r" / "labels.csv").exists()


def test_another_run_is_never_overwritten_without_force(label, copy, monkeypatch):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    result = label(copy, "--method", "prototype")
    assert result.exit_code == 2
    assert "holds another run; --force replaces it" in result.stderr
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    assert label(copy, "--method", "prototype", "--force").exit_code == 0
    assert json.loads((copy / "run.json").read_text())["method"]["name"] == "prototype"


def test_a_folder_of_other_things_is_left_alone(label, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.tex").write_text("years of work")
    result = label(tmp_path / "r")
    assert result.exit_code == 2
    assert "holds other files" in result.stderr


def test_audit_and_friends_want_a_finished_run(tmp_path):
    for command in ("audit", "suggest"):
        result = run(command, tmp_path)
        assert result.exit_code == 2
        assert "there is no finished run of 'infoshot label' in it" in result.stderr


@pytest.mark.parametrize("width", [360, 1400])
def test_report_is_readable_in_a_browser(finished, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    troubles = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((finished / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    headings = page.locator("h2").all_inner_texts()
    assert {"Result", "How far to trust it", "What to label next", "In doubt", "Classes"} <= set(
        headings
    )
    pictures = page.locator(".gallery img")
    assert pictures.count() > 30
    assert all(pictures.nth(i).get_attribute("alt") for i in range(5))
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    bars = page.locator(".bars").first.locator(".bar")
    assert [bar.split("\n")[0] for bar in bars.all_inner_texts()] == ["cat", "dog", "eel"]
    assert not troubles
    page.close()


def test_exports_follow_the_labels(copy, made, tmp_path):
    assert run("label", made / "examples", made / "photos", "--out", tmp_path / "r").exit_code == 0
    where = (made / "examples", made / "photos", "--out", tmp_path / "r")
    assert run("label", *where, "--export", "imagefolder").exit_code == 0
    (tmp_path / "c.csv").write_text(f"path,label\n{made / 'photos' / 'cat7.png'},newt\n")
    result = run("label", "--add", tmp_path / "c.csv", tmp_path / "r")
    assert "Exported:" in result.stdout
    assert (tmp_path / "r" / "imagefolder" / "newt" / "cat7.png").exists()


def test_lists_must_make_sense(made, tmp_path):
    photo = made / "photos" / "cat7.png"
    out = ("--out", tmp_path / "r")
    assert "neither a folder nor a list" in run("label", made / "examples", photo, *out).stderr
    sheet = tmp_path / "c.csv"
    sheet.write_text(f"path,label\n{photo},eel\n{photo},cat\n")
    assert "is labelled 'eel' and 'cat'" in run("label", sheet, made / "photos", *out).stderr
    sheet.write_text(f"path,label\n{photo},eel\n{made / 'photos' / 'cat8.png'},\n")
    assert "cat8.png' has no label" in run("label", sheet, made / "photos", *out).stderr


def test_a_photo_that_is_listed_twice_counts_once(made, tmp_path):
    names = [str(path) for path in sorted((made / "photos").glob("*.png"))]
    (tmp_path / "list.txt").write_text("\n".join(names + names[:3]))
    assert (
        run("label", made / "examples", tmp_path / "list.txt", "--out", tmp_path / "r").exit_code
        == 0
    )
    assert len(rows(tmp_path / "r" / "labels.csv")) == len(names)
