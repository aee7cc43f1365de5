"""Labelling a folder of photos from Python, on real files."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from infoshot import DataError, InvalidArgumentError, labelling
from infoshot.labelling import add_labels
from infoshot.labelling.run_folder import CSV_COLUMNS
from tests.labelling.commands import rows


@pytest.fixture(scope="module")
def result(made):
    return labelling.label(
        made / "examples", made / "photos", made / "finished", backbone=made / "weights",
        cache=made / "cache",
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(result):
    return result.folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def facts_of(run):
    return json.loads((run / "run.json").read_text())


def test_result_has_labels_confidences_estimate_and_paths(result, made):
    paths = sorted(map(str, (made / "photos").iterdir()))
    assert list(result.labels) == list(result.confidences) == paths
    assert result.classes == ("cat", "dog", "eel")
    assert result.folder == made / "finished"
    assert result.labels_path == made / "finished" / "labels.csv"
    assert result.report_path == made / "finished" / "report.html"
    assert result.labels_path.is_file()
    assert result.report_path.is_file()
    lines = rows(result.labels_path)
    assert [line["label"] for line in lines] == list(result.labels.values())
    for line, confidence in zip(lines, result.confidences.values(), strict=True):
        assert float(line["confidence"]) == pytest.approx(confidence, abs=6e-5)
    assert result.probabilities.shape == (60, 3)
    assert torch.allclose(
        result.probabilities.amax(1), torch.tensor([*result.confidences.values()])
    )
    estimate = result.estimate
    assert estimate.n_examples == 21
    assert 0 <= estimate.low < estimate.accuracy <= estimate.high <= 1
    assert result.exports == []
    assert result.note == facts_of(result.folder)["method"]["decided"] != ""


def test_photos_get_the_label_of_their_class(finished, made):
    lines = rows(finished / "labels.csv")
    assert tuple(lines[0]) == CSV_COLUMNS
    assert [line["path"] for line in lines] == sorted(map(str, (made / "photos").iterdir()))
    correct = [line["label"] == Path(line["path"]).name[:3] for line in lines]
    assert len(correct) == 60
    assert sum(correct) > 57
    for line in lines:
        confidence, margin = float(line["confidence"]), float(line["margin"])
        assert 1 / 3 <= confidence <= 1
        assert 0 <= margin <= confidence
        assert line["runner_up"] != line["label"]
        assert line["status"] in ("labelled", "unsure", "outlier")


def test_parquet_agrees_with_csv_and_has_probabilities(finished):
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


def test_run_json_records_the_provenance_of_labels(finished):
    facts = facts_of(finished)
    assert facts["counts"]["photos"] == 60
    assert sum(facts["counts"][s] for s in ("labelled", "unsure", "outlier", "unreadable")) == 60
    assert sum(facts["classes"].values()) == 60
    assert facts["estimate"]["held_out"] == 21
    assert facts["estimate"]["low"] < facts["estimate"]["accuracy"] <= facts["estimate"]["high"]
    assert facts["calibration"]["by_examples"] is True
    assert facts["method"]["name"] == "tim-auto"
    assert "The estimated class imbalance is" in facts["method"]["decided"]
    assert facts["encoder"]["backbone"] == "conv4"


def test_the_same_run_again_encodes_nothing_and_changes_nothing(label, finished, no_encoding):
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    again = label(finished)
    assert again.images_per_second is None
    for name in ("labels.csv", "labels.parquet", "classifier.safetensors", "report.html"):
        assert (finished / name).read_bytes() == before[name]


def test_another_method_encodes_nothing_either(label, finished, tmp_path, no_encoding):
    label(tmp_path / "r", method="prototype")
    assert facts_of(tmp_path / "r")["method"]["name"] == "prototype"


def test_settings_are_part_of_the_run(label, finished, tmp_path):
    settings = {"class_prior": (0.5, 0.25, 0.25), "temperature": 20.0}
    first = label(tmp_path / "r", method="tim-adm", settings=settings)
    assert facts_of(tmp_path / "r")["request"]["settings"]["temperature"] == 20
    assert label(tmp_path / "r", method="tim-adm", settings=settings).labels == first.labels
    with pytest.raises(DataError, match="with other values of settings; pass force=True"):
        label(tmp_path / "r", method="tim-adm", settings={"temperature": 10.0})


def test_solvers_and_methods_are_accepted(label, finished, tmp_path):
    from infoshot.solvers import METHODS, TimAdm

    named = label(tmp_path / "a", method="tim-adm", settings={"n_steps": 20})
    assert label(tmp_path / "b", method=TimAdm(n_steps=20)).confidences == named.confidences
    method = METHODS["tim-adm"].with_settings({"n_steps": 20})
    assert label(tmp_path / "c", method=method).confidences == named.confidences
    assert {facts_of(tmp_path / run)["method"]["name"] for run in "abc"} == {"tim-adm"}


def test_progress_reports_phases_and_counts(label, made, tmp_path):
    seen = []
    result = label(
        tmp_path / "r", cache=tmp_path / "cache", progress=lambda *event: seen.append(event)
    )
    assert result.images_per_second > 0
    assert list(dict.fromkeys(phase for phase, _, _ in seen)) == [
        "opening the encoder", "reading images", "encoding examples", "encoding", "solving",
        "writing",
    ]  # fmt: skip
    counted = [(done, total) for phase, done, total in seen if phase == "encoding"]
    assert counted[0] == (0, 60)
    assert counted[-1] == (60, 60)
    assert all(before[0] < after[0] for before, after in pairwise(counted))


def test_corrections_become_examples(copy, made, no_encoding):
    wrong = str(made / "photos" / "cat7.png")
    other = str(made / "photos" / "dog9.png")
    result = add_labels(copy, {wrong: "ferret", other: "dog"})
    assert result.labels[wrong] == "ferret"
    assert result.classes == ("cat", "dog", "eel", "ferret")
    lines = {line["path"]: line for line in rows(copy / "labels.csv")}
    assert len(lines) == 60
    assert (lines[wrong]["label"], lines[wrong]["reason"]) == ("ferret", "given")
    assert (lines[other]["label"], lines[other]["confidence"]) == ("dog", "1.0000")
    facts = facts_of(copy)
    assert set(facts["classes"]) == {"cat", "dog", "eel", "ferret"}
    assert facts["counts"]["examples"] == 23
    # Corrections are kept, and more can be added.
    add_labels(copy, {wrong: "cat"})
    facts = facts_of(copy)
    assert set(facts["classes"]) == {"cat", "dog", "eel"}
    assert facts["counts"]["examples"] == 23
    assert rows(copy / "corrections.csv") == [
        {"path": wrong, "label": "cat"}, {"path": other, "label": "dog"},
    ]  # fmt: skip


def test_a_mapping_and_a_file_of_corrections_are_the_same(finished, made, tmp_path):
    corrections = {
        str(made / "photos" / "cat7.png"): "dog",
        str(made / "photos" / "eel8.png"): "eel",
    }
    sheet = tmp_path / "c.csv"
    sheet.write_text("path,label\n" + "".join(f"{p},{k}\n" for p, k in corrections.items()))
    runs = [shutil.copytree(finished, tmp_path / name) for name in "ab"]
    first, second = add_labels(runs[0], corrections), add_labels(runs[1], sheet)
    assert first.confidences == second.confidences
    assert (runs[0] / "labels.csv").read_bytes() == (runs[1] / "labels.csv").read_bytes()
    assert (runs[0] / "corrections.csv").read_bytes() == (runs[1] / "corrections.csv").read_bytes()


def test_examples_can_be_corrected_and_named_by_their_file(copy, made, monkeypatch):
    monkeypatch.chdir(made)
    add_labels(copy, {"examples/cat/3.png": "dog", "photos/eel8.png": "eel"})
    facts = facts_of(copy)
    assert facts["counts"]["examples"] == 22
    example = next(e for e in facts["examples"] if e["path"].endswith("cat/3.png"))
    assert (example["label"], example["given"]) == ("dog", False)
    lines = {Path(line["path"]).name: line for line in rows(copy / "labels.csv")}
    assert lines["eel8.png"]["reason"] == "given"


def test_a_correction_that_cannot_be_used_is_not_stored(copy, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"this example cannot be used \(not an image"):
        add_labels(copy, {str(tmp_path / "broken.png"): "cat"})
    assert not (copy / "corrections.csv").exists()


def test_a_correction_of_an_unknown_file_is_refused(copy):
    before = (copy / "labels.csv").read_bytes()
    with pytest.raises(DataError, match=r"nothing\.png: has a correction, but is not an image"):
        add_labels(copy, {"nothing.png": "cat"})
    assert (copy / "labels.csv").read_bytes() == before


def test_force_keeps_corrections_of_the_same_images(label, copy, made, tmp_path):
    add_labels(copy, {str(made / "photos" / "cat7.png"): "eel"})
    label(copy)  # the same run keeps them too
    assert facts_of(copy)["counts"]["examples"] == 22
    with pytest.raises(DataError, match="force=True to replace it; its 1 correction will be kept"):
        label(copy, method="prototype")
    label(copy, method="prototype", force=True)
    assert facts_of(copy)["counts"]["examples"] == 22
    (tmp_path / "some.txt").write_text("\n".join(map(str, (made / "photos").glob("cat*.png"))))
    with pytest.raises(DataError, match="its 1 correction will be lost"):
        label(copy, photos=tmp_path / "some.txt")
    label(copy, photos=tmp_path / "some.txt", force=True)
    assert facts_of(copy)["counts"]["examples"] == 21


def test_a_folder_does_not_hide_a_pretrained_encoder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "efficientnet-lite0").mkdir()
    (tmp_path / "some.txt").write_text("\n".join(map(str, (made / "photos").glob("cat*.png"))))
    result = labelling.label(made / "examples", "some.txt", "r", backbone="efficientnet-lite0")
    assert facts_of(result.folder)["request"]["backbone"] == "efficientnet-lite0"


def test_threshold_and_prior(label, tmp_path):
    label(tmp_path / "a", threshold=1)
    assert {line["status"] for line in rows(tmp_path / "a" / "labels.csv")} <= {"unsure", "outlier"}
    label(tmp_path / "b", prior={"cat": 8, "dog": 1, "eel": 1})
    facts = facts_of(tmp_path / "b")
    assert facts["method"]["name"] == "tim-adm"
    assert facts["method"]["settings"]["class_prior"] == pytest.approx([0.8, 0.1, 0.1])


WRONG = [
    ({"prior": {"cat": 0.5, "dog": 0.5}}, "prior must name every class once; missing: eel."),
    ({"prior": {"cat": 1, "dog": 1, "eel": 1, "fox": 1}}, "prior must name classes only; 'fox'"),
    (
        {"prior": {"cat": 1, "dog": 1, "eel": 1}, "method": "prototype"},
        "prior must not be given for",
    ),
    ({"threshold": 2}, "threshold must be between 0 and 1; got 2."),
    ({"method": "label-propagation"}, "method must be able to classify new images"),
    ({"method": "tim-outo"}, "Unknown method 'tim-outo'. Did you mean 'tim-auto'?"),
    ({"export": ["coco"]}, "Unknown export 'coco'."),
    ({"settings": {"nonsense": 1}}, "nonsense"),
    ({"device": "tpu"}, "device 'tpu' is not available here"),
    ({"backbone": "efficientnet-lite9"}, "Did you mean 'efficientnet-lite2'?"),
    ({"photos": "nothing"}, "nothing: this folder or file with images does not exist."),
    ({"examples": "nothing"}, "nothing: this folder or file with examples does not exist."),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_arguments_are_refused_before_any_work(
    arguments, message, label, tmp_path, no_encoding
):
    with pytest.raises((InvalidArgumentError, DataError)) as caught:
        label(tmp_path / "r", **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "r").exists()


def test_wrong_examples_are_refused_before_any_work(label, made, tmp_path, no_encoding):
    examples = shutil.copytree(made / "examples", tmp_path / "examples")
    shutil.copy(examples / "cat" / "0.png", examples / "dog" / "same.png")
    with pytest.raises(DataError, match="the same image is an example of 'cat' and of 'dog'"):
        label(tmp_path / "r", examples=examples)
    assert not (tmp_path / "r" / "labels.csv").exists()


def test_an_example_that_cannot_be_decoded_is_refused(label, made, tmp_path):
    examples = shutil.copytree(made / "examples", tmp_path / "examples")
    (examples / "dog" / "empty.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty\.png: this example cannot be used \(the file is e"):
        label(tmp_path / "r", examples=examples)
    assert not (tmp_path / "r" / "labels.csv").exists()


def test_another_run_is_never_overwritten_without_force(label, copy):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    with pytest.raises(DataError, match="contains another run, with other values of method, se"):
        label(copy, method="prototype")
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    label(copy, method="prototype", force=True)
    assert facts_of(copy)["method"]["name"] == "prototype"


@pytest.mark.parametrize("name", ["thesis.tex", "labels.csv", "report.html"])
def test_a_folder_with_other_files_is_not_changed(label, tmp_path, name):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / name).write_text("years of work")
    with pytest.raises(DataError, match="contains other files; pass force=True to write there"):
        label(tmp_path / "r")
    assert [path.name for path in (tmp_path / "r").iterdir()] == [name]
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="a file, not a folder for results"):
        label(tmp_path / "file")


def test_exports_are_renewed_with_the_labels(label, made, tmp_path):
    label(tmp_path / "r")
    assert label(tmp_path / "r", export=["imagefolder"]).exports == ["imagefolder"]
    result = add_labels(tmp_path / "r", {str(made / "photos" / "cat7.png"): "newt"})
    assert result.exports == ["imagefolder"]
    assert (tmp_path / "r" / "imagefolder" / "newt" / "cat7.png").exists()


def test_wrong_lists_are_refused(label, made, tmp_path):
    photo, out = made / "photos" / "cat7.png", tmp_path / "r"
    with pytest.raises(DataError, match="neither a folder nor a list of files"):
        label(out, photos=photo)
    sheet = tmp_path / "c.csv"
    sheet.write_text(f"path,label\n{photo},eel\n{photo},cat\n")
    with pytest.raises(DataError, match="is labelled 'eel' and 'cat'"):
        label(out, examples=sheet)
    sheet.write_text(f"path,label\n{photo},eel\n{made / 'photos' / 'cat8.png'},\n")
    with pytest.raises(DataError, match=r"cat8\.png' has no label"):
        label(out, examples=sheet)


def test_a_photo_that_is_listed_twice_counts_once(label, made, tmp_path):
    names = [str(path) for path in sorted((made / "photos").glob("*.png"))]
    (tmp_path / "list.txt").write_text("\n".join(names + names[:3]))
    result = label(tmp_path / "r", photos=tmp_path / "list.txt")
    assert list(result.labels) == names


@pytest.mark.parametrize("width", [360, 1400])
def test_report_is_readable_in_a_browser(finished, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((finished / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    headings = page.locator("h2").all_inner_texts()
    assert {"Result", "Accuracy", "What to label next", "Doubtful photos", "Classes"} <= set(
        headings
    )
    pictures = page.locator(".gallery img")
    assert pictures.count() > 30
    assert all(pictures.nth(i).get_attribute("alt") for i in range(5))
    assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    bars = page.locator(".bars").first.locator(".bar")
    assert [bar.split("\n")[0] for bar in bars.all_inner_texts()] == ["cat", "dog", "eel"]
    assert not problems
    page.close()
