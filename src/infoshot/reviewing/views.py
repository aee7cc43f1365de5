"""The views of a review: which items the page shows, and in which order."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ViewQuery:
    """What the page asks for: a view with its class, order and filters."""

    view: str
    class_name: str = ""
    sort: str = "default"
    order: str = "asc"
    pin: int | None = None
    status: str = ""
    low: float = 0.0
    high: float = 1.0
    q: str = ""
