"""A handful of labels in, labels for everything else out."""

from infoshot.label.table import Labelling, label_table

__all__ = ["Labelling", "label_table"]
