"""Items and actions as the page gets them."""

import math
from typing import Any

import numpy as np

from infoshot.labelling.answer_log import Entry
from infoshot.reviewing.history import describe
from infoshot.reviewing.marks import Marks
from infoshot.reviewing.pool import STATUSES, Pool
from infoshot.reviewing.subscriptions import Event

_BEST = 5
_SHOWN, _MOST_IDS = 8, 1000
_NO_LABEL = 65535
_ANSWERED, _OUTLIER, _UNREADABLE, _UNSURE, _CHANGED, _SKIPPED, _REJECTED = (
    2**bit for bit in range(7)
)


def describe_item(number: int, pool: Pool, marks: Marks) -> dict[str, Any]:
    """Return the details of an item."""
    answer, path = marks.answer(number), pool.paths[number]
    item = {
        "id": number,
        "kind": "photo",
        "name": path.rpartition("/")[2],
        "path": path,
        "label": marks.labels[number],
        "answer": answer.label if answer else None,
        "audited": bool(marks.audited[number]),
        "predicted": marks.offered(number),
        "skipped": bool(marks.skipped[number]),
        "changed": bool(marks.changed[number]),
        "looks_like": None,
        "entry": int(marks.entries[number]),
    }
    if number < pool.n_photos:
        return item | _describe_photo(number, pool)
    return item | {
        "kind": "example",
        "looks_like": pool.looks_like.get(path),
        "confidence": None,
        "margin": None,
        "outlier_score": None,
        "scores": [],
        "status": "labelled",
        "reason": "",
    }


def pack_points(pool: Pool, marks: Marks) -> bytes:
    """Return label, confidence and flags of every photo, four bytes each."""
    n = pool.n_photos
    numbers = {name: number for number, name in enumerate(marks.classes)}
    points = np.zeros(n, dtype=[("label", "<u2"), ("confidence", "u1"), ("flags", "u1")])
    points["label"] = [numbers.get(name, _NO_LABEL) for name in marks.labels[:n].tolist()]
    points["confidence"] = np.nan_to_num(pool.confidence * 255).round()
    for flag, mask in (
        (_ANSWERED, marks.answered[:n]),
        (_OUTLIER, pool.status == STATUSES.index("outlier")),
        (_UNREADABLE, ~pool.readable),
        (_UNSURE, pool.status == STATUSES.index("unsure")),
        (_CHANGED, marks.changed[:n]),
        (_SKIPPED, marks.skipped[:n]),
        (_REJECTED, marks.rejected[:n]),
    ):
        points["flags"] |= np.where(mask, flag, 0).astype(np.uint8)
    return points.tobytes()


def touched_items(entry: Entry, pool: Pool) -> list[int]:
    """Return the numbers of the items that an action touched, as far as the run has them."""
    paths = [*(change.path for change in entry.changes), *entry.skipped, *entry.unskipped]
    return [pool.number_of[path] for path in paths if path in pool.number_of]


def describe_entry(entry: Entry, pool: Pool) -> dict[str, Any]:
    """Return an action for the list of all actions."""
    numbers = touched_items(entry, pool)
    return {
        "n": entry.n,
        "time": entry.time,
        "action": entry.action,
        "text": describe(entry),
        "ids": numbers[:_SHOWN],
        "n_items": len(numbers),
        "client": entry.client,
    }


def announce_entry(entry: Entry, pool: Pool) -> Event:
    """Return the event that tells other pages of an action; without items if there are many."""
    ids = touched_items(entry, pool)
    data = {
        "n": entry.n,
        "action": entry.action,
        "ids": ids if len(ids) <= _MOST_IDS else None,
        "client": entry.client,
        "text": describe(entry),
    }
    return Event("entry", data, entry.n)


def _describe_photo(number: int, pool: Pool) -> dict[str, Any]:
    chances = pool.probabilities[number]
    known = not np.isnan(chances).any()
    best = np.argsort(-chances, kind="stable")[:_BEST].tolist() if known else []
    return {
        "confidence": _number(pool.confidence[number]),
        "margin": _number(pool.margin[number]),
        "outlier_score": _number(pool.outlier_score[number]),
        "scores": [[pool.classes[k], round(float(chances[k]), 4)] for k in best],
        "status": STATUSES[pool.status[number]],
        "reason": pool.reasons[number],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)
