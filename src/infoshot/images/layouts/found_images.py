"""The images that a layout finds under a root."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoshot.core.errors import DataError
from infoshot.images.decoding import ImageRecord


@dataclass(frozen=True, eq=False)
class FoundImages:
    """Images with their classes, and the splits if the layout has them.

    ``split_of_class`` is empty if the layout has no splits; ``ignored`` names the skipped files.
    """

    layout: str
    records: list[ImageRecord]
    split_of_class: Mapping[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def claim_split(
    split_of_class: dict[str, str], class_name: str, split: str, source: object
) -> None:
    """Put a class into a split; raise ``DataError`` if it is already in another one."""
    before = split_of_class.setdefault(class_name, split)
    if before != split:
        raise DataError(
            f"{source}: a class must be in one split only; "
            f"'{class_name}' is in {before} and {split}."
        )
