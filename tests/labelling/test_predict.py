"""Labelling new images with the classifier of a run."""

import math
import os
import shutil
from pathlib import Path

import pytest

from infoshot import DataError, labelling
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.labelling import predict
from tests.labelling.commands import rows


@pytest.fixture(scope="module")
def finished(made):
    out = made / "to-predict"
    labelling.label(
        made / "examples", made / "photos", out, backbone=made / "weights", cache=made / "cache"
    )
    return out


def test_new_images_get_the_labels_of_their_classes(finished, made, tmp_path):
    together = {image.path: image for image in predict(finished, made / "photos")}
    correct = [image.label == Path(path).name[:3] for path, image in together.items()]
    assert sum(correct) > 57
    alone = tmp_path / "one"
    alone.mkdir()
    shutil.copy(made / "photos" / "eel9.png", alone)
    (image,) = predict(finished / "classifier.safetensors", alone, out=tmp_path / "new.csv")
    expected = together[str(made / "photos" / "eel9.png")]
    for field in ("label", "runner_up", "status", "reason"):
        assert getattr(image, field) == getattr(expected, field)
    assert image.confidence == pytest.approx(expected.confidence, abs=1e-6)
    assert image.margin == pytest.approx(expected.margin, abs=1e-6)
    (line,) = rows(tmp_path / "new.csv")
    assert line["label"] == image.label
    assert line["confidence"] == f"{image.confidence:.4f}"


@pytest.mark.parametrize("place", ["photos/eel9.png", "examples/cat/0.png"])
def test_images_of_the_run_are_never_replaced(finished, made, tmp_path, place):
    output = next((made / place).parent.glob("*.png"))
    before = output.read_bytes()
    shutil.copy(made / "photos" / "eel9.png", tmp_path)
    with pytest.raises(DataError, match="would replace an input"):
        predict(finished, tmp_path, out=output)
    assert output.read_bytes() == before


def test_predict_reports_unreadable_images(finished, made, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"1 of 1 images cannot be read, such as .*broken\.png"):
        (image,) = predict(finished, tmp_path)
    assert (image.label, image.status) == ("", "unreadable")
    assert math.isnan(image.confidence)
    assert image.reason == "not an image, or in a format that is not supported"


def test_an_encoder_is_found_from_another_folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    labelling.label("examples", "photos", tmp_path / "r", backbone="weights")
    monkeypatch.chdir(tmp_path)
    assert len(predict(tmp_path / "r", made / "photos", cache=tmp_path / "empty")) == 60


def test_the_folder_of_an_encoder_may_have_any_name(label, made, tmp_path):
    weights = tmp_path / os.fsdecode(b"weights\xe9")
    try:
        shutil.copytree(made / "weights", weights)
    except OSError:
        pytest.skip("this file system refuses names that are not UTF-8")
    label(tmp_path / "r", backbone=weights)
    assert len(predict(tmp_path / "r", made / "photos")) == 60


def test_an_encoder_that_changed_is_refused(label, made, tmp_path):
    weights = shutil.copytree(made / "weights", tmp_path / "weights")
    label(tmp_path / "r", backbone=weights)
    save_checkpoint(weights, "conv4", make_backbone("conv4").state_dict())
    with pytest.raises(DataError, match="the encoder 'conv4' has changed since the run"):
        predict(tmp_path / "r", made / "photos")


def test_other_files_are_not_classifiers(made, tmp_path):
    (tmp_path / "c.safetensors").write_bytes(b"text")
    with pytest.raises(DataError, match=r"c\.safetensors: damaged, or not a classifier file"):
        predict(tmp_path / "c.safetensors", made / "photos")
    with pytest.raises(DataError, match=r"classifier\.safetensors: there is no such file"):
        predict(tmp_path, made / "photos")
