"""A run over odd files: labels.csv lists every one, and the report executes nothing."""

import os
import re

import pytest

from infoshot.core.text import escape_name
from infoshot.images.decoding import is_image_name
from infoshot.labelling import label
from tests.labelling.commands import rows
from tests.labelling.odd_files import make_odd_files

EVIL = "<img src=x onerror=document.title='evil'>"


@pytest.fixture(scope="module")
def odd_run(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd-run")
    expected = make_odd_files(folder / "photos")
    evil = folder / "examples" / EVIL
    evil.mkdir(parents=True)
    for name in ("cat", "dog"):
        (folder / "examples" / name).symlink_to(made / "examples" / name)
    for image in (made / "examples" / "eel").iterdir():
        (evil / image.name).symlink_to(image)
    for photo in (made / "photos").iterdir():
        (folder / "photos" / photo.name).symlink_to(photo)
    label(
        folder / "examples", folder / "photos", folder / "run", backbone=made / "weights",
        cache=folder / "cache", export=["imagefolder", "label-studio", "fiftyone"],
    )  # fmt: skip
    return folder, expected


def test_every_odd_file_has_a_label_or_a_reason(odd_run):
    folder, expected = odd_run
    lines = {line["path"]: line for line in rows(folder / "run" / "labels.csv")}
    wrong = {}
    for path, expectation in expected.items():
        line = lines.get(escape_name(path))
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


def test_csv_is_valid_utf8(odd_run):
    folder, _ = odd_run
    (folder / "run" / "labels.csv").read_text(encoding="utf-8")
    names = [line["path"] for line in rows(folder / "run" / "labels.csv")]
    assert any("\n" in name for name in names)
    assert any("\\xff" in name or "\\x" in name for name in names)
    assert len(set(names)) == len(names)


def test_names_are_only_text_on_the_page(odd_run, browser):
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


def test_exports_have_all_readable_images(odd_run):
    folder, _ = odd_run
    lines = [line for line in rows(folder / "run" / "labels.csv") if line["status"] != "unreadable"]
    exported = [
        name
        for _, _, names in os.walk(folder / "run" / "imagefolder")
        for name in names
        if not name.startswith(".")
    ]
    assert len(exported) == len(lines)
