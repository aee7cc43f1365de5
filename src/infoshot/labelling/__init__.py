"""A few labelled images in, labels for all other images out."""

from infoshot.labelling.api import LabelResult, label
from infoshot.labelling.auditing import AuditResult, AuditSample, audit, draw_audit
from infoshot.labelling.decide import ImageLabel
from infoshot.labelling.new_images import predict
from infoshot.labelling.suggestions import Suggestions, suggest
from infoshot.labelling.table_labels import TableLabels, label_table
from infoshot.labelling.updates import add_labels

__all__ = [
    "AuditResult",
    "AuditSample",
    "ImageLabel",
    "LabelResult",
    "Suggestions",
    "TableLabels",
    "add_labels",
    "audit",
    "draw_audit",
    "label",
    "label_table",
    "predict",
    "suggest",
]
