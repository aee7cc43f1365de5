"""Sheets that people fill in: white space, labels that look alike, images that are named twice."""

import shutil

import pytest

from infoshot import DataError, labelling
from infoshot.images.folders import find_examples
from infoshot.labelling import add_labels, audit, draw_audit
from tests.labelling.commands import run as command

NBSP, ZERO_WIDTH, COMPOSED, DECOMPOSED = "\u00a0", "\u200b", "\u00e9clair", "e\u0301clair"


@pytest.fixture(scope="module")
def finished(made):
    """A run with the classes cat, dog, eel and éclair."""
    out = made / "with-sheets"
    labelling.label(
        made / "examples", made / "photos", out, backbone=made / "weights", cache=made / "cache",
        method="prototype",
    )  # fmt: skip
    add_labels(out, {str(made / "photos" / "eel9.png"): COMPOSED})
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def photo(made):
    """Return the path of a photo."""
    return lambda name: str(made / "photos" / f"{name}.png")


def sheet(path, lines, column="label"):
    """Write a sheet."""
    rows = "".join(f"{image},{label}\n" for image, label in lines)
    path.write_text(f"path,{column}\n{rows}", encoding="utf-8")
    return path


def test_white_space_around_labels_and_paths_is_removed(run, photo, tmp_path):
    lines = [(photo("cat7"), f"dog{NBSP}"), (f" {photo('cat8')}{NBSP}", "\teel "),
             (photo("cat9"), f"{ZERO_WIDTH}cat")]  # fmt: skip
    result = add_labels(run, sheet(tmp_path / "c.csv", lines))
    assert result.classes == ("cat", "dog", "eel", COMPOSED)
    assert [result.labels[photo(name)] for name in ("cat7", "cat8", "cat9")] == [
        "dog",
        "eel",
        "cat",
    ]
    answers = sheet(tmp_path / "a.csv", [(f"{photo('dog9')} ", f"{NBSP}dog ")], "truth")
    assert audit(run, answers).unknown_classes == []
    assert add_labels(run, {photo("cat7"): " cat "}).labels[photo("cat7")] == "cat"


ALIKE = {
    "Cat": "the labels 'cat' and 'Cat'",
    "c at": "the labels 'cat' and 'c at'",
    "DOG": "the labels 'dog' and 'DOG'",
    f"ca{ZERO_WIDTH}t": r"the labels 'cat' and 'ca\u200bt'",
    DECOMPOSED: r"the labels '\xe9clair' and 'e\u0301clair'",
}


@pytest.mark.parametrize("label", ALIKE)
def test_labels_like_a_class_are_asked_about(label, run, photo, tmp_path):
    before = (run / "labels.csv").read_bytes()
    corrections = sheet(tmp_path / "c.csv", [(photo("cat8"), "cat"), (photo("cat7"), label)])
    answers = sheet(tmp_path / "a.csv", [(photo("cat8"), "cat"), (photo("cat7"), label)], "truth")
    for function, given in (
        (add_labels, corrections), (add_labels, {photo("cat7"): label}), (audit, answers)
    ):  # fmt: skip
        with pytest.raises(DataError) as caught:
            function(run, given)
        place = photo("cat7") if isinstance(given, dict) else "row 3"
        assert ALIKE[label] in str(caught.value)
        assert place in str(caught.value)
        assert "did you mean '" in str(caught.value)
    result = command("label", "--add", corrections, run)
    assert result.exit_code == 2
    assert "did you mean" in result.stderr
    assert (run / "labels.csv").read_bytes() == before


def test_new_labels_that_are_alike_are_asked_about(run, photo, tmp_path):
    lines = [(photo("cat7"), "Newt"), (photo("cat8"), "newt")]
    with pytest.raises(
        DataError, match=r"'Newt' \(row 2\) and 'newt' \(row 3\) differ only in cas"
    ):
        add_labels(run, sheet(tmp_path / "c.csv", lines))
    assert "newt" in add_labels(run, sheet(tmp_path / "c.csv", lines[1:])).classes


def test_examples_that_are_alike_are_asked_about(made, tmp_path):
    first, second, third = sorted((made / "examples" / "cat").iterdir())[:3]
    lines = [(first, "cat"), (second, "dog"), (third, "Cat")]
    with pytest.raises(DataError, match=r"'cat' \(row 2\) and 'Cat' \(row 4\) .* one folder of ex"):
        find_examples(sheet(tmp_path / "e.csv", lines))
    lines[2] = (third, f"cat{NBSP}")
    found = find_examples(sheet(tmp_path / "e.csv", lines))
    assert [label for label, _ in found] == ["cat", "cat", "dog"]


def test_classes_that_are_alike_on_purpose_have_folders(made, photo, tmp_path):
    """Such as small and capital letters."""
    for name, original in (("a", "cat"), ("A", "dog")):
        shutil.copytree(made / "examples" / original, tmp_path / "letters" / name)
    out = tmp_path / "letters-run"
    labelling.label(
        tmp_path / "letters", made / "photos", out, backbone=made / "weights", method="prototype"
    )
    result = add_labels(out, {photo("cat7"): "A", photo("cat8"): "a"})
    assert (result.labels[photo("cat7")], result.labels[photo("cat8")]) == ("A", "a")


def test_a_class_folder_may_end_with_a_space(made, photo, tmp_path):
    for name in ("cat ", "dog"):
        shutil.copytree(made / "examples" / name.strip(), tmp_path / "examples" / name)
    out = tmp_path / "spaces"
    labelling.label(
        tmp_path / "examples", made / "photos", out, backbone=made / "weights", method="prototype"
    )
    result = add_labels(out, {photo("cat7"): "cat", photo("cat8"): "cat "})
    assert result.classes == ("cat ", "dog")
    assert result.labels[photo("cat7")] == "cat "
    answers = sheet(tmp_path / "a.csv", [(photo("cat9"), "cat")], "truth")
    assert audit(out, answers).unknown_classes == []
    again = labelling.label(
        tmp_path / "examples", made / "photos", out, backbone=made / "weights", method="prototype"
    )
    assert again.labels == result.labels


def test_an_image_with_two_labels_is_refused(run, made, photo, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    relative = "photos/../photos/./cat7.png"
    twice = [(photo("cat7"), "cat"), (photo("cat8"), "cat"), (relative, "dog")]
    message = r"cat7\.png' is labelled 'cat' and 'dog' \(row 2, row 4\)"
    with pytest.raises(DataError, match=message):
        add_labels(run, sheet(tmp_path / "c.csv", twice))
    with pytest.raises(DataError, match=message):
        audit(run, sheet(tmp_path / "a.csv", twice, "truth"))
    with pytest.raises(DataError, match=message):
        find_examples(sheet(tmp_path / "e.csv", twice))
    with pytest.raises(DataError, match=r"is labelled 'cat' and 'dog' \('.*cat7\.png', '.*cat7"):
        add_labels(run, dict(twice))
    same = [(photo("cat7"), "cat"), (relative, "cat ")]
    assert add_labels(run, sheet(tmp_path / "c.csv", same)).labels[photo("cat7")] == "cat"
    answers = [(photo("cat8"), "cat"), ("photos/cat8.png", "cat")]
    assert audit(run, sheet(tmp_path / "a.csv", answers, "truth")).lines[0].n_checked == 1


def test_empty_cells_of_a_table_in_python_are_no_labels(run, photo):
    given = {photo("cat7"): None, photo("cat8"): float("nan"), photo("cat9"): "cat"}
    result = add_labels(run, given)
    assert set(result.classes) == {"cat", "dog", "eel", COMPOSED}


def test_labels_that_are_not_text_are_refused(run, photo):
    with pytest.raises(DataError, match=r"the class name .* contains the character"):
        add_labels(run, {photo("cat7"): "\ud800"})


def test_labels_of_the_run_are_no_labels_of_a_person(run, tmp_path):
    """A sheet of an audit and labels.csv hold predictions in the column of the labels."""
    before, drawn = (run / "corrections.csv").read_bytes(), tmp_path / "audit.csv"
    draw_audit(run, n=3, out=drawn)
    with pytest.raises(DataError, match=r"this is the sheet of an audit, .* write a sheet with"):
        add_labels(run, drawn)
    with pytest.raises(DataError, match="holds the labels of a run, not those of a person; pass a"):
        add_labels(run, run / "labels.csv")
    assert (run / "corrections.csv").read_bytes() == before
