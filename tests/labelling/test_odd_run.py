"""A pile full of odd files: the run ends well, every one is in labels.csv, the page is harmless."""

import os
import re

import pytest

from infoshot.images.decoding import is_image_name
from infoshot.images.folders import printable
from tests.labelling.commands import rows, run
from tests.labelling.odd_files import make_odd_files

EVIL = "<img src=x onerror=document.title='evil'>"


@pytest.fixture(scope="module")
def odd_run(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd-run")
    expected = make_odd_files(folder / "pile")
    evil = folder / "examples" / EVIL
    evil.mkdir(parents=True)
    for name in ("cat", "dog"):
        (folder / "examples" / name).symlink_to(made / "examples" / name)
    for image in (made / "examples" / "eel").iterdir():
        (evil / image.name).symlink_to(image)
    for photo in (made / "photos").iterdir():
        (folder / "pile" / photo.name).symlink_to(photo)
    result = run(
        "label", folder / "examples", folder / "pile", "--out", folder / "run",
        "--backbone", made / "weights", "--cache", folder / "cache",
        "--export", "imagefolder", "--export", "label-studio", "--export", "fiftyone",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return folder, expected


def test_every_odd_file_is_labelled_or_named_with_a_reason(odd_run):
    folder, expected = odd_run
    lines = {line["path"]: line for line in rows(folder / "run" / "labels.csv")}
    wrong = {}
    for path, expectation in expected.items():
        line = lines.get(printable(path))
        if line is None:
            if is_image_name(path):
                wrong[path] = "missing"
            continue
        found = "unreadable" if line["status"] == "unreadable" else "readable"
        if expectation not in (found, "either"):
            wrong[path] = line
        assert bool(line["reason"]) or found == "readable"
        assert bool(line["label"]) == (found == "readable")
    assert not wrong
    assert sum(line["status"] == "unreadable" for line in lines.values()) > 50


def test_csv_is_whole_text(odd_run):
    folder, _ = odd_run
    (folder / "run" / "labels.csv").read_text(encoding="utf-8")
    names = [line["path"] for line in rows(folder / "run" / "labels.csv")]
    assert any("\n" in name for name in names)
    assert any("\\xff" in name or "\\x" in name for name in names)
    assert len(set(names)) == len(names)


def test_names_are_text_on_the_page_and_nothing_else(odd_run, browser):
    folder, _ = odd_run
    text = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert EVIL not in text
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.goto((folder / "run" / "report.html").as_uri())
    assert page.title() == "Labels"
    assert page.get_by_text(re.compile(r"onerror=document\.title")).count() > 0
    assert page.locator("img[onerror], script").count() == 0
    page.close()


def test_exports_hold_what_could_be_read(odd_run):
    folder, _ = odd_run
    lines = [line for line in rows(folder / "run" / "labels.csv") if line["status"] != "unreadable"]
    exported = [
        name
        for _, _, names in os.walk(folder / "run" / "imagefolder")
        for name in names
        if not name.startswith(".")
    ]
    assert len(exported) == len(lines)
