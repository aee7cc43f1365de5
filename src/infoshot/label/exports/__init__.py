"""Labelled photos in the forms that other tools read."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from infoshot.label.exports.fiftyone import export_fiftyone
from infoshot.label.exports.imagefolder import export_imagefolder
from infoshot.label.exports.label_studio import export_label_studio
from infoshot.label.photo import PhotoLabel

Export = Callable[[Sequence[PhotoLabel], Path, str], None]

EXPORTS: Mapping[str, Export] = {
    "imagefolder": export_imagefolder,
    "label-studio": export_label_studio,
    "fiftyone": export_fiftyone,
}
"""Each takes the photos, the folder to write into, and what labelled them."""

__all__ = ["EXPORTS", "Export"]
