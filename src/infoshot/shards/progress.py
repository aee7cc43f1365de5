"""What a solve over shards leaves on disk while it goes on, so that it can be taken up again.

``state.safetensors`` holds the class weights after the last finished iteration and what they are
of. It is replaced whole after every iteration, by the main process alone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from infoshot.core.atomic import write_atomically
from infoshot.core.errors import DataError

STATE_NAME = "state.safetensors"
_FORMAT = "infoshot.shards/1"


@dataclass(frozen=True, eq=False)
class Progress:
    """Class weights, ``(class, dim)`` in float64, after ``n_steps`` iterations.

    ``facts`` is everything the solve depends on, ``beta`` the weight of the marginal entropy,
    ``note`` how it was come by, ``ended`` whether nothing moves any more.
    """

    facts: Mapping[str, Any]
    weights: Tensor
    n_steps: int
    beta: float
    note: str = ""
    ended: bool = False

    def write(self, folder: Path) -> None:
        """Put it in the place of what was there."""
        about = {name: value for name, value in vars(self).items() if name != "weights"}
        metadata = {"progress": json.dumps({"format": _FORMAT, **about}, sort_keys=True)}
        content = save({"weights": self.weights.contiguous()}, metadata=metadata)
        write_atomically(folder / STATE_NAME, content)


def read_progress(folder: Path) -> Progress | None:
    """What was left there; ``None`` if nothing was.

    Raises
    ------
    DataError
        If it is damaged or something else.
    """
    path = folder / STATE_NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = json.loads((file.metadata() or {})["progress"])
            if about.pop("format") != _FORMAT:
                raise KeyError("format")
            return Progress(weights=file.get_tensor("weights"), **about)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise DataError(f"{path}: not what 'infoshot solve-shards' writes ({error}).") from error
