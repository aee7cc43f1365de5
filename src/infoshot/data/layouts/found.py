"""What a layout found under a root."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoshot.data.images import ImageRecord


@dataclass(frozen=True, eq=False)
class Found:
    """Images with their classes, and the splits the layout itself gives, if any.

    ``split_of_class`` is empty where only class names tell; ``ignored`` names what was passed over.
    """

    layout: str
    records: list[ImageRecord]
    split_of_class: Mapping[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
