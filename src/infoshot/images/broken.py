"""Find images that cannot be decoded, and drop them from a split."""

import warnings
from collections.abc import Sequence

from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.images.datasets import ImageSplit
from infoshot.images.decoding import ImageRecord, decode_workers, map_images

_MOST_NAMED = 10


def find_broken_images(
    records: Sequence[ImageRecord], progress: Progress = SILENT
) -> dict[int, str]:
    """Find the images that cannot be decoded: their numbers, each with the reason."""
    broken = {}
    for number, sentence in enumerate(map_images(_reason_if_broken, records, decode_workers())):
        progress.advance()
        if sentence:
            broken[number] = sentence
    return broken


def drop_broken(split: ImageSplit, *, warn: bool = True, progress: Progress = SILENT) -> ImageSplit:
    """Return the split without the images that cannot be decoded.

    Parameters
    ----------
    split
        The images to check.
    warn
        Whether to warn about the images that are left out; one of several processes does.
    progress
        Counts the images.

    Raises
    ------
    DataError
        If no image can be decoded.
    """
    progress.start(f"checking {split.name}", len(split.records), "images")
    broken = find_broken_images(split.records, progress)
    if len(broken) == len(split.records):
        raise DataError(
            f"no image of the split '{split.name}' can be decoded; {next(iter(broken.values()))}"
        )
    kept = split.without(broken)
    if broken and warn:
        reasons = list(broken.values())
        more = f" And {len(broken) - _MOST_NAMED} more." if len(broken) > _MOST_NAMED else ""
        warnings.warn(
            f"skipped {len(broken)} of {len(split.records)} images of the split '{split.name}': "
            f"{' '.join(reasons[:_MOST_NAMED])}{more}",
            stacklevel=2,
        )
        empty = sorted(set(split.class_names) - set(kept.class_names))
        if empty:
            warnings.warn(
                f"these classes of the split '{split.name}' have no image left: "
                f"{', '.join(empty)}.",
                stacklevel=2,
            )
    return kept


def _reason_if_broken(record: ImageRecord) -> str | None:
    try:
        record.location.pixels()
    except DataError as error:
        return str(error)
    return None
