"""The examples of docs/integrations.md run, with stand-ins for packages that are not installed."""

import re
import sys
import types
from pathlib import Path

import pytest

from infoshot import TIMClassifier, label
from tests.integrations.test_fiftyone_samples import StandInClassification, StandInSamples
from tests.integrations.test_label_studio_model import CONFIG, BaseOfVersion2, chosen, task

TEXT = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()
SKLEARN, LABEL_STUDIO, FIFTYONE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_scikit_learn():
    names: dict[str, object] = {}
    exec(SKLEARN, names)
    assert isinstance(names["pipeline"]["tim"], TIMClassifier)
    assert names["search"].best_score_ > 0.8


def test_label_studio(run, images, monkeypatch):
    module = types.SimpleNamespace(LabelStudioMLBase=BaseOfVersion2)
    monkeypatch.setitem(sys.modules, "label_studio_ml", types.SimpleNamespace(model=module))
    monkeypatch.setitem(sys.modules, "label_studio_ml.model", module)
    names: dict[str, object] = {"__name__": "model"}
    assert '"/data/run"' in LABEL_STUDIO
    exec(LABEL_STUDIO.replace("/data/run", str(run)), names)
    model = names["NewModel"](project_id="1", label_config=CONFIG)
    (prediction,) = model.predict([task(images / "all" / "cat" / "4.png")])
    assert chosen(prediction) == "cat"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fiftyone(images, tmp_path, monkeypatch):
    rows = [
        {
            "filepath": str(images / "all" / name / f"{number}.png"),
            "ground_truth": StandInClassification(name) if number < 3 else None,
        }
        for name in ("cat", "dog")
        for number in reversed(range(6))
    ]
    dataset = StandInSamples(rows)
    module = types.SimpleNamespace(
        Classification=StandInClassification, load_dataset=lambda name: dataset
    )
    monkeypatch.setitem(sys.modules, "fiftyone", module)
    monkeypatch.setattr(StandInSamples, "first", lambda self: next(iter(self)), raising=False)
    with_small_network = dict(label.__kwdefaults__, backbone=images / "weights")
    monkeypatch.setattr(label, "__kwdefaults__", with_small_network)
    monkeypatch.chdir(tmp_path)
    exec(FIFTYONE, {})
    assert rows[0]["infoshot"].label == "cat"
