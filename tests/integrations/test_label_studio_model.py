"""The model of a Label Studio backend: with the documented requests, and with the real package.

The stand-ins below have what version 2 of label-studio-ml, which is not on the package index,
documents: https://github.com/HumanSignal/label-studio-ml-backend. Version 1.0 is used itself.
"""

import json
import os
import sys
import threading
import time
from urllib.parse import parse_qs, quote, urlparse
from xml.etree import ElementTree

import pytest

from infoshot import DataError, InvalidArgumentError, LabelStudioModel, add_labels
from infoshot.labelling.run_folder import read_run

CONFIG = """<View><Image name="image" value="$image"/><Choices name="choice" toName="image">
<Choice value="cat"/><Choice value="dog"/><Choice value="eel"/></Choices></View>"""


class BaseOfVersion2:
    """What the mixin uses of LabelStudioMLBase, version 2."""

    def __init__(self, project_id=None, label_config=None):
        view = ElementTree.fromstring(label_config)
        of_name = {tag.get("name"): tag for tag in view.iter() if tag.get("value")}
        self.parsed_label_config = {
            tag.get("name"): {
                "type": tag.tag,
                "to_name": [tag.get("toName")],
                "inputs": [
                    {"type": (of := of_name[tag.get("toName")]).tag, "value": of.get("value")[1:]}
                ],
                "labels": [choice.get("value") for choice in tag],
            }
            for tag in view.iter()
            if tag.get("toName")
        }

    def get_local_path(self, url, project_dir=None, ls_host=None, task_id=None):
        assert task_id is not None
        return "/" + parse_qs(urlparse(url).query)["d"][0]


@pytest.fixture
def model(run):
    return type("Model", (LabelStudioModel, BaseOfVersion2), {"run": run})(label_config=CONFIG)


def task(file, **data):
    """A task as Label Studio sends it."""
    return {"id": 7, "data": {"image": f"/data/local-files/?d={quote(str(file)[1:])}", **data}}


def annotated(file, *labels, **more):
    """The content of a webhook, without its action."""
    result = {"from_name": "choice", "to_name": "image", "type": "choices"}
    annotation = {"id": 3, "was_cancelled": False, "result": [], **more}
    if labels:
        annotation["result"] = [{**result, "value": {"choices": list(labels)}}]
    project = {"id": 1, "label_config": CONFIG}
    return {"project": project, "task": task(file), "annotation": annotation}


def chosen(prediction):
    (result,) = prediction["result"]
    assert (result["from_name"], result["to_name"], result["type"]) == (
        "choice",
        "image",
        "choices",
    )
    (label,) = result["value"]["choices"]
    return label


def test_predictions_are_the_labels_of_the_run(model, run):
    known = read_run(run).labels
    predictions = model.predict([task(image.file) for image in known], context=None)
    assert [chosen(prediction) for prediction in predictions] == [i.label for i in known]
    scores = [prediction["score"] for prediction in predictions]
    assert scores == [image.confidence for image in known]
    assert {prediction["model_version"] for prediction in predictions} == {"InfoShot, 6 examples"}
    json.dumps(predictions, allow_nan=False)


def test_tasks_that_the_run_exported_are_found_by_their_path(run, images):
    add_labels(run, {str(images / "all" / "cat" / "2.png"): "cat"}, export="label-studio")
    tasks = json.loads((run / "label-studio" / "label-studio.json").read_text())
    config = (run / "label-studio" / "label-studio.xml").read_text()
    for entry in tasks:
        entry["data"]["image"] = "/elsewhere"  # Label Studio sees other paths
    base = type("Model", (LabelStudioModel, BaseOfVersion2), {"run": run})
    predictions = base(label_config=config).predict(tasks)
    expected = [entry["predictions"][0]["result"][0]["value"] for entry in tasks]
    assert [prediction["result"][0]["value"] for prediction in predictions] == expected


def test_images_outside_the_run_are_labelled_with_its_classifier(model, images, tmp_path):
    new = [images / "all" / name / "11.png" for name in ("eel", "cat", "eel")]
    new.append(tmp_path / r" odd\x41, name.png")
    new[-1].write_bytes(new[0].read_bytes())
    expected = ["eel", "cat", "eel", "eel"]
    assert [chosen(p) for p in model.predict([task(file) for file in new])] == expected
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    with pytest.warns(UserWarning, match="cannot be read"):
        (prediction,) = model.predict([task(broken)])
    assert prediction["result"] == []


def test_a_label_that_the_project_lacks_is_not_predicted(run, images):
    config = CONFIG.replace('<Choice value="eel"/>', "")
    model = type("Model", (LabelStudioModel, BaseOfVersion2), {"run": run})(label_config=config)
    (prediction,) = model.predict([task(images / "all" / "eel" / "5.png")])
    assert prediction["result"] == []


def test_an_annotation_becomes_an_example(model, run, images):
    file = images / "all" / "cat" / "3.png"
    done = model.fit("ANNOTATION_CREATED", annotated(file, "dog"))
    assert done["label"] == "dog"
    json.dumps(done)
    (prediction,) = model.predict([task(file)])
    assert chosen(prediction) == "dog"
    assert prediction["score"] == 1
    assert prediction["model_version"] == "InfoShot, 7 examples"
    outside = images / "all" / "eel" / "11.png"
    model.fit("ANNOTATION_UPDATED", annotated(outside, "eel"))
    assert outside in [example.image.file for example in read_run(run).examples]


def test_an_image_of_none_of_the_classes_gets_no_prediction(model, run, images):
    file = images / "all" / "cat" / "3.png"
    model.fit("ANNOTATION_CREATED", annotated(file, "cat"))
    model.fit("ANNOTATION_UPDATED", annotated(file, "(none)"))
    (prediction,) = model.predict([task(file)])
    assert (prediction["result"], prediction["score"]) == ([], 0)
    assert len(read_run(run).examples) == 6


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("ANNOTATION_CREATED", annotated("/x.png", "dog", was_cancelled=True)),
        ("ANNOTATION_CREATED", annotated("/x.png")),
        ("ANNOTATION_DELETED", {"annotation": {"id": 3}}),
        ("START_TRAINING", {"project": "1.5", "label_config": CONFIG}),
    ],
)
def test_other_events_change_nothing(model, run, event, data):
    before = (run / "run.json").read_bytes()
    assert model.fit(event, data) == {}
    assert (run / "run.json").read_bytes() == before


def test_annotations_at_the_same_time_wait_for_each_other(model, run, images):
    files = [images / "all" / name / "4.png" for name in ("cat", "dog", "eel")]
    threads = [
        threading.Thread(target=model.fit, args=("ANNOTATION_CREATED", annotated(file, "cat")))
        for file in files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    given = {example.image.file for example in read_run(run).examples if example.given}
    assert given == set(files)


def test_a_run_that_is_not_there_is_refused(tmp_path):
    missing = {"run": tmp_path / "missing"}
    model = type("Model", (LabelStudioModel, BaseOfVersion2), missing)(label_config=CONFIG)
    with pytest.raises(DataError, match="missing: does not exist"):
        model.predict([])
    with pytest.raises(DataError, match="missing: does not exist"):
        model.fit("ANNOTATION_CREATED", annotated("/x.png", "cat"))


def test_several_labels_and_other_configurations_are_refused(model, run):
    with pytest.raises(InvalidArgumentError, match=r"choose one label.*got 2: cat, dog\.$"):
        model.fit("ANNOTATION_CREATED", annotated("/x.png", "cat", "dog"))
    config = '<View><Text name="t" value="$t"/><Choices name="c" toName="t"/></View>'
    other = type("Model", (LabelStudioModel, BaseOfVersion2), {"run": run})(label_config=config)
    with pytest.raises(InvalidArgumentError, match=r"one <Choices> for an <Image>; got 0\.$"):
        other.predict([])
    unset = type("Unset", (LabelStudioModel, BaseOfVersion2), {})(label_config=CONFIG)
    with pytest.raises(
        InvalidArgumentError, match=r"Unset\.run must be the folder of a run; got ''"
    ):
        unset.predict([])


MODEL = """
from label_studio_ml.model import LabelStudioMLBase
from infoshot import LabelStudioModel

class Model(LabelStudioModel, LabelStudioMLBase):
    run = {run!r}
"""


@pytest.mark.filterwarnings("ignore")  # of an old Flask
def test_the_server_of_version_1_predicts_and_learns(run, images, tmp_path, monkeypatch):
    """Also in the process that it starts for a webhook, which imports ``model.py`` again."""
    api = pytest.importorskip("label_studio_ml.api", exc_type=ImportError)
    (tmp_path / "model.py").write_text(MODEL.format(run=str(run)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    from model import Model

    client = api.init_app(Model, model_dir=str(tmp_path / "models")).test_client()
    setup = {"project": "1.5", "schema": CONFIG, "hostname": "", "access_token": ""}
    assert client.post("/setup", json=setup).status_code == 200
    file = images / "all" / "cat" / "3.png"
    request = {"tasks": [task(file)], "project": "1.5", "label_config": CONFIG, "params": {}}
    assert chosen(client.post("/predict", json=request).get_json()["results"][0]) == "cat"
    event = {"action": "ANNOTATION_CREATED", **annotated(file, "dog")}
    assert client.post("/webhook", json=event).status_code == 201
    end = time.monotonic() + 60
    while len(read_run(run).examples) == 6 and time.monotonic() < end:
        time.sleep(0.2)
    assert chosen(client.post("/predict", json=request).get_json()["results"][0]) == "dog"
