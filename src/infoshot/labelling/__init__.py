"""A handful of labels in, labels for everything else out."""

from infoshot.labelling.label_table import Labelling, label_table

__all__ = ["Labelling", "label_table"]
