"""What a layout found under a root."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoshot.core.errors import DataError
from infoshot.images.decoding import ImageRecord


@dataclass(frozen=True, eq=False)
class Found:
    """Images with their classes, and the splits the layout itself gives, if any.

    ``split_of_class`` is empty where only class names tell; ``ignored`` names what was passed over.
    """

    layout: str
    records: list[ImageRecord]
    split_of_class: Mapping[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


def claim_split(
    split_of_class: dict[str, str], class_name: str, split: str, source: object
) -> None:
    """Put a class into a split, or raise ``DataError`` if ``source`` has it in another one too."""
    before = split_of_class.setdefault(class_name, split)
    if before != split:
        raise DataError(
            f"{source}: a class must be in one split only; "
            f"'{class_name}' is in {before} and {split}."
        )
