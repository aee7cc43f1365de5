"""Names of images and classes that are valid in every file system, in JSON and in XML."""

import re
import unicodedata
from collections.abc import Iterable

from infoshot.images.decoding import EXTENSIONS

_LONGEST = 200  # bytes; file systems take 255, and a number and an extension may follow
_FORBIDDEN = frozenset('/\\:*?"<>|')
_JOINERS = frozenset("\u200c\u200d")  # invisible, but part of words and emoji
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Names:
    """Safe names that stay distinct where case or Unicode composition does not count.

    Parameters
    ----------
    taken
        Names that are in use.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {_folded(name) for name in taken}
        self._numbers: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Return a safe name like ``name``, with a number before the extension if it is in use."""
        stem, extension = split_extension(name)
        stem = _safe(stem)
        free = wanted = stem + extension
        while _folded(free) in self._taken:
            number = self._numbers[wanted] = self._numbers.get(wanted, 1) + 1
            free = f"{stem}-{number}{extension}"
        self._taken.add(_folded(free))
        return free


def split_extension(name: str) -> tuple[str, str]:
    """Split off the extension if it is that of an image."""
    stem, dot, extension = name.rpartition(".")
    return (stem, dot + extension) if (dot + extension).lower() in EXTENSIONS else (name, "")


def text(name: str) -> str:
    r"""Replace characters that XML does not allow.

    >>> text("tab\t and bell\a")
    'tab\t and bell\\x07'
    """
    return _NOT_IN_XML.sub(lambda match: repr(match[0])[1:-1], name)


def _safe(stem: str) -> str:
    kept = "".join(letter if _is_kept(letter) else "_" for letter in stem)
    return kept.encode()[:_LONGEST].decode(errors="ignore").strip(" .") or "_"


def _is_kept(letter: str) -> bool:
    return letter in _JOINERS or (letter.isprintable() and letter not in _FORBIDDEN)


def _folded(name: str) -> str:
    """Normalise a name for Unicode's caseless matching."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
