"""Image data sets on disk: layouts, splits, decoding and transforms."""

from infoshot.images.datasets import DATASETS, ImageDataset, ImageSplit, open_dataset

__all__ = ["DATASETS", "ImageDataset", "ImageSplit", "open_dataset"]
