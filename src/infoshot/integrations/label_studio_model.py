"""A finished run as the model of a Label Studio ML backend.

Label Studio asks a backend for predictions of its tasks, and tells it about every annotation.
:class:`LabelStudioModel` answers with the labels of a run, and adds annotations to the run as
examples. It is a mixin, so this package does not depend on ``label-studio-ml``: the user's
``model.py`` derives from it and from ``LabelStudioMLBase``. Methods are called as version 2 and
version 1.0 of ``label-studio-ml`` call them.

Formats: https://labelstud.io/guide/ml_create and https://labelstud.io/guide/webhook_reference
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from filelock import FileLock

from infoshot.core.csv_file import csv_text
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.types import AnyPath
from infoshot.labelling import ImageLabel, add_labels, predict
from infoshot.labelling.corrections import ImageNames
from infoshot.labelling.exports.names import text
from infoshot.labelling.run_folder import check_finished, read_run

_LOCK = ".label-studio.lock"  # in the folder of the run; lets its updates wait for each other
_LEARNS_FROM = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")


@dataclass(frozen=True)
class _Choices:
    """The ``Choices`` of the labelling configuration, and the field of a task with its image."""

    name: str
    image: str
    field: str
    labels: Sequence[str]


class LabelStudioModel:
    """Predict with a run, and learn from annotations; derive from ``LabelStudioMLBase`` too.

    Images of the run get its labels, others are labelled with its classifier. The labelling
    configuration must have one ``Choices`` for an ``Image``. An annotation makes its image an
    example and solves the run again, which takes seconds. Annotations that arrive meanwhile wait.
    Skipped and deleted annotations change nothing.

    Attributes
    ----------
    run
        Folder of the run, to be set by the derived class.
    device
        ``cpu``, ``cuda``, ...; by default ``cuda`` if there is a GPU.

    Examples
    --------
    >>> from label_studio_ml.model import LabelStudioMLBase  # doctest: +SKIP
    >>> class Model(LabelStudioModel, LabelStudioMLBase):  # doctest: +SKIP
    ...     run = "/data/run"
    """

    run: ClassVar[AnyPath] = ""
    device: ClassVar[str | None] = None

    if TYPE_CHECKING:  # from LabelStudioMLBase
        parsed_label_config: Mapping[str, Any]

        def get_local_path(self, url: str, **more: Any) -> str: ...  # noqa: ANN401, D102

    def predict(
        self, tasks: Sequence[Mapping[str, Any]], *_: object, **__: object
    ) -> list[dict[str, Any]]:
        """Return a prediction for every task, in Label Studio's format.

        It is empty if the image cannot be read, belongs to none of the classes, or has a label that
        the labelling configuration does not have.
        """
        choices, run = self._choices(), read_run(self._folder())
        names = ImageNames(run.labels)
        images = [self._image(task, choices, names) for task in tasks]
        labels = {image.path: image for image in run.labels}
        labels |= self._label_new([image for image in images if image not in labels])
        version = f"InfoShot, {len(run.examples)} examples"
        return [_prediction(labels[image], choices, version) for image in images]

    def fit(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401 - of two versions
        """Add the annotation of an event to the run as an example, and solve it again.

        Version 2 of ``label-studio-ml`` passes ``event`` and ``data``; version 1.0 passes no tasks
        first, and both by name.
        """
        given = {**dict(zip(("event", "data"), args, strict=False)), **kwargs}
        if given.get("event") not in _LEARNS_FROM:
            return {}
        choices, task = self._choices(), given["data"]["task"]
        label = _chosen(given["data"]["annotation"], choices)
        if not label:
            return {}
        check_finished(self._folder())
        with FileLock(self._folder() / _LOCK):
            image = self._image(task, choices, ImageNames(read_run(self._folder()).labels))
            result = add_labels(self._folder(), {image: label}, device=self.device)
        return {"run": str(result.folder), "image": image, "label": label}

    def _folder(self) -> Path:
        if not self.run:
            raise InvalidArgumentError(
                f"{type(self).__name__}.run must be the folder of a run; got '', so set it in the "
                "class."
            )
        return Path(self.run)

    def _choices(self) -> _Choices:
        """Find the choices for an image in the labelling configuration."""
        found = [
            _Choices(name, tag["to_name"][0], tag["inputs"][0]["value"], tag["labels"])
            for name, tag in (self.parsed_label_config or {}).items()
            if tag["type"] == "Choices" and [i["type"] for i in tag["inputs"]] == ["Image"]
        ]
        if len(found) != 1:
            raise InvalidArgumentError(
                "the labelling configuration must have one <Choices> for an <Image>; got "
                f"{len(found)}."
            )
        return found[0]

    def _image(self, task: Mapping[str, Any], choices: _Choices, names: ImageNames) -> str:
        """Path of the image of a task: that in the run if it knows it, else of a local file."""
        path = task["data"].get("path")  # in the tasks that the run exported
        if isinstance(path, str) and (known := names.find(path)):
            return known
        more = {}
        if "task_id" in inspect.signature(self.get_local_path).parameters:  # version 2
            more["task_id"] = task.get("id")
        file = os.path.abspath(self.get_local_path(task["data"][choices.field], **more))  # noqa: PTH100
        return names.find(file) or file

    def _label_new(self, images: Sequence[str]) -> dict[str, ImageLabel]:
        """Label images that are not in the run, by path."""
        if not images:
            return {}
        files = list(dict.fromkeys(images))
        with TemporaryDirectory() as folder:
            listed = Path(folder) / "images.csv"
            listed.write_text(csv_text(["path"], [[file] for file in files]), encoding="utf-8")
            labels = predict(self._folder(), listed, device=self.device)
        names, of_path = ImageNames(labels), {label.path: label for label in labels}
        return {file: of_path[names.find(file) or file] for file in files}


def _chosen(annotation: Mapping[str, Any], choices: _Choices) -> str:
    """Return the label that an annotation gives; empty if it was skipped or has none."""
    if annotation.get("was_cancelled"):
        return ""
    given = [
        label
        for item in annotation.get("result") or ()
        if item.get("from_name") == choices.name
        for label in item["value"].get("choices", ())
    ]
    if len(given) > 1:
        raise InvalidArgumentError(
            f"an annotation must choose one label, as each image has one; got {len(given)}: "
            f"{', '.join(given)}."
        )
    return str(given[0]) if given else ""


def _prediction(image: ImageLabel, choices: _Choices, version: str) -> dict[str, Any]:
    if text(image.label) not in choices.labels:
        return {"model_version": version, "score": 0.0, "result": []}
    choice = {
        "from_name": choices.name,
        "to_name": choices.image,
        "type": "choices",
        "value": {"choices": [text(image.label)]},
    }
    return {"model_version": version, "score": float(image.confidence), "result": [choice]}
