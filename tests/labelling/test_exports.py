import dataclasses
import json
import os
from pathlib import Path
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infoshot.labelling.exports import EXPORTS
from infoshot.labelling.exports.export_folder import MARKER, put
from infoshot.labelling.exports.names import Names
from tests.labelling.exported import FOLDERS, export, listed, make_photo, make_photos, tree

SCHEMAS = Path(__file__).parent / "schemas"
ODD_CLASSES = [
    'a "quoted" one', "it's", "<script>alert(1)</script>", "two\nlines", "tab\there", "🦊 fox",
    "a&b", "..", "/etc/passwd", "-rf", "=1+1", "50%", "back\\slash", "e\u0301", "\u202eabc",
    "nul\0", "byte\udcff", "x" * 300, "_unsure", "CON", " padded ", "v1.5",
]  # fmt: skip


@pytest.fixture
def photos(tmp_path):
    return make_photos(tmp_path)


def test_imagefolder_has_a_folder_per_class(photos, tmp_path):
    out = tmp_path / "run" / "imagefolder"
    export("imagefolder", photos, out)
    places = ["cat/a.jpg", "cat/a-2.jpg", "dog/b.png", "dog/a.png"]
    places += ["_unsure/doubt.jpg", "_outlier/other.jpg"]
    assert tree(out) == {
        place: photo.file.read_bytes() for place, photo in zip(places, photos[:6], strict=True)
    }
    assert (out / "cat" / "a-2.jpg").readlink() == Path("../../../photos/sub/a.jpg")
    assert (out / MARKER).read_text().startswith("Exported by InfoShot (tim-auto 1.0):\n")
    assert listed(out.parent) == ["imagefolder"]  # no temporary files are left


@pytest.mark.parametrize("kind", FOLDERS)
def test_links_work_through_linked_folders_and_after_moving_everything(kind, photos, tmp_path):
    source = tmp_path / "photos"
    real = source / "far" / "away"
    real.mkdir(parents=True)
    (tmp_path / "near").symlink_to(real)
    export(kind, photos, tmp_path / "near" / "out")
    before = tree(real / "out")
    assert set(before.values()) >= {photo.file.read_bytes() for photo in photos[:6]}
    source.rename(tmp_path / "moved")
    assert tree(tmp_path / "moved" / "far" / "away" / "out") == before


@pytest.mark.parametrize("kind", FOLDERS)
def test_photos_are_copied_if_links_are_not_possible(kind, photos, tmp_path, monkeypatch):
    export(kind, photos, tmp_path / "linked")

    def refused(*_):
        raise OSError("a privilege is not held")

    monkeypatch.setattr(Path, "symlink_to", refused)
    export(kind, photos, tmp_path / "copied")
    assert tree(tmp_path / "copied") == tree(tmp_path / "linked")
    assert not any(path.is_symlink() for path in (tmp_path / "copied").rglob("*"))


def test_photos_are_found_through_links_and_relative_paths(photos, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").symlink_to("photos/sub")
    monkeypatch.chdir(tmp_path)
    through = dataclasses.replace(photos[0], file=Path("elsewhere/../a.jpg"))
    export("imagefolder", [through], Path("out"))
    assert tree(tmp_path / "out") == {"cat/a.jpg": photos[0].file.read_bytes()}


def test_nothing_is_written_through_a_link(photos, tmp_path):
    (tmp_path / "link.jpg").symlink_to(photos[0].file)
    before = photos[0].file.read_bytes()
    with pytest.raises(FileExistsError):
        put(photos[1], tmp_path / "link.jpg")
    assert photos[0].file.read_bytes() == before


def test_similar_class_names_stay_distinct(tmp_path):
    labels = ["Cat", "cat", "CAT", "a/b", "a\\b", "\u00e9", "e\u0301", "_unsure", "_Outlier", "..."]
    photos = [make_photo(tmp_path / "photos", f"{i}.jpg", k) for i, k in enumerate(labels)]
    export("imagefolder", [*photos, make_photo(tmp_path, "x.jpg", status="unsure")], tmp_path / "o")
    folders = sorted(path.name for path in (tmp_path / "o").iterdir() if path.is_dir())
    assert len({name.casefold() for name in folders}) == len(labels) + 1
    assert {"CAT", "Cat-2", "cat-3", "a_b", "a_b-2", "_unsure", "_unsure-2", "_"} <= set(folders)
    assert listed(tmp_path / "o" / "_unsure") == ["x.jpg"]


NAMES = st.one_of(
    st.text(max_size=20),
    st.text("aA.é\u0301/\\\0\n\udcff", max_size=6),
    st.text("x🦊", min_size=190, max_size=260),
    st.sampled_from([".", "..", "", "a.jpg", "A.JPG", "a-2.jpg", "a.jpg.png", ".jpg", "con"]),
).flatmap(lambda stem: st.sampled_from([stem, f"{stem}.jpg", f"{stem}.JPG"]))


@given(st.lists(NAMES, max_size=12))
def test_any_names_become_safe_and_stay_distinct(names):
    names_in_use = Names(taken=["_unsure"])
    safe = [names_in_use.take(name) for name in names]
    assert len({name.casefold() for name in [*safe, "_unsure"]}) == len(names) + 1
    for before, after in zip(names, safe, strict=True):
        assert after == after.strip()
        assert after[0] != "."
        assert not set(after) & set('/\\\0\n\r\t:*?"<>|')
        assert 0 < len(after.encode()) <= 255  # encode() also checks that it is valid
        if before.lower().endswith(".jpg"):
            assert after[-4:] == before[-4:]


def test_thousands_of_equal_names_are_fast():
    names = Names()
    assert [names.take("a.jpg") for _ in range(5000)][-1] == "a-5000.jpg"


def read_label_studio(folder):
    """Return the tasks, checked against the schema, and the choices of the configuration."""
    tasks = json.loads((folder / "label-studio.json").read_text())
    jsonschema.validate(tasks, json.loads((SCHEMAS / "label-studio.json").read_text()))
    view = ElementTree.fromstring((folder / "label-studio.xml").read_text())
    assert [(tag.tag, tag.get("name"), tag.get("value")) for tag in view.iter("Image")] == [
        ("Image", "image", "$image")
    ]
    (choices,) = view.iter("Choices")
    assert (choices.get("name"), choices.get("toName")) == ("choice", "image")
    return tasks, [choice.get("value") for choice in choices]


def test_label_studio_has_a_task_per_readable_photo(photos, tmp_path):
    export("label-studio", photos, tmp_path / "run")
    tasks, choices = read_label_studio(tmp_path / "run")
    assert choices == ["cat", "dog"]
    assert [task["data"]["path"] for task in tasks] == [photo.path for photo in photos[:6]]
    for task, photo in zip(tasks, photos, strict=False):
        (path,) = parse_qs(urlsplit(task["data"]["image"]).query)["d"]
        assert Path("/", path) == photo.file
        assert task["data"]["status"] == photo.status
    assert [len(task["predictions"]) for task in tasks] == [1, 1, 1, 1, 0, 0]
    assert tasks[2]["predictions"] == [
        {
            "model_version": "tim-auto 1.0",
            "score": 0.75,
            "result": [
                {
                    "id": "photo-3",
                    "from_name": "choice",
                    "to_name": "image",
                    "type": "choices",
                    "value": {"choices": ["dog"]},
                }
            ],
        }
    ]


def read_fiftyone(folder):
    """Return file and target of every uuid, found as FiftyOne's importer finds them."""
    content = json.loads((folder / "labels.json").read_text())
    jsonschema.validate(content, json.loads((SCHEMAS / "fiftyone.json").read_text()))
    files = {path.stem: path for path in (folder / "data").iterdir()}
    assert set(files) == set(content["labels"])
    return {
        files[uuid].resolve(): target and content["classes"][target["label"]]
        for uuid, target in content["labels"].items()
    }


def test_fiftyone_finds_every_photo_and_its_label(photos, tmp_path):
    plain = make_photo(tmp_path / "photos", "no.extension")
    export("fiftyone", [*photos, plain], tmp_path / "out")
    assert read_fiftyone(tmp_path / "out") == {
        photo.file: photo.label or None for photo in [*photos[:6], plain]
    }
    content = json.loads((tmp_path / "out" / "labels.json").read_text())
    assert content["classes"] == ["cat", "dog"]
    assert content["labels"]["b"] == {
        "label": 1,
        "confidence": 0.75,
        "attributes": {"status": "labelled", "runner_up": "dog", "margin": 0.5},
    }


@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_without_photos_is_an_empty_folder(kind, tmp_path):
    export(kind, [make_photo(tmp_path, status="unreadable")], tmp_path / "out")
    assert (tmp_path / "out").is_dir()


def test_every_export_accepts_odd_names(tmp_path):
    names = [
        b"\xff\xfe.jpg",
        b"<script>&\"'.png",
        b"new\nline.png",
        "🦊.jpg".encode(),
        b"a%20b.jpg",
    ]
    names = [os.fsdecode(name) for name in [*names, b"#?.jpg", b"x" * 250 + b".jpg", b"a..b.JPG"]]
    names += [f"{number}.jpg" for number in range(len(ODD_CLASSES) - len(names))]
    photos = [
        make_photo(tmp_path / "photos", name, label)
        for name, label in zip(names, ODD_CLASSES, strict=True)
    ]
    for kind in EXPORTS:
        export(kind, photos, tmp_path / kind)
    assert sorted(tree(tmp_path / "imagefolder").values()) == sorted(
        photo.file.read_bytes() for photo in photos
    )
    assert set(read_fiftyone(tmp_path / "fiftyone")) == {photo.file for photo in photos}
    tasks, choices = read_label_studio(tmp_path / "label-studio")
    for task, photo in zip(tasks, photos, strict=True):
        encoded = urlsplit(task["data"]["image"]).query.removeprefix("d=")
        assert b"/" + unquote_to_bytes(encoded) == os.fsencode(photo.file)
    assert len(choices) == len(ODD_CLASSES) + 1  # and the runner-up, "dog"
    assert {"<script>alert(1)</script>", "two\nlines", "tab\there", "nul\\x00"} < set(choices)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(min_size=1, max_size=12), unique=True, min_size=1, max_size=5))
def test_any_class_is_one_of_the_choices(tmp_path, labels):
    photos = [make_photo(tmp_path / "photos", label=label) for label in labels]
    export("label-studio", photos, tmp_path / "run")
    tasks, choices = read_label_studio(tmp_path / "run")
    chosen = [task["predictions"][0]["result"][0]["value"]["choices"][0] for task in tasks]
    assert sorted({*chosen, "dog"}) == sorted(choices)
    assert len(set(chosen)) == len(labels)
