r"""Text from outside: file names of any bytes, names of classes, and what a terminal may show.

A file name is any bytes, but CSV, JSON and HTML hold Unicode text. :func:`escape_name` writes bytes
that are not UTF-8 as ``\xNN``, and :func:`unescape_name` reverses it. A backslash in a name stays a
backslash, unless what follows makes it look like such an escape: then it becomes ``\x5c``. So two
names never become the same text, and nearly all names stay as they are.
"""

import os
import re

from infoshot.core.errors import DataError, InvalidArgumentError

_ESCAPED = r"\\x(?=5c|[89a-f][0-9a-f])"  # lower case only, and only what escape_name writes
_HALF = re.compile("[\ud800-\udfff]")  # of a character, or a byte of a file name
# Control characters, line separators, characters that reorder text, and halves of characters.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_name(path: str | os.PathLike[str]) -> str:
    r"""Return a file name as valid Unicode text, from which :func:`unescape_name` restores it.

    Raises
    ------
    InvalidArgumentError
        If no file can have this name.

    Examples
    --------
    >>> escape_name(os.fsdecode(b"photo\xe9.jpg")), escape_name(r"literal\xe9.jpg")
    ('photo\\xe9.jpg', 'literal\\x5cxe9.jpg')
    >>> escape_name("Größe.jpg"), escape_name(r"C:\photos\1.jpg")
    ('Größe.jpg', 'C:\\photos\\1.jpg')
    """
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"no file can have the name {os.fspath(path)!r}.") from error
    return re.sub(_ESCAPED.encode(), rb"\\x5cx", name).decode("utf-8", "backslashreplace")


def unescape_name(text: str) -> str:
    r"""Return the file name that :func:`escape_name` turned into this text.

    Examples
    --------
    >>> os.fsencode(unescape_name(r"photo\xe9.jpg")), unescape_name(r"literal\x5cxe9.jpg")
    (b'photo\xe9.jpg', 'literal\\xe9.jpg')
    """
    if not re.search(_ESCAPED, text):
        return text
    parts = re.split(rf"{_ESCAPED}(..)".encode(), os.fsencode(text))
    parts[1::2] = [bytes.fromhex(digits.decode()) for digits in parts[1::2]]
    return os.fsdecode(b"".join(parts))


def visible(text: str, *, keep: str = "") -> str:
    r"""Replace characters that could control a terminal, or that UTF-8 cannot hold, by escapes.

    Parameters
    ----------
    text
        Any text.
    keep
        Characters to leave as they are, such as ``"\n"``.

    Examples
    --------
    >>> visible("\x1b[31mred\r.jpg"), visible(os.fsdecode(b"\xe9"))
    ('\\x1b[31mred\\r.jpg', '\\xe9')
    """
    return _INVISIBLE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def encodable(text: str) -> str:
    r"""Replace what UTF-8 cannot hold, and nothing else, by escapes.

    Examples
    --------
    >>> encodable(os.fsdecode(b"\xe9\r"))
    '\\xe9\r'
    """
    return _HALF.sub(lambda match: _escape(match[0]), text)


def check_class_name(name: str, where: object) -> None:
    """Raise ``DataError`` if the name of a class has characters that cannot be shown.

    Parameters
    ----------
    name
        The name.
    where
        The file or folder that it comes from.
    """
    found = _INVISIBLE.search(name)
    if found:
        raise DataError(
            f"{where}: the class name '{visible(name)}' contains the character "
            f"'{_escape(found[0])}'; rename the class, without control characters."
        )


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a file name
        return f"\\x{ord(character) - 0xDC00:02x}"
    return repr(character)[1:-1]
