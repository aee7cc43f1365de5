"""A few labelled images in, labels for all other images out."""

from infoshot.labelling.api import LabelResult, add_labels, label
from infoshot.labelling.audit import AuditResult, AuditSample, audit, draw_audit
from infoshot.labelling.decide import ImageLabel
from infoshot.labelling.label_table import TableLabels, label_table
from infoshot.labelling.predict import predict
from infoshot.labelling.suggest import Suggestions, suggest

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
