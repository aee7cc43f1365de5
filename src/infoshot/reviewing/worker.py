"""The process that computes for a review: ``python -m infoshot.reviewing.worker RUN SCRATCH``.

Requests and replies are lines of JSON on standard input and output; arrays are files in the folder
SCRATCH. The server stays small and quick, since features and solves are in this process only. It
ends when its input ends, so also when the server is killed.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from infoshot.core.errors import InfoshotError
from infoshot.features.cache import FeatureMemory
from infoshot.labelling.decide import choose_suggestions
from infoshot.labelling.run_folder import read_run
from infoshot.labelling.suggestions import choose_next, read_cached_features
from infoshot.labelling.updates import solve_again
from infoshot.reviewing.groups import find_groups
from infoshot.reviewing.projection import embed, reduce

_SUGGESTED = 300
_MEMORY: FeatureMemory = {}
Reply = dict[str, Any]


def main() -> None:
    """Answer requests until the input ends."""
    run, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with replies
    for line in sys.stdin:
        for reply in _answer(json.loads(line), run, scratch):
            replies.write(json.dumps(reply) + "\n")
            replies.flush()


def _answer(request: dict[str, Any], run: Path, scratch: Path) -> Iterator[Reply]:
    try:
        yield from _TASKS[request["task"]](request, run, scratch)
        yield {"kind": "done"}
    except InfoshotError as error:
        yield {"kind": "failed", "error": str(error)}
    except MemoryError:
        yield {"kind": "failed", "error": "this machine has not enough memory."}
    except Exception as error:
        yield {"kind": "failed", "error": f"unexpected {type(error).__name__}: {error}"}


def _prepare(request: dict[str, Any], run: Path, scratch: Path) -> Iterator[Reply]:
    """Read the features, so that the first solve is as quick as the next ones."""
    read_cached_features(read_run(run), _MEMORY)
    yield from ()


def _solve(request: dict[str, Any], run: Path, scratch: Path) -> Iterator[Reply]:
    """Solve again; reply with the last entry in it, and with what to label next."""
    decision, n_entries = solve_again(
        run,
        statement=request.get("statement"),
        export=request.get("export", ()),
        memory=_MEMORY,
    )
    suggested = choose_suggestions(
        decision.features, decision.open_probabilities(), decision.z_sup, _SUGGESTED
    )
    yield {"kind": "solved", "n_entries": n_entries, "suggested": suggested}


def _explore(request: dict[str, Any], run: Path, scratch: Path) -> Iterator[Reply]:
    """Compute what to label next, vectors, the map and groups, the quickest first."""
    os.nice(10)
    torch.set_num_threads(1)
    finished = read_run(run)
    examples, features = read_cached_features(finished)
    chosen = choose_next(finished, examples, features, _SUGGESTED)
    yield {"kind": "suggested", "suggested": chosen}
    vectors = reduce(features.numpy())
    del features, examples
    yield {"kind": "vectors", "file": _store(vectors, scratch / "vectors.npy")}
    yield {"kind": "groups", "groups": [list(group.ids) for group in find_groups(vectors)]}
    yield {"kind": "map", "file": _store(embed(vectors), scratch / "map.npy")}


def _store(array: NDArray[np.float32], path: Path) -> str:
    np.save(path, array)
    return str(path)


_TASKS: dict[str, Callable[[dict[str, Any], Path, Path], Iterator[Reply]]] = {
    "prepare": _prepare,
    "solve": _solve,
    "explore": _explore,
}

if __name__ == "__main__":
    main()
