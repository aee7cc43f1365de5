"""Features: extraction from images, feature files, and preparation for a method."""

from infoshot.features.arrow_table import ArrowTable, open_table
from infoshot.features.files import default_features_path, digest, read_features, write_features
from infoshot.features.normalize import choose_preparation, prepare, unit_length
from infoshot.features.parquet_places import is_parquet

__all__ = [
    "ArrowTable",
    "choose_preparation",
    "default_features_path",
    "digest",
    "is_parquet",
    "open_table",
    "prepare",
    "read_features",
    "unit_length",
    "write_features",
]
