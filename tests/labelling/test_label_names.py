"""Labelling photos from the names of their classes, with a model whose answers are known."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from infoshot import DataError, InvalidArgumentError, labelling
from infoshot.core.label_names import NONE
from infoshot.labelling import add_labels
from infoshot.labelling.text_prototypes import TEMPLATES
from infoshot.labelling.updates import solve_again
from tests.encoders import one_sentence
from tests.labelling.commands import rows, run
from tests.two_towers import (
    COLOURS,
    draw_photo,
    make_model,
    save_model,
    save_two_towers,
    write_photos,
)

COUNTS = {"red": 30, "green": 20, "blue": 8, "dark_gray": 4}


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    return save_two_towers(tmp_path_factory.mktemp("towers") / "clip")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("names") / "photos", COUNTS)


@pytest.fixture
def label(towers, photos, tmp_path):
    def label(examples=None, *, out="run", **more):
        given = {"classes": list(COLOURS), "backbone": f"hf:{towers}", "photos": photos, **more}
        return labelling.label(examples, out=tmp_path / out, cache=tmp_path / "cache", **given)

    return label


def write_examples(folder, n, classes=tuple(COLOURS), of=lambda name: name):
    """Write ``n`` examples of each class; ``of`` names the class that they really show."""
    generator = np.random.default_rng(7)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(n):
            draw_photo(of(name), generator).save(folder / name / f"{number}.png")
    return folder


def share_correct(result):
    """Share of the labels that are the class in the name of the photo."""
    pairs = [(Path(path).name.rpartition("-")[0], label) for path, label in result.labels.items()]
    return sum(true == label for true, label in pairs) / len(pairs)


def facts_of(result):
    return json.loads((result.folder / "run.json").read_text())


@pytest.mark.parametrize("method", ["tim-auto", "prototype", "tim-adm", "soft-kmeans"])
def test_names_alone_label_all_photos(label, method, tmp_path):
    photos = write_photos(tmp_path / "photos", dict.fromkeys(COLOURS, 12))  # as TIM-ADM assumes
    assert share_correct(label(method=method, photos=photos)) == 1


def test_a_run_from_names_says_so(label, photos):
    result = label()
    assert share_correct(result) == 1  # classes are 30, 20, 8 and 4 photos
    assert result.classes == tuple(sorted(COLOURS))
    assert result.estimate is None
    assert result.warnings[0] == (
        "4 of 4 classes have no examples: their labels rest on the names alone, and nothing shows "
        "yet how well these fit. Label some photos."
    )
    facts = facts_of(result)
    assert facts["request"]["examples"] is None
    assert facts["request"]["classes"] == list(COLOURS)
    assert facts["request"]["text_weight"] == 4
    assert facts["counts"]["examples"] == 0
    assert facts["text"]["backbone"] == "hf:clip"
    assert facts["text"]["transform"] == f"mean of: {' '.join(TEMPLATES)}"
    assert len(facts["text"]["weights_sha256"]) == 64
    page = result.report_path.read_text()
    assert "labelled from the names of the classes" in page
    assert "No example can be held out to estimate the accuracy" in page
    assert share_correct(label()) == 1  # the same run again


@pytest.mark.parametrize("n", [1, 5])
def test_examples_are_added_to_the_names(label, tmp_path, n):
    result = label(write_examples(tmp_path / "examples", n))
    assert share_correct(result) == 1
    assert not [sentence for sentence in result.warnings if "names alone" in sentence]
    assert facts_of(result)["counts"]["examples"] == 4 * n
    assert result.estimate.n_examples == 4 * n  # one example can be held out beside a text
    assert result.estimate.accuracy == 1


@pytest.mark.parametrize("n", [1, 5])
def test_classes_with_and_without_examples_are_alike(label, tmp_path, n):
    result = label(write_examples(tmp_path / "examples", n, ["red"]))
    assert share_correct(result) == 1
    assert result.warnings[0].startswith("3 of 4 classes have no examples")
    assert result.estimate.n_examples == n


def test_a_text_corrects_a_wrong_example_and_examples_correct_wrong_texts(label, tmp_path):
    swap = {"red": "blue", "blue": "red"}
    wrong = write_examples(tmp_path / "wrong", 1, [*swap], of=swap.get)
    assert share_correct(label(wrong, out="wrong-example")) == 1
    # The texts of 'yin' and 'yang' mean each other.
    photos = write_photos(tmp_path / "swapped", {"yin": 20, "yang": 20})
    given = {"photos": photos, "classes": ["yin", "yang"]}
    assert share_correct(label(out="texts", **given)) == 0
    five = write_examples(tmp_path / "five", 5, ["yin", "yang"])
    assert share_correct(label(five, out="few", text_weight=1, **given)) == 1
    one = write_examples(tmp_path / "one", 1, ["yin", "yang"])
    assert share_correct(label(one, out="text-counts-as-four", **given)) == 0


def test_labels_are_added_without_opening_the_tower(label, photos, monkeypatch):
    result = label()

    def fail(*_):
        pytest.fail("an encoder was opened")

    monkeypatch.setattr("infoshot.labelling.updates.open_encoder", fail)
    path = str(photos / "red-0.png")
    again = add_labels(result.folder, {path: "purple", str(photos / "blue-0.png"): NONE})
    assert again.classes == ("blue", "dark_gray", "green", "purple", "red")  # one has no text
    assert again.labels[path] == "purple"
    others = [(p, name) for p, name in again.labels.items() if name not in ("purple", "")]
    correct = [Path(p).name.startswith(name) for p, name in others]
    assert sum(correct) >= len(others) - 3
    assert facts_of(again)["text"] == facts_of(result)["text"]
    assert any("'purple' is a new class" in sentence for sentence in again.warnings)
    back = add_labels(result.folder, {path: "red"})
    assert back.labels[path] == "red"
    assert not any("is a new class" in sentence for sentence in back.warnings[1:])


def test_a_cache_that_is_gone_is_computed_again(label, photos, towers, tmp_path):
    result = label()
    shutil.rmtree(tmp_path / "cache")
    again = add_labels(result.folder, {str(photos / "red-0.png"): "red"})
    assert share_correct(again) == 1


def test_a_changed_text_tower_is_noticed(label, photos, towers, tmp_path):
    own = shutil.copytree(towers, tmp_path / "clip")
    result = label(backbone=f"hf:{own}")
    shutil.rmtree(tmp_path / "cache")
    words = own / "tokenizer.json"
    words.write_text(words.read_text().replace('"red"', '"rot"'))
    with pytest.raises(DataError) as caught:
        add_labels(result.folder, {str(photos / "red-0.png"): "red"})
    assert one_sentence(caught) == (
        "the text tower of 'hf:clip' has changed since the run; label the images again."
    )


def test_the_classifier_labels_new_photos(label, tmp_path, monkeypatch):
    result = label()
    new = write_photos(tmp_path / "new", dict.fromkeys(COLOURS, 5), seed=3)
    monkeypatch.setattr("infoshot.labelling.text_prototypes.open_text_tower", None)
    found = labelling.predict(result.folder, new)
    assert all(Path(label.path).name.startswith(label.label) for label in found)


def test_suggestions_audits_and_other_solves_need_no_examples(label):
    run = label(method="prototype", threshold=0.2).folder
    found = labelling.suggest(run, n=5)
    assert len({image.path for image in found.images}) == 5
    assert len(labelling.draw_audit(run, n=10).images) == 10
    decision, _ = solve_again(run)
    assert decision.classes == tuple(sorted(COLOURS))


def test_the_review_of_such_a_run_keeps_its_names(label):
    from infoshot.reviewing.session import Session

    session = Session(label().folder, compute=False)
    try:
        assert not session.state()["can_change_classes"]
        with pytest.raises(InvalidArgumentError) as caught:
            session.change_class("rename", "red", "rot")
        assert one_sentence(caught) == (
            "the classes of a run with a prior, or with classes given by their names, cannot be "
            "changed; label the images again."
        )
        session.answer("audit", [0], label="dark_gray")  # no photo is labelled so yet
    finally:
        session.close()


def test_encoders_without_a_text_tower_are_refused(label, tmp_path):
    with pytest.raises(InvalidArgumentError) as caught:
        label(backbone="efficientnet-lite0")
    assert "with a text tower, such as clip-vit-b32" in one_sentence(caught)
    assert not (tmp_path / "run").exists()


def test_arguments_that_do_not_fit_get_one_clear_sentence(label, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"^examples must be a path; got NoneType"):
        label(classes=None)
    with pytest.raises(InvalidArgumentError, match=r"^text_weight must be .* at least 1"):
        label(text_weight=0)
    examples = write_examples(tmp_path / "examples", 1, ["red", "yin"])
    with pytest.raises(DataError, match="'yin' has examples, but is not in classes; add it there"):
        label(examples)
    with pytest.raises(DataError, match=r"^classes: line 2 is blank"):
        label(classes=["red", ""])


def test_the_command_takes_names_with_and_without_examples(towers, photos, tmp_path):
    names = tmp_path / "classes.txt"
    names.write_text("\n".join(COLOURS))
    given = ["--classes", names, "--backbone", f"hf:{towers}", "--cache", tmp_path / "cache"]
    done = run("label", photos, *given, "--out", tmp_path / "a")
    assert done.exit_code == 0, done.output
    labels = rows(tmp_path / "a" / "labels.csv")
    assert all(Path(line["path"]).name.startswith(line["label"]) for line in labels)
    examples = write_examples(tmp_path / "examples", 1, ["red"])
    more = ["--text-weight", 2, "--out", tmp_path / "b"]
    assert run("label", examples, photos, *given, *more).exit_code == 0
    assert json.loads((tmp_path / "b" / "run.json").read_text())["request"]["text_weight"] == 2
    for extra in (["--classes", names], ["--text-weight", 2]):
        done = run("label", "--add", names, tmp_path / "a", *extra)
        assert done.exit_code == 2
        assert "--add repeats a finished run" in done.output
    assert run("label", photos, *given).exit_code == 2


def test_another_model_is_another_run(label, towers, tmp_path):
    model = make_model()
    model.load_state_dict(load_file(towers / "model.safetensors"))
    for weights in model.text_model.final_layer_norm.parameters():
        weights.data.neg_()
    other = save_model(tmp_path / "other" / "clip", model)
    first, second = label(), label(backbone=f"hf:{other}", out="other-run")
    assert facts_of(first)["encoder"] == facts_of(second)["encoder"]
    assert facts_of(first)["text"] != facts_of(second)["text"]
    assert share_correct(second) < 0.5
