"""The state of a review: items, answers, undo, views."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infoshot.core.errors import InvalidArgumentError
from infoshot.reviewing.views import ViewQuery


class Conflict(InvalidArgumentError):
    """Somebody else has answered some of the items differently in the meantime."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        super().__init__("Somebody else has answered some of these photos differently.")
        self.items = items


class Subscription:
    """Events for one client."""

    def get(self, timeout: float) -> tuple[str, Any, int | None] | None:
        """Return the next event, its data and its entry; ``None`` after ``timeout`` seconds."""
        raise NotImplementedError

    def close(self) -> None:
        """End the subscription."""
        raise NotImplementedError


class Session:
    """The state of a review; all methods are thread-safe."""

    n_photos: int
    n_items: int

    def __init__(self, run: Path) -> None:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        raise NotImplementedError

    def items(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        raise NotImplementedError

    def view(self, query: ViewQuery) -> NDArray[np.int32]:
        raise NotImplementedError

    def points(self) -> bytes:
        raise NotImplementedError

    def map(self) -> tuple[str, bytes] | None:
        raise NotImplementedError

    def groups(self) -> list[dict[str, Any]] | None:
        raise NotImplementedError

    def history(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        raise NotImplementedError

    def answer(
        self,
        action: str,
        ids: Sequence[int],
        *,
        label: str = "",
        client: str = "",
        seen: int = 0,
        replace: bool = False,
    ) -> dict[str, Any]:
        raise NotImplementedError

    def undo(self, *, client: str = "", to: int | None = None) -> dict[str, Any]:
        raise NotImplementedError

    def change_class(
        self, action: str, name: str, to: str = "", *, client: str = ""
    ) -> dict[str, Any]:
        raise NotImplementedError

    def next_audit(self, n: int = 8) -> dict[str, Any]:
        raise NotImplementedError

    def set_goal(self, goal: float, *, client: str = "") -> dict[str, Any]:
        raise NotImplementedError

    def enough(self) -> dict[str, Any]:
        raise NotImplementedError

    def finish(self, exports: Sequence[str], *, client: str = "") -> None:
        raise NotImplementedError

    def image_file(self, number: int) -> tuple[Path, str] | None:
        raise NotImplementedError

    def subscribe(self, since: int) -> Subscription:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
