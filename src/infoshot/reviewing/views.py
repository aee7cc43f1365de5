"""Which items a view shows, and in which order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infoshot.core.errors import InvalidArgumentError
from infoshot.reviewing.marks import Marks
from infoshot.reviewing.pool import STATUSES, Pool

VIEWS = (
    "suggested", "doubtful", "all", "class", "outliers", "unreadable", "examples", "corrected",
    "changed",
)  # fmt: skip
SORTS = ("default", "confidence", "margin", "outlier", "name", "similar")
FILTERS = ("", "answered", "unanswered", *STATUSES, "skipped", "rejected")
Numbers = NDArray[np.int32]


@dataclass(frozen=True)
class ViewQuery:
    """What a page asks for.

    Parameters
    ----------
    view, label
        Name of the view, and the class of the view ``class``; with other views, only items with
        this label.
    sort, order
        What to sort by, and ``asc`` or ``desc``; empty for the usual direction.
    pin
        The photo that others are compared with, for the sort ``similar``.
    status, low, high, text
        Only items with this status, with a confidence in this range, with this text in their path.
    """

    view: str = "suggested"
    label: str = ""
    sort: str = "default"
    order: str = ""
    pin: int | None = None
    status: str = ""
    low: float = 0.0
    high: float = 1.0
    text: str = ""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("view", self.view, VIEWS),
            ("sort", self.sort, SORTS),
            ("status", self.status, FILTERS),
            ("order", self.order, ("", "asc", "desc")),
        ):
            if value not in allowed:
                raise InvalidArgumentError(
                    f"{name} must be one of {', '.join(filter(None, allowed))}; got {value!r:.40}."
                )
        if self.view == "class" and not self.label:
            raise InvalidArgumentError("class must be given for the view 'class'.")
        if self.sort == "similar" and self.pin is None:
            raise InvalidArgumentError("pin must be given for the order 'similar'.")


def list_items(
    query: ViewQuery, pool: Pool, marks: Marks, vectors: NDArray[np.float32] | None = None
) -> Numbers:
    """List the numbers of the items of a view, in order.

    Parameters
    ----------
    query
        What is asked for.
    pool, marks
        The items, and what the answers say about them.
    vectors
        Vectors of unit length for similarity, a row per photo.

    Raises
    ------
    InvalidArgumentError
        If the view needs a class or a photo to compare with.
    """
    numbers = _VIEWS[query.view](query, pool, marks)
    if query.label and query.view != "class":
        numbers = numbers[marks.labels[numbers] == query.label]
    numbers = _filter(query, pool, marks, numbers)
    if query.sort != "default":
        return _sort(query, pool, numbers, vectors)
    return numbers[::-1] if query.order == "desc" else numbers


def count_views(pool: Pool, marks: Marks) -> dict[str, int]:
    """Count the items of every view but that of a class."""
    query = ViewQuery()
    return {name: len(find(query, pool, marks)) for name, find in _VIEWS.items() if name != "class"}


def _open(pool: Pool, marks: Marks) -> NDArray[np.bool_]:
    """Photos that can be answered and are not."""
    n = pool.n_photos
    return pool.readable & ~marks.answered[:n]


def _suggested(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    waiting = _open(pool, marks) & ~marks.skipped[: pool.n_photos]
    if not marks.suggested:  # not computed yet
        return _by_margin(pool, waiting)
    return np.array([n for n in marks.suggested if waiting[n]], dtype=np.int32)


def _doubtful(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    return _by_margin(pool, _open(pool, marks))


def _by_margin(pool: Pool, mask: NDArray[np.bool_]) -> Numbers:
    numbers = np.flatnonzero(mask).astype(np.int32)
    return numbers[np.argsort(pool.margin[numbers], kind="stable")]


def _all(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    return np.arange(pool.n_photos, dtype=np.int32)


def _of_class(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    numbers = np.flatnonzero(marks.labels[: pool.n_photos] == query.label).astype(np.int32)
    order = np.lexsort((pool.confidence[numbers], marks.answered[numbers]))
    return numbers[order]


def _outliers(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    mask = (pool.status == STATUSES.index("outlier")) & ~marks.answered[: pool.n_photos]
    numbers = np.flatnonzero(mask).astype(np.int32)
    return numbers[np.argsort(-pool.outlier_score[numbers], kind="stable")]


def _unreadable(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    return np.flatnonzero(~pool.readable).astype(np.int32)


def _examples(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    numbers = np.arange(pool.n_photos, pool.n_items, dtype=np.int32)
    odd = np.array([pool.paths[n] in pool.looks_like for n in numbers], dtype=bool)
    return numbers[np.argsort(~odd, kind="stable")]


def _corrected(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    numbers = np.flatnonzero(marks.answered[: pool.n_photos]).astype(np.int32)
    return numbers[np.argsort(-marks.entries[numbers], kind="stable")]


def _changed(query: ViewQuery, pool: Pool, marks: Marks) -> Numbers:
    return _by_margin(pool, marks.changed[: pool.n_photos])


_VIEWS = {
    "suggested": _suggested,
    "doubtful": _doubtful,
    "all": _all,
    "class": _of_class,
    "outliers": _outliers,
    "unreadable": _unreadable,
    "examples": _examples,
    "corrected": _corrected,
    "changed": _changed,
}


def _filter(query: ViewQuery, pool: Pool, marks: Marks, numbers: Numbers) -> Numbers:
    keep = np.ones(len(numbers), dtype=bool)
    if query.status:
        keep &= _has_status(query.status, pool, marks)[numbers]
    if (query.low, query.high) != (0, 1):
        confidence = _per_item(pool.confidence, pool)[numbers]
        keep &= (confidence >= query.low) & (confidence <= query.high)
    if query.text:
        wanted = query.text.casefold()
        keep &= np.array([wanted in pool.paths[n].casefold() for n in numbers], dtype=bool)
    return numbers[keep]


def _has_status(status: str, pool: Pool, marks: Marks) -> NDArray[np.bool_]:
    if status in STATUSES:
        found = np.zeros(pool.n_items, dtype=bool)
        found[: pool.n_photos] = pool.status == STATUSES.index(status)
        return found
    if status == "unanswered":
        return ~marks.answered
    return {
        "answered": marks.answered,
        "skipped": marks.skipped,
        "rejected": marks.rejected,
    }[status]


def _sort(
    query: ViewQuery, pool: Pool, numbers: Numbers, vectors: NDArray[np.float32] | None
) -> Numbers:
    if query.sort == "name":
        ordered = np.array(sorted(numbers.tolist(), key=pool.paths.__getitem__), dtype=np.int32)
        return ordered[::-1] if query.order == "desc" else ordered
    if query.sort == "similar":
        values, usual = _similarity(query, pool, vectors), "desc"
    else:
        column, usual = {
            "confidence": (pool.confidence, "asc"),
            "margin": (pool.margin, "asc"),
            "outlier": (pool.outlier_score, "desc"),
        }[query.sort]
        values = _per_item(column, pool)
    keys = values[numbers]
    keys = -keys if (query.order or usual) == "desc" else keys
    return numbers[np.argsort(keys, kind="stable")]  # NaN comes last


def _similarity(
    query: ViewQuery, pool: Pool, vectors: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    if vectors is None:
        raise InvalidArgumentError("photos cannot be compared yet; try again in a moment.")
    if query.pin is None or not 0 <= query.pin < pool.n_photos:
        raise InvalidArgumentError("pin must be the number of a photo to compare with.")
    return _per_item(vectors @ vectors[query.pin], pool)


def _per_item(column: NDArray[np.float32], pool: Pool) -> NDArray[np.float32]:
    """Extend a column of the photos to all items, with NaN for the examples."""
    found = np.full(pool.n_items, np.nan, dtype=np.float32)
    found[: pool.n_photos] = column
    return found
