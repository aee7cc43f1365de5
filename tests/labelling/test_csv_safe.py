"""Names that spreadsheet programs would run as formulas, in every CSV file that has names."""

import csv
import json
import shutil

import pyarrow.parquet as pq
import pytest
import torch

from infoshot import labelling
from infoshot.core.types import FeatureTable
from infoshot.features import write_features
from infoshot.labelling import add_labels, audit, draw_audit, label_table, predict, suggest
from tests.labelling.commands import rows, run

EVIL, GUARDED = "=cmd|' calc'!A0", "'=cmd|' calc'!A0"


@pytest.fixture(scope="module")
def folders(made, tmp_path_factory):
    """Examples of a class that is named like a formula, and photos that are."""
    folder = tmp_path_factory.mktemp("formulas")
    for name in ("cat", "dog"):
        shutil.copytree(made / "examples" / name, folder / "examples" / name)
    shutil.copytree(made / "examples" / "eel", folder / "examples" / EVIL)
    for path in sorted((made / "photos").iterdir()):
        target = folder / (f"=1+{path.name}" if path.stem.endswith("7") else path.name)
        shutil.copy(path, target)
    (folder / "list.txt").write_text("\n".join(p.name for p in sorted(folder.glob("*.png"))))
    return folder


@pytest.fixture(scope="module")
def finished(folders, made):
    labelling.label(
        folders / "examples", folders / "list.txt", folders / "run", backbone=made / "weights",
        cache=folders / "cache", method="prototype", csv_safe=True,
    )  # fmt: skip
    return folders / "run"


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def fields(path):
    """All fields of a CSV file except numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [field for row in csv.reader(file) for field in row]


def is_safe(path):
    found = fields(path)
    assert any(field.startswith("'=") for field in found)
    return not any(field[:1] in ("=", "+", "-", "@", "\t", "\r") for field in found)


def test_every_csv_file_of_a_run_is_safe(copy, folders, tmp_path):
    assert is_safe(copy / "labels.csv")
    exact = pq.read_table(copy / "labels.parquet")
    assert any(path.startswith("=1+") for path in exact["path"].to_pylist())
    assert EVIL in exact["label"].to_pylist()
    lines = rows(copy / "labels.csv")
    paths = exact["path"].to_pylist()
    assert [line["path"] for line in lines] == [f"'{p}" if p[0] == "=" else p for p in paths]
    assert is_safe(suggest(copy, n=60).sheet)
    assert is_safe(draw_audit(copy, n=60).sheet)
    images = predict(copy, folders / "list.txt", out=tmp_path / "p.csv", csv_safe=True)
    assert is_safe(tmp_path / "p.csv")
    assert EVIL in {image.label for image in images}
    add_labels(copy, {"=1+cat7.png": EVIL, "cat8.png": "cat"})
    assert is_safe(copy / "corrections.csv")
    assert is_safe(copy / "labels.csv")


def test_by_default_the_data_are_exact(folders, made, tmp_path):
    out = tmp_path / "run"
    labelling.label(
        folders / "examples", folders / "list.txt", out, backbone=made / "weights",
        cache=folders / "cache", method="prototype",
    )  # fmt: skip
    assert "=1+cat7.png" in fields(out / "labels.csv")
    assert EVIL in fields(out / "labels.csv")
    for sheet in (suggest(out, n=60).sheet, draw_audit(out, n=60).sheet):
        assert "=1+cat7.png" in fields(sheet)
    assert not any(field.startswith("'=") for field in fields(out / "labels.csv"))
    again = labelling.label(  # the form is no part of the request
        folders / "examples", folders / "list.txt", out, backbone=made / "weights",
        cache=folders / "cache", method="prototype", csv_safe=True,
    )  # fmt: skip
    assert is_safe(out / "labels.csv")
    assert "=1+cat7.png" in again.labels


def test_an_apostrophe_in_a_name_is_not_taken_for_a_guard(made, tmp_path, monkeypatch):
    photos = tmp_path / "photos"
    photos.mkdir()
    for name, source in {"-x.png": "cat7", "'-x.png": "dog7", "other.png": "eel7"}.items():
        (photos / name).write_bytes((made / "photos" / f"{source}.png").read_bytes())
    monkeypatch.chdir(photos)
    run = tmp_path / "run"
    labelling.label(
        made / "examples", ".", run, backbone=made / "weights", cache=tmp_path / "cache",
        method="prototype", csv_safe=True,
    )  # fmt: skip
    sheet = tmp_path / "mine.csv"
    sheet.write_text("path,label\n'-x.png,eel\n")  # as every sheet of the run names -x.png
    add_labels(run, sheet)
    assert rows(run / "corrections.csv") == [{"path": "'-x.png", "label": "eel"}]
    labels = {line["path"]: line["reason"] for line in rows(run / "labels.csv")}
    assert labels["'-x.png"] == "given"
    assert labels["''-x.png"] != "given"


def test_guarded_sheets_are_understood(copy, folders, made):
    sheet = suggest(copy, n=60).sheet
    lines = rows(sheet)
    truth = {"cat": "cat", "dog": "dog", "eel": GUARDED}
    for line in lines:
        name = line["path"].removeprefix("'=1+")[:3]
        line["label"] = truth[name] if line["path"].startswith("'=") else ""
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    result = add_labels(copy, sheet)
    assert set(result.classes) == {"cat", "dog", EVIL}
    assert result.labels["=1+eel7.png"] == EVIL
    facts = json.loads((copy / "run.json").read_text())
    assert facts["counts"]["examples"] > 21
    # The corrections of such a run are read back when it is run again.
    again = labelling.label(
        folders / "examples", folders / "list.txt", copy, backbone=made / "weights",
        cache=folders / "cache", method="prototype", csv_safe=True,
    )  # fmt: skip
    assert again.labels == result.labels


def test_guarded_answers_are_understood(copy):
    sheet = draw_audit(copy, n=60).sheet
    lines = rows(sheet)
    with sheet.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "truth"])
        writer.writerows((line["path"], line["label"]) for line in lines)
    result = audit(copy, sheet)
    assert (result.lines[0].n_correct, result.unknown_classes) == (60, [])


def test_a_guarded_list_of_examples_is_understood(folders, tmp_path, made):
    (tmp_path / "=a.png").write_bytes((made / "photos" / "eel9.png").read_bytes())
    (tmp_path / "b.png").write_bytes((made / "photos" / "cat9.png").read_bytes())
    (tmp_path / "e.csv").write_text("path,label\n'=a.png,'=x\nb.png,cat\n")
    result = labelling.label(
        tmp_path / "e.csv", folders / "list.txt", tmp_path / "run", backbone=made / "weights",
        cache=folders / "cache", method="prototype",
    )  # fmt: skip
    assert result.classes == ("=x", "cat")


def test_commands_have_the_option(copy, folders, made, tmp_path):
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.2], [0.2, 0.9]])
    table = FeatureTable(x, torch.tensor([0, 1, -1, -1]), class_names=(EVIL, "cat"))
    assert EVIL in label_table(table, method="prototype").to_csv()
    write_features(tmp_path / "f.safetensors", table)
    out = tmp_path / "o.csv"
    (tmp_path / "c.csv").write_text("path,label\ncat8.png,cat\n=1+eel7.png,dog\n")
    commands = {
        ("solve", "--features", tmp_path / "f.safetensors", "--method", "prototype", "--out", out),
        ("predict", copy, folders / "list.txt", "--out", out),
        ("suggest", copy, "--n", 60, "--out", out),
        ("audit", copy, "--n", 60, "--out", out),
    }
    for arguments in commands:
        out.unlink(missing_ok=True)
        result = run(*arguments, "--csv-safe")
        assert result.exit_code == 0, result.output
        assert is_safe(out)
    result = run("label", "--add", tmp_path / "c.csv", copy, "--csv-safe")
    assert result.exit_code == 0, result.output
    assert is_safe(copy / "corrections.csv")
    result = run(
        "label", folders / "examples", folders / "list.txt", "--out", tmp_path / "run",
        "--backbone", made / "weights", "--cache", folders / "cache", "--csv-safe",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert is_safe(tmp_path / "run" / "labels.csv")
