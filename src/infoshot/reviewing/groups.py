"""Groups of photos that all resemble each other, so that a person can answer for them at once.

Two photos resemble each other if the cosine of their vectors, which :func:`reduce` returned, is at
least a threshold. Pairs of neighbours are taken from the most similar on; the groups of the two
are joined if all their members resemble each other, so that groups do not chain (greedy complete
linkage). Photos that are near-identical are grouped first, then the remaining photos that are
similar.

The thresholds were chosen on the 9,600 photos of the 16 validation classes of mini-ImageNet, with
EfficientNet-Lite0: 99.5 % of 942 groups hold one class only (at 0.82: 98.3 % of 1,210 groups, with
39 % more photos). The network has seen these classes in training; with a ResNet-18 that has
not, 95 % of 203 groups do, so a person should look at each group.

Neighbours are searched as in ``solvers/neighbours.py``: among all photos up to 20,000, above that
among 8,192 candidates for each. Cost: 2 n 8,192 d operations for each of the two thresholds; 19 s
on one core for 100,000 photos.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from infoshot.solvers.cells import group_samples

NEAR_IDENTICAL, SIMILAR = 0.95, 0.85  # cosines
LARGEST = 60  # photos of a group
_N_NEIGHBOURS = 16
_MOST_SEARCHED = 20_000  # photos that are all candidates
_CANDIDATES = 8192  # for each photo, if there are more
_BLOCK = 2**24  # similarities at a time

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Group:
    """Photos of which any two resemble each other.

    Parameters
    ----------
    ids
        Numbers of the photos, ascending.
    similarity
        The smallest cosine of two of them.
    near_identical
        Whether this is at least the threshold for near-identical photos.
    """

    ids: tuple[int, ...]
    similarity: float
    near_identical: bool


def find_groups(
    vectors: Floats, *, near_identical: float = NEAR_IDENTICAL, similar: float = SIMILAR
) -> list[Group]:
    """Group near-identical photos, and then similar ones among the rest.

    Parameters
    ----------
    vectors
        What :func:`reduce` returned, shape ``(photo, n_dims)``. Photos whose vector is zero or not
        finite are in no group.
    near_identical, similar
        Smallest cosine of two photos of a group.

    Returns
    -------
    Groups of 2 to 60 photos that share none: those that are near-identical first, larger ones
    first, then in the order of their first photos.

    Examples
    --------
    >>> angles = np.radians([0, 90, 1, 91, 110, 200])
    >>> for group in find_groups(np.stack([np.cos(angles), np.sin(angles)], 1)):
    ...     print(group.ids, f"{group.similarity:.2f}", group.near_identical)
    (0, 2) 1.00 True
    (1, 3) 1.00 True
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    left = np.flatnonzero(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0))
    found: list[Group] = []
    for threshold in (near_identical, similar):
        units = (vectors[left] / lengths[left]).astype(np.float32)
        joined = _join_pairs(units, _neighbour_pairs(units, threshold), threshold)
        for members in joined:
            least = float((units[members] @ units[members].T).min())
            found.append(Group(tuple(left[members].tolist()), least, least >= near_identical))
        left = np.delete(left, [number for members in joined for number in members])
    return sorted(found, key=lambda group: (not group.near_identical, -len(group.ids), group.ids))


def _neighbour_pairs(units: Floats, threshold: float) -> list[list[int]]:
    """Pairs of neighbours with at least this cosine, the most similar first."""
    z = torch.from_numpy(units)
    firsts, seconds, values = [], [], []
    for rows, candidates in _blocks(z):
        cosine = z[rows] @ z[candidates].T
        cosine.masked_fill_(rows.unsqueeze(1) == candidates, -2)
        near = cosine.topk(min(_N_NEIGHBOURS, len(candidates)))
        row, column = (near.values >= threshold).nonzero(as_tuple=True)
        firsts.append(rows[row])
        seconds.append(candidates[near.indices[row, column]])
        values.append(near.values[row, column])
    if not firsts:
        return []
    ends = torch.stack([torch.cat(firsts), torch.cat(seconds)], 1).sort(1).values.numpy()
    cosines = torch.cat(values).numpy()
    order = np.lexsort((ends[:, 1], ends[:, 0], -cosines))
    _, first = np.unique(ends[order], axis=0, return_index=True)
    pairs: list[list[int]] = ends[order[np.sort(first)]].tolist()
    return pairs


def _blocks(z: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Numbers of some samples and of the candidates for their neighbours, until all have come."""
    if len(z) <= _MOST_SEARCHED:
        everyone = torch.arange(len(z))
        for rows in everyone.split(max(1, _BLOCK // max(1, len(z)))):
            if len(rows):
                yield rows, everyone
        return
    cells = group_samples(z, _N_NEIGHBOURS)
    for cell in range(len(cells.near)):
        candidates = cells.candidates(cell, _CANDIDATES)
        members = cells.order[cells.edges[cell] : cells.edges[cell + 1]]
        for rows in members.split(_BLOCK // _CANDIDATES):
            yield rows, candidates


def _join_pairs(units: Floats, pairs: list[list[int]], threshold: float) -> list[list[int]]:
    """Join photos along pairs, most similar first, while all of a group resemble each other."""
    group_of: dict[int, list[int]] = {}
    for first, second in pairs:
        one = group_of.setdefault(first, [first])
        other = group_of.setdefault(second, [second])
        if one is other or len(one) + len(other) > LARGEST:
            continue
        if len(one) + len(other) > 2 and (units[one] @ units[other].T).min() < threshold:
            continue
        one += other
        group_of.update(dict.fromkeys(other, one))
    distinct = {id(group): sorted(group) for group in group_of.values() if len(group) > 1}
    return list(distinct.values())
