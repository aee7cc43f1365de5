"""Export tasks with predictions and a labelling configuration for Label Studio.

Images are named by the address at which Label Studio serves local files, relative to its document
root. Start it with ``LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true``
and ``LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT=/``, and add the image folder to the project as local
storage. It cannot serve files whose names are not UTF-8.

Formats: https://labelstud.io/guide/predictions and https://labelstud.io/tags/choices
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from infoshot.labelling.decide import ImageLabel
from infoshot.labelling.exports.export_folder import whole_folder
from infoshot.labelling.exports.names import text


def export_label_studio(
    photos: Sequence[ImageLabel], classes: Sequence[str], folder: Path, model_version: str
) -> None:
    """Write ``label-studio.xml``, the configuration, and ``label-studio.json``, the tasks.

    Raises
    ------
    DataError
        If ``folder`` contains other files, or it cannot be written.
    """
    readable = [photo for photo in photos if photo.status != "unreadable"]
    tasks = [_task(number, photo, model_version) for number, photo in enumerate(readable, start=1)]
    with whole_folder(folder, (), model_version) as new:
        configuration = _configuration([text(name) for name in classes])
        (new / "label-studio.xml").write_text(configuration, encoding="utf-8")
        content = json.dumps(tasks, indent=1, allow_nan=False) + "\n"
        (new / "label-studio.json").write_text(content, encoding="utf-8")


def _task(number: int, photo: ImageLabel, model_version: str) -> dict[str, Any]:
    choice = {
        "id": f"photo-{number}",
        "from_name": "choice",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [text(photo.label)]},
    }
    prediction = {"model_version": model_version, "score": photo.confidence, "result": [choice]}
    return {
        "data": {
            "image": _address(photo.file),
            "path": photo.path,
            "status": photo.status,
            "reason": photo.reason,
        },
        "predictions": [prediction] if photo.label else [],
    }


def _address(file: Path) -> str:
    path = os.fsencode(Path(os.path.abspath(file)).as_posix())  # noqa: PTH100 (keeps links)
    return f"/data/local-files/?d={quote(path.lstrip(b'/'))}"


def _configuration(classes: Sequence[str]) -> str:
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", name="image", value="$image")
    choices = ElementTree.SubElement(view, "Choices", name="choice", toName="image")
    for name in classes:
        ElementTree.SubElement(choices, "Choice", value=name)
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"
