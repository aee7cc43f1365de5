"""Names of any bytes and lists in other encodings, from the first run to corrections and audits."""

import json
import os
import shutil

import pytest

from infoshot import DataError, InvalidArgumentError, extract, inspect_dataset, labelling
from infoshot.core.csv_file import csv_text
from infoshot.core.text import unescape_name
from infoshot.images.datasets import open_dataset
from infoshot.images.folders import find_examples, find_images
from tests.labelling.commands import rows
from tests.labelling.commands import run as command

# The first two collide if bytes are only replaced by escapes; so do the next two.
NAMES = [
    b"cat\xe9.png",
    rb"cat\xe9.png",
    b"dog\xff.png",
    rb"dog\xff.png",
    rb"\x5c.png",
    b"\r\n.png",
]
CONTROLS = ["cat\r", "two\nlines", "tab\t", "\x1b[31mred", "\u202egnp"]


@pytest.fixture(scope="module")
def odd(made, tmp_path_factory):
    """A run in a folder whose name is not UTF-8, over images with such names."""
    folder = tmp_path_factory.mktemp("text") / os.fsdecode(b"gr\xf6\xdfe")
    shutil.copytree(made / "examples" / "cat", folder / "examples" / os.fsdecode(b"kaf\xe9"))
    shutil.copytree(made / "examples" / "dog", folder / "examples" / rb"kaf\xe9".decode())
    shutil.copytree(made / "photos", folder / "photos")
    photos = sorted((made / "photos").iterdir())
    for name, photo in zip(NAMES, photos, strict=False):
        shutil.copy(photo, folder / "photos" / os.fsdecode(name))
    result = labelling.label(
        folder / "examples", folder / "photos", folder / "run", backbone=made / "weights",
        cache=folder / "cache", export=["imagefolder", "label-studio", "fiftyone"],
    )  # fmt: skip
    return folder, result


@pytest.fixture
def run(odd, tmp_path):
    return shutil.copytree(odd[0] / "run", tmp_path / "run", symlinks=True)


def path_of(folder, name):
    """Path of an image in labels.csv."""
    wanted = folder / "photos" / os.fsdecode(name)
    (found,) = (
        row["path"] for row in rows(folder / "run" / "labels.csv")
        if unescape_name(row["path"]) == str(wanted)
    )  # fmt: skip
    return found


def test_every_file_can_be_found_by_its_line(odd):
    folder, result = odd
    paths = [row["path"] for row in rows(folder / "run" / "labels.csv")]
    assert len(set(paths)) == len(paths) == len(result.labels) == 60 + len(NAMES)
    assert {unescape_name(path) for path in paths} == {
        str(file) for file in (folder / "photos").iterdir()
    }
    assert path_of(folder, NAMES[0]).endswith(r"gr\xf6\xdfe/photos/cat\xe9.png")
    assert path_of(folder, NAMES[1]).endswith(r"gr\xf6\xdfe/photos/cat\x5cxe9.png")


def test_class_folders_that_differ_in_encoding_stay_apart(odd, run):
    folder, result = odd
    assert result.classes == (r"kaf\x5cxe9", r"kaf\xe9")
    assert set(json.loads((folder / "run" / "run.json").read_bytes())["classes"]) == set(
        result.classes
    )
    assert labelling.predict(run, folder / "photos")[0].label in result.classes


def test_all_results_are_valid_utf8(odd):
    folder, _ = odd
    texts = [
        path for path in (folder / "run").rglob("*")
        if path.suffix in (".csv", ".json", ".html", ".xml") and path.is_file()
    ]  # fmt: skip
    assert len(texts) >= 6
    for path in texts:
        path.read_bytes().decode("utf-8")
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert r"gr\xf6\xdfe/photos, labelled from" in page
    assert "\r" not in page


def test_exports_keep_all_images_apart(odd):
    folder, result = odd
    exported = [
        path.resolve() for path in (folder / "run" / "imagefolder").rglob("*") if path.is_symlink()
    ]
    assert sorted(exported) == sorted(image.file.resolve() for image in result.images)


@pytest.mark.parametrize("as_sheet", [True, False])
@pytest.mark.parametrize("number", range(4))
def test_a_correction_reaches_its_own_image(odd, run, tmp_path, number, as_sheet):
    folder, _ = odd
    path = path_of(folder, NAMES[number])
    corrections = {path: "eel"}
    if as_sheet:
        corrections = tmp_path / "sheet.csv"
        corrections.write_text(f"path,label\n{path},eel\n", encoding="utf-8")
    result = labelling.add_labels(run, corrections)
    given = {image.path for image in result.images if image.reason == "given"}
    assert path in given
    same_content = {path_of(folder, name) for name in NAMES} - {path}
    assert not given & same_content
    assert [row["path"] for row in rows(run / "corrections.csv")] == [path]


def test_images_elsewhere_may_have_any_name_too(odd, run, tmp_path, made):
    other = tmp_path / os.fsdecode(b"other\xe9.png")
    shutil.copy(made / "examples" / "eel" / "0.png", other)
    result = labelling.add_labels(run, {str(other): "eel"})
    assert "eel" in result.classes
    (row,) = rows(run / "corrections.csv")
    assert unescape_name(row["path"]) == str(other)
    again = labelling.add_labels(run, {str(odd[0] / "photos" / "cat10.png"): "eel"})
    assert "eel" in again.classes


def test_sheets_of_a_run_name_its_images(odd, run):
    _, result = odd
    sheet = labelling.draw_audit(run, n=1000).sheet
    assert r"cat\x5cxe9.png" in sheet.read_text(encoding="utf-8")
    lines = [(row["path"], row["label"], row["label"]) for row in rows(sheet)]
    sheet.write_text(csv_text(["path", "label", "truth"], lines), "utf-8", newline="")
    checked = labelling.audit(run, sheet).lines[0]
    assert checked.n_correct == checked.n_checked == len(result.images)
    assert {row["path"] for row in rows(labelling.suggest(run, n=9).sheet)} <= set(result.labels)


def test_labels_csv_is_a_list_of_images(odd):
    folder, result = odd
    found = find_images(folder / "run" / "labels.csv")
    assert [(image.path, image.file) for image in found] == [
        (image.path, image.file) for image in result.images
    ]


def test_lists_of_names_may_hold_any_bytes(odd, tmp_path):
    _, result = odd
    images = [image for image in result.images if "\n" not in image.path]
    (tmp_path / "list.txt").write_bytes(b"\n".join(os.fsencode(image.file) for image in images))
    (tmp_path / "escaped.txt").write_text("\n".join(image.path for image in images))
    for name in ("list.txt", "escaped.txt"):
        assert [image.file for image in find_images(tmp_path / name)] == [
            image.file for image in images
        ]
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "marked.txt").write_text(f"{images[0].path}\r\n", encoding=encoding)
        assert find_images(tmp_path / "marked.txt")[0].file == images[0].file


@pytest.mark.parametrize("name", CONTROLS)
def test_class_names_with_control_characters_are_refused_first(
    name, made, label, tmp_path, no_encoding
):
    examples = shutil.copytree(made / "examples", tmp_path / "examples")
    (examples / "cat").rename(examples / name)
    with pytest.raises(DataError, match=r"the class name .* contains the character"):
        label(tmp_path / "run", examples=examples)
    with pytest.raises(DataError, match=r"the class name .* contains the character"):
        open_dataset("folder", examples)
    found = find_examples(made / "examples")
    lines = [(str(image.file), f"{name}x" if kind == "cat" else kind) for kind, image in found]
    sheet = tmp_path / "examples.csv"
    sheet.write_text(csv_text(["path", "label"], lines), "utf-8", newline="")
    with pytest.raises(DataError, match=r"the class name .* contains the character"):
        label(tmp_path / "run", examples=sheet)
    assert not (tmp_path / "run").exists()


def test_corrections_with_control_characters_are_refused(run, odd):
    with pytest.raises((DataError, InvalidArgumentError), match=r"the class name 'a\\nb' contains"):
        labelling.add_labels(run, {path_of(odd[0], NAMES[0]): "a\nb"})
    assert not (run / "corrections.csv").exists()


@pytest.mark.parametrize("what", ["examples", "photos"])
def test_lists_in_another_encoding_are_refused_first(what, made, label, tmp_path, no_encoding):
    sheet = tmp_path / "list.csv"
    sheet.write_bytes("path,label\nGröße.png,Köln\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"list\.csv: line 2 is not UTF-8 text \(byte 0xf6\)"):
        label(tmp_path / "run", **{what: sheet})
    result = command("label", sheet, made / "photos", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "save it as 'CSV UTF-8' and try again." in result.stderr
    (made / "photos" / "train.csv").write_bytes(sheet.read_bytes())
    try:
        with pytest.raises(DataError, match=r"train\.csv: line 2 is not UTF-8 text"):
            open_dataset("folder", made / "photos")
    finally:
        (made / "photos" / "train.csv").unlink()


def test_corrections_in_another_encoding_say_how_to_continue(run):
    (run / "corrections.csv").write_bytes(b"path,label\ncat\xe9.png,dog\n")
    with pytest.raises(DataError, match=r"corrections\.csv: line 2 .* save it as 'CSV UTF-8'"):
        labelling.add_labels(run, {"a.png": "cat"})


def test_sheets_of_other_countries_are_read(made, tmp_path):
    lines = [f"{image.file};{label}\r\n" for label, image in find_examples(made / "examples")]
    (tmp_path / "list.csv").write_text("path;label\r\n" + "".join(lines), "utf-8-sig", newline="")
    assert find_examples(tmp_path / "list.csv") == find_examples(made / "examples")


def test_class_folders_of_any_bytes_can_be_extracted(odd, made, tmp_path):
    table = extract(
        "folder", odd[0] / "examples", checkpoint=made / "weights", out=tmp_path / "f.safetensors"
    )
    assert list(table.class_names) == [r"kaf\x5cxe9", r"kaf\xe9"]
    (odd[0] / "examples" / os.fsdecode(b"kaf\xe9") / os.fsdecode(b"no\xe9.txt")).touch()
    out = tmp_path / "found.json"
    result = command("data", "inspect", "--dataset", "folder", "--root", odd[0] / "examples",
                     "--no-decode", "--json", out)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    (ignored,) = json.loads(out.read_bytes())["ignored"]
    assert unescape_name(ignored).endswith(os.fsdecode(b"/no\xe9.txt"))
    assert inspect_dataset("folder", odd[0] / "examples", decode=False).ignored == [ignored]
