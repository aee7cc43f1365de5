"""Features: extraction from images, feature files, and preparation for a method."""

from infoshot.features.files import default_features_path, digest, read_features, write_features
from infoshot.features.normalize import prepare, unit_length

__all__ = [
    "default_features_path",
    "digest",
    "prepare",
    "read_features",
    "unit_length",
    "write_features",
]
