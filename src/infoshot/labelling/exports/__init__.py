"""Labelled images in the formats of other tools."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from infoshot.labelling.decide import ImageLabel
from infoshot.labelling.exports.export_folder import check_export
from infoshot.labelling.exports.fiftyone import export_fiftyone
from infoshot.labelling.exports.imagefolder import export_imagefolder
from infoshot.labelling.exports.label_studio import export_label_studio

Export = Callable[[Sequence[ImageLabel], Sequence[str], Path, str], None]

EXPORTS: Mapping[str, Export] = {
    "imagefolder": export_imagefolder,
    "label-studio": export_label_studio,
    "fiftyone": export_fiftyone,
}
"""Each takes the labels, all classes, the folder to write, and the name of the labeller."""

__all__ = ["EXPORTS", "Export", "check_export"]
