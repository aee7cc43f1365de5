"""Corrections that contradict each other, add classes or are empty; sheets with hand work."""

import shutil

import pytest

from infoshot import DataError, InvalidArgumentError, labelling


@pytest.fixture(scope="module")
def finished(made):
    photos = shutil.copytree(made / "photos", made / "photos-twice")
    shutil.copy(photos / "cat7.png", photos / "copy.png")
    labelling.label(
        made / "examples", photos, made / "twice", backbone=made / "weights", cache=made / "cache"
    )
    return made / "twice"


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def photos(made):
    return made / "photos-twice"


def test_copies_of_an_image_cannot_be_corrected_to_two_classes(run, photos):
    both = {str(photos / "cat7.png"): "cat", str(photos / "copy.png"): "dog"}
    with pytest.raises(DataError, match="the same image is corrected to 'cat' and to 'dog'"):
        labelling.add_labels(run, both)


def test_a_new_class_is_reported_with_the_nearest_one(run, photos):
    result = labelling.add_labels(run, {str(photos / "dog8.png"): "dogg"})
    assert "'dogg' is a new class, which only corrections have; did you mean 'dog'?" in (
        result.warnings
    )


def test_empty_labels_are_skipped_and_spaces_are_stripped(run, photos, tmp_path):
    with pytest.raises(InvalidArgumentError, match="at least one label"):
        labelling.add_labels(run, {str(photos / "dog8.png"): " "})
    (tmp_path / "c.csv").write_text(f"path,label\n{photos / 'dog8.png'}, dog \n")
    assert labelling.add_labels(run, tmp_path / "c.csv").classes == ("cat", "dog", "eel")


def test_a_correction_of_a_deleted_photo_says_what_to_do(made, tmp_path):
    photos = shutil.copytree(made / "photos", tmp_path / "photos")
    arguments = (made / "examples", photos, tmp_path / "run")
    options = {"backbone": made / "weights", "cache": made / "cache"}
    labelling.label(*arguments, **options)
    labelling.add_labels(tmp_path / "run", {str(photos / "dog8.png"): "cat"})
    (photos / "dog8.png").unlink()
    with pytest.raises(DataError, match=r"dog8.png: has a correction, .* or delete its row in"):
        labelling.label(*arguments, **options)


def test_suggestions_do_not_replace_labels_of_a_person(run):
    sheet = labelling.suggest(run, n=3).sheet
    labelling.suggest(run, n=3)
    sheet.write_text(sheet.read_text().replace(",,", ",cat,", 1))
    assert labelling.suggest(run, n=3).sheet != sheet
    assert ",cat," in sheet.read_text()


def test_an_example_that_cannot_be_decoded_stops_before_the_photos(made, tmp_path):
    examples = shutil.copytree(made / "examples", tmp_path / "examples")
    (examples / "cat" / "0.png").write_bytes((examples / "cat" / "0.png").read_bytes()[:100])
    phases = []
    with pytest.raises(DataError, match=r"0\.png: this example cannot be decoded"):
        labelling.label(
            examples, made / "photos", tmp_path / "run", backbone=made / "weights",
            cache=tmp_path / "cache", progress=lambda phase, done, total: phases.append(phase),
        )  # fmt: skip
    assert "encoding examples" in phases
    assert "encoding" not in phases


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": "0.5"}, "threshold must be between 0 and 1; got '0.5'"),
        ({"photos": ["a", "b"]}, "photos must be a path; got list"),
        ({"prior": "cat=1"}, "prior must map classes to shares"),
        ({"prior": {"cat": 1, "dog": -1, "eel": 1}}, "prior of 'dog' must be a finite number"),
        ({"export": "image"}, "Unknown export 'image'. Did you mean 'imagefolder'?"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, label, tmp_path):
    with pytest.raises(InvalidArgumentError, match=message.replace("?", r"\?")):
        label(tmp_path / "run", **arguments)
