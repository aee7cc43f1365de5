"""Which feature files are Parquet: a file, or all of a folder or of a pattern."""

from pathlib import Path

from infoshot.core.embedding_column import MAGIC, SUFFIX
from infoshot.core.errors import DataError
from infoshot.core.places import AnyPlace, Place, find_files, locate, open_place


def is_parquet(path: AnyPlace) -> bool:
    """Whether a place is a Parquet file, or a folder or pattern of such files.

    Raises
    ------
    DataError
        If there is no such file, or no Parquet file in the folder.

    Examples
    --------
    >>> from infoshot.features import default_features_path
    >>> is_parquet(default_features_path())
    False
    """
    try:
        return find_parquet(locate(path)) is not None
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error


def find_parquet(place: Place) -> list[Place] | None:
    """List the Parquet files of a place; ``None`` if it is a file of another format.

    Raises
    ------
    DataError
        If a folder or a pattern has no Parquet files, or a remote file is not Parquet.
    OSError
        If it cannot be opened.
    """
    places = find_files(place, [SUFFIX])
    if places is None:
        with open_place(place) as file:
            if file.read(len(MAGIC)) == MAGIC:
                return [place]
        if not isinstance(place, Path):
            raise DataError(f"{place}: not a Parquet file; remote feature files must be Parquet.")
    elif not places:
        what = "no Parquet file is there"
        if isinstance(place, Path) and place.is_dir():
            what = "a folder, not a feature file, and it has no Parquet files"
        elif isinstance(place, Path) and place.suffix != SUFFIX:
            what = "there is no such file"
        raise DataError(f"{place}: {what}.")
    return places
