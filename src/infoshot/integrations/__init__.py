"""Labels of this package in other programs: Label Studio and FiftyOne."""

from infoshot.integrations.fiftyone_samples import label_fiftyone
from infoshot.integrations.label_studio_model import LabelStudioModel

__all__ = ["LabelStudioModel", "label_fiftyone"]
