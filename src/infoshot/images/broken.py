"""Leave out the images of a split that cannot be decoded."""

import warnings

from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.images.datasets import ImageSplit
from infoshot.images.decoding import decode_workers
from infoshot.images.in_memory import broken_images

_MOST_NAMED = 10


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
    broken = broken_images(split.records, n_workers=decode_workers(), on_progress=progress.advance)
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
