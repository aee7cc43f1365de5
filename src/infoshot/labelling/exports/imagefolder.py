"""Export one folder per class, as torchvision, Hugging Face and ``extract`` read them."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from infoshot.labelling.decide import ImageLabel
from infoshot.labelling.exports.export_folder import put, whole_folder
from infoshot.labelling.exports.names import Names

_WITHHELD = {"unsure": "_unsure", "outlier": "_outlier"}


def export_imagefolder(
    photos: Sequence[ImageLabel], classes: Sequence[str], folder: Path, model_version: str
) -> None:
    """Link every readable image as ``folder/<class>/<name>``; doubtful ones in folders apart.

    Raises
    ------
    DataError
        If ``folder`` contains other files, or it cannot be written.
    """
    readable = [photo for photo in photos if photo.status != "unreadable"]
    taken = Names(_WITHHELD.values())
    folder_of = {label: taken.take(label) for label in classes}
    names: defaultdict[str, Names] = defaultdict(Names)
    with whole_folder(folder, readable, model_version) as new:
        for photo in readable:
            part = _WITHHELD.get(photo.status) or folder_of[photo.label]
            (new / part).mkdir(exist_ok=True)
            put(photo, new / part / names[part].take(photo.file.name))
