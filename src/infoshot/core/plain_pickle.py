"""Pickles as data: containers, strings, numbers and arrays; nothing in a pickle is run.

A pickle is a program that may name any function. Here a name stands for one of a few functions of
this module, and every other name is refused. Arrays are built from a plain data type, a shape and
bytes, after their sizes have been compared; NumPy's own constructors would also build arrays of
pointers. Python's unpickler in Python is used, without the operations that plain data do not need:
the one in C reserves as much memory as a number in the file says. What a file may cost is limited
by its size, so that small files neither fill the memory nor take minutes.
"""

import math
import os
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from infoshot.core.errors import DataError
from infoshot.core.regular_file import open_regular

Make = Callable[..., Any]
_OPERATIONS = """
    PROTO FRAME STOP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT
    BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE BINUNICODE
    SHORT_BINUNICODE BINUNICODE8 MARK EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND
    APPENDS EMPTY_DICT GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL
"""
_COST = 64  # bytes of memory that an operation may take
_FREE = 2**27  # bytes that every file may take
_KEYS = (str, int, bytes, float, np.generic)  # hashed without recursion
_PLAIN_TYPE = re.compile(r"([iu][1248]|f[248]|b1|[SU][0-9]{1,5})\Z")
_LARGEST_RANK = 8
_LARGEST_CHARACTER = 0x10FFFF


@final
class Name:
    """A name in a pickle that stands for a function of ours."""

    __slots__ = ("make",)

    def __init__(self, make: Make) -> None:
        self.make = make


@final
class _DataType:
    """A data type without objects; ``build`` sets its byte order."""

    __slots__ = ("dtype",)

    def __init__(self, code: object, align: object = 0, copy: object = 1) -> None:
        if not isinstance(code, str) or not _PLAIN_TYPE.match(code):
            kind = code if isinstance(code, str) else type(code).__name__
            raise pickle.UnpicklingError(f"arrays of type {kind!r:.20} are not allowed")
        self.dtype = np.dtype(code)

    def build(self, state: object) -> None:
        """Accept (version, byte order, no sub-type, no names, no fields, size, ...)."""
        if not isinstance(state, tuple) or len(state) not in (8, 9) or any(state[2:5]):
            raise pickle.UnpicklingError("arrays with fields are not allowed")
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("the byte order of an array is not valid")
        self.dtype = self.dtype.newbyteorder(state[1])


@final
class _Array:
    """An array; ``build`` sets its content."""

    __slots__ = ("array",)

    def __init__(self, array: NDArray[Any] | None = None) -> None:
        self.array: NDArray[Any] = np.empty(0, np.uint8) if array is None else array

    def build(self, state: object) -> None:
        """Accept (version, shape, data type, whether columns are contiguous, bytes)."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array must have a shape, a data type and bytes")
        _, shape, dtype, by_columns, content = state
        self.array = _make_array(content, dtype, shape, "F" if by_columns == 1 else "C")


def _make_array(content: object, dtype: object, shape: object, order: object) -> NDArray[Any]:
    """Build an array after comparing the number of bytes with shape and data type."""
    if isinstance(content, str):  # bytes of Python 2, which are read as Latin-1
        content = content.encode("latin1")
    if not isinstance(content, bytes) or not isinstance(dtype, _DataType):
        raise pickle.UnpicklingError("an array must have a shape, a data type and bytes")
    if not isinstance(shape, tuple) or len(shape) > _LARGEST_RANK or order not in ("C", "F"):
        raise pickle.UnpicklingError("the shape of an array is not valid")
    if not all(type(side) is int and 0 <= side < 2**62 for side in shape):
        raise pickle.UnpicklingError("the shape of an array is not valid")
    kind = dtype.dtype
    if math.prod(shape) * kind.itemsize != len(content):
        raise pickle.UnpicklingError(
            f"an array of {kind} {list(shape)} cannot have {len(content):,} bytes"
        )
    array: NDArray[Any] = np.frombuffer(content, np.uint8)
    if kind == np.bool_:
        array = array != 0
    elif kind.itemsize:
        array = array.view(kind)
    else:
        array = np.empty(shape, kind)
    if kind.kind == "U" and len(content):
        characters = np.frombuffer(content, np.dtype(np.uint32).newbyteorder(kind.byteorder))
        if characters.max() > _LARGEST_CHARACTER:
            raise pickle.UnpicklingError("an array has text that is not Unicode")
    return array.reshape(shape, order=order)


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(content: object, dtype: object, shape: object, order: object) -> _Array:
    return _Array(_make_array(content, dtype, shape, order))


def _scalar(dtype: object, content: object) -> Any:  # noqa: ANN401 - a number or a text
    return _make_array(content, dtype, (), "C")[()]


def _no_bytes() -> bytes:
    return b""  # the protocols before 3 call bytes() for them


def _refuse(*_: object) -> None:
    raise pickle.UnpicklingError("it calls a type")


_NAMES: Mapping[tuple[str, str], Make] = {
    ("numpy", "ndarray"): _refuse,
    ("numpy", "dtype"): _DataType,
    ("__builtin__", "bytes"): _no_bytes,
    **{
        (f"numpy.{core}.{module}", name): make
        for core in ("core", "_core")
        for module, name, make in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}


class PlainUnpickler(pickle._Unpickler):
    """Reads plain data and arrays.

    Parameters
    ----------
    file
        The file, at the start of a pickle.
    size
        Bytes of the file, which limit what it may cost.
    names
        Further functions that a pickle may name, and what is called instead.
    persistent
        What to do with the identifiers of objects outside the pickle; ``None``: refuse them.
    """

    stack: list[Any]  # of the base class, whose types do not list it
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        *,
        names: Mapping[tuple[str, str], Make] | None = None,
        persistent: Callable[[object], object] | None = None,
    ) -> None:
        super().__init__(file, encoding="latin1")
        self._left = 4 * size + _FREE
        self._persistent = persistent
        self._names: dict[tuple[str, str], Make] = {
            **_NAMES,
            ("_codecs", "encode"): self._encode,
            ("collections", "OrderedDict"): self._make_dict,
            **(names or {}),
        }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in the base class
        """Return what a name stands for, or raise."""
        make = self._names.get((module, name))
        if make is None:
            raise pickle.UnpicklingError(
                f"it calls {f'{module}.{name}':.80}; only arrays, lists, dicts, strings and "
                "numbers are allowed"
            )
        return Name(make)

    def persistent_load(self, pid: object) -> object:
        """Return the object outside the pickle that an identifier means."""
        if self._persistent is None:
            raise pickle.UnpicklingError("it refers to objects outside")
        return self._persistent(pid)

    def spend(self, n_bytes: int) -> None:
        """Count memory or work against the limit of the file."""
        self._left -= n_bytes
        if self._left < 0:
            raise pickle.UnpicklingError("it builds far more than a file of its size should")

    def _encode(self, text: object, encoding: object) -> bytes:
        """Return bytes, which the protocols before 3 write as text."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError("only bytes may be encoded as text")
        self.spend(len(text))
        return text.encode("latin1")

    def _make_dict(self, pairs: object = ()) -> dict[Any, Any]:
        """Return a dict in place of an ordered one; Python 2 passes its items."""
        if not isinstance(pairs, list | tuple):
            raise pickle.UnpicklingError("a dict must be made of pairs")
        self.spend(_COST * len(pairs))
        items = [item for pair in pairs for item in _as_pair(pair)]
        return _fill({}, items)

    def _load_bytearray(self) -> None:
        self.append(self.read(int.from_bytes(self.read(8), "little")))

    def _load_reduce(self) -> None:
        arguments, name = self.stack.pop(), self.stack[-1]
        if type(name) is not Name or type(arguments) is not tuple:
            raise pickle.UnpicklingError("it calls something that is not a function")
        self.stack[-1] = name.make(*arguments)

    def _load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Array | _DataType):
            target.build(state)
        elif not isinstance(target, dict):  # attributes of a dict are of no use
            raise pickle.UnpicklingError("it sets the state of something that is not an array")

    def _load_dict(self) -> None:
        items = self.pop_mark()  # which changes where append puts its argument
        self.append(_fill({}, items))

    def _load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _fill(self.stack[-1], [key, value])

    def _load_setitems(self) -> None:
        items = self.pop_mark()
        _fill(self.stack[-1], items)


def _as_pair(pair: object) -> tuple[Any, Any]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise pickle.UnpicklingError("a dict must be made of pairs")
    return pair[0], pair[1]


def _fill(target: object, items: list[Any]) -> dict[Any, Any]:
    """Add keys and values in turn; keys are numbers and texts, since tuples hash recursively."""
    if type(target) is not dict:
        raise pickle.UnpicklingError("it sets items of something that is not a dict")
    if len(items) % 2 or not all(isinstance(key, _KEYS) for key in items[::2]):
        raise pickle.UnpicklingError("the keys of a dict must be texts or numbers")
    target.update(zip(items[::2], items[1::2], strict=True))
    return target


def _with_limit(load: Callable[[Any], None]) -> Callable[[PlainUnpickler], None]:
    def limited(self: PlainUnpickler) -> None:
        self.spend(_COST)
        load(self)

    return limited


def _operations() -> dict[int, Any]:
    known: Mapping[int, Any] = pickle._Unpickler.dispatch
    codes = [getattr(pickle, name)[0] for name in _OPERATIONS.split()]
    own = {
        pickle.BYTEARRAY8: PlainUnpickler._load_bytearray,
        pickle.REDUCE: PlainUnpickler._load_reduce,
        pickle.BUILD: PlainUnpickler._load_build,
        pickle.DICT: PlainUnpickler._load_dict,
        pickle.SETITEM: PlainUnpickler._load_setitem,
        pickle.SETITEMS: PlainUnpickler._load_setitems,
        pickle.BINPERSID: known[pickle.BINPERSID[0]],
    }
    return {code: _with_limit(known[code]) for code in codes} | {
        name[0]: _with_limit(load) for name, load in own.items()
    }


PlainUnpickler.dispatch = _operations()


def load_plain(unpickler: PlainUnpickler) -> Any:  # noqa: ANN401 - whatever data the pickle holds
    """Read one pickle, with NumPy's arrays in its lists and dicts.

    Raises
    ------
    pickle.UnpicklingError
        If it is damaged, or not plain data.
    """
    try:
        return _with_arrays(unpickler.load())
    except OSError:
        raise
    except Exception as error:  # damaged bytes raise many kinds of errors
        if isinstance(error, KeyError) and not isinstance(error.args[0], str):
            error = pickle.UnpicklingError("it has an operation that plain data do not need")
        reason = str(error).split("\n", 1)[0][:200] or type(error).__name__
        raise pickle.UnpicklingError(reason) from error


def read_plain_pickle(path: Path) -> Any:  # noqa: ANN401 - whatever data the pickle holds
    """Read the data of a pickle file without executing anything from it.

    Raises
    ------
    DataError
        If the file cannot be read, is damaged, or holds anything else than plain data.
    """
    try:
        with open_regular(path) as file:
            return load_plain(PlainUnpickler(file, os.fstat(file.fileno()).st_size))
    except pickle.UnpicklingError as error:
        raise DataError(f"{path}: not allowed, or not a complete pickle ({error}).") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def _with_arrays(root: object) -> object:
    """Replace what stands for an array in lists and dicts, each of which is visited once."""
    if isinstance(root, _Array):
        return root.array
    waiting, seen = [root], {id(root)}
    while waiting:
        parent = waiting.pop()
        if isinstance(parent, dict):
            places: Any = list(parent.items())
        elif isinstance(parent, list):
            places = enumerate(parent)
        else:
            continue
        for place, child in places:
            if isinstance(child, _Array):
                parent[place] = child.array
            elif isinstance(child, list | dict) and id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)
    return root
