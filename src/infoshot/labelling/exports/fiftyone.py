"""Export as FiftyOne's ``FiftyOneImageClassificationDataset``.

Load it with ``fiftyone.Dataset.from_dir(dataset_dir=folder,
dataset_type=fiftyone.types.FiftyOneImageClassificationDataset)``.

Format: https://docs.voxel51.com/user_guide/dataset_creation/datasets.html
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infoshot.labelling.decide import ImageLabel
from infoshot.labelling.exports.export_folder import put, whole_folder
from infoshot.labelling.exports.names import Names, split_extension, text


def export_fiftyone(
    photos: Sequence[ImageLabel], classes: Sequence[str], folder: Path, model_version: str
) -> None:
    """Link every readable photo in ``folder/data``, with predictions in ``folder/labels.json``.

    Raises
    ------
    DataError
        If ``folder`` contains other files, or it cannot be written.
    """
    readable = [photo for photo in photos if photo.status != "unreadable"]
    names_of_classes = [text(name) for name in classes]
    number_of = {name: number for number, name in enumerate(names_of_classes)}
    names = Names()
    labels = {}
    with whole_folder(folder, readable, model_version) as new:
        (new / "data").mkdir()
        for photo in readable:
            stem, extension = split_extension(photo.file.name)
            # FiftyOne finds labels by the name up to its last dot, so those must differ.
            name = names.take(stem if extension else stem.replace(".", "_"))
            put(photo, new / "data" / f"{name}{extension}")
            labels[name] = _target(photo, number_of)
        content = {"classes": names_of_classes, "labels": labels}
        (new / "labels.json").write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def _target(photo: ImageLabel, number_of: Mapping[str, int]) -> dict[str, Any] | None:
    if not photo.label:
        return None  # FiftyOne's form of an unlabelled image
    return {
        "label": number_of[text(photo.label)],
        "confidence": photo.confidence,
        "attributes": {
            "status": photo.status,
            "runner_up": text(photo.runner_up),
            "margin": photo.margin,
        },
    }
