"""Classification of queries in chunks, where every query needs a large intermediate tensor."""

from collections.abc import Callable

import torch
from torch import Tensor

_MOST_VALUES = 2**26  # of one intermediate tensor; 256 MB in float32


def map_queries(
    score: Callable[[Tensor], Tensor], z_qry: Tensor, n_values: int, *, whole: bool = False
) -> Tensor:
    """Apply ``score`` to chunks of the queries and concatenate the results.

    Parameters
    ----------
    score
        Takes some queries of every task, and returns a tensor whose first axes are task and query.
    z_qry
        Queries, shape ``(task, query, ...)``.
    n_values
        Size of the largest intermediate tensor for one query of one task.
    whole
        Use one chunk, for batch normalisation over all queries during training.
    """
    n_queries = max(1, _MOST_VALUES // (len(z_qry) * n_values))
    if whole or n_queries >= z_qry.shape[1]:
        return score(z_qry)
    return torch.cat([score(chunk) for chunk in z_qry.split(n_queries, dim=1)], dim=1)
