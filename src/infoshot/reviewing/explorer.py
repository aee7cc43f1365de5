"""What a review computes from the features of the photos: the map, groups, similarity."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infoshot.core.errors import DataError
from infoshot.reviewing.projection import place
from infoshot.reviewing.worker_process import WorkerProcess

Floats = NDArray[np.float32]


class Explorer:
    """Computes them in another process, the quickest first; a review works without them too.

    Parameters
    ----------
    run, scratch
        Folder of the run, and a folder for arrays.
    on_suggested
        Called with the photos to label next.
    on_found
        Called with ``map`` or ``groups`` when these are there.

    Attributes
    ----------
    vectors
        Vectors of unit length for similarity, a row per photo.
    map
        The name of the projection, and the positions of the photos.
    groups
        Numbers of similar photos.
    """

    def __init__(
        self,
        run: Path,
        scratch: Path,
        on_suggested: Callable[[Sequence[int]], None],
        on_found: Callable[[str], None],
    ) -> None:
        self.vectors: Floats | None = None
        self.map: tuple[str, Floats] | None = None
        self.groups: list[list[int]] | None = None
        self._worker = WorkerProcess(run, scratch)
        self._on_suggested, self._on_found = on_suggested, on_found

    def start(self) -> None:
        """Start in the background."""
        threading.Thread(target=self._run, name="infoshot-explore", daemon=True).start()

    def forget(self) -> None:
        """Drop what was computed for other photos."""
        self.vectors = self.map = self.groups = None

    def close(self) -> None:
        """Stop."""
        self._worker.close()

    def _run(self) -> None:
        try:
            for reply in self._worker.ask("explore"):
                self._take(reply)
        except DataError:  # such as features that are not cached any more
            return
        finally:
            self._worker.close()

    def _take(self, reply: Mapping[str, Any]) -> None:
        kind = reply["kind"]
        if kind == "suggested":
            self._on_suggested(reply["suggested"])
        elif kind == "groups":
            self.groups = reply["groups"]
            self._on_found("groups")
        elif kind == "vectors":
            vectors = np.load(reply["file"])
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            self.vectors = vectors / np.where(lengths > 0, lengths, 1)
            self.map = ("pca", place(vectors))
            self._on_found("map")
        else:
            self.map = ("tsne", np.load(reply["file"]))
            self._on_found("map")
