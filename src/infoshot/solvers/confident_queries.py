r"""The most confident queries join the support with their predicted labels.

After a first classification the queries with the largest probabilities count as labelled samples,
and the class representations are computed again. Round :math:`r = 1, 2, \ldots` starts from the
original support each time and adds :math:`r \lfloor s |Q| \rfloor` queries, chosen and labelled by
the classification of the round before. The original takes two rounds with a share of
:math:`s = 35 / 75`: 35, then 70 of 75 queries. Nothing is learned, and no class balance is imposed.

What differs from the original: confidence is the largest probability of a query, where the original
compares the largest scaled cosines, which are not normalised over the classes.

Reference: R. Hou, H. Chang, B. Ma, S. Shan, X. Chen. Cross Attention Network for Few-shot
Classification. NeurIPS 2019. Its comparison also has matching and prototypical networks in this
form.
"""

import torch
from torch import Tensor

N_ROUNDS, SHARE = 2, 35 / 75  # published


def most_confident(log_p: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Choose the queries whose most probable class has the largest probability.

    The order is that of the log-probability of all other classes together, the smallest first. It
    is the same order, but certain predictions, whose probabilities all round to 1, keep theirs.

    Parameters
    ----------
    log_p
        Log-probabilities of the queries, shape ``(task, query, class)``.
    n
        How many to choose, at most all.

    Returns
    -------
    Their positions, most confident first, ties by position, and their most probable classes, shapes
    ``(task, n)``.

    Examples
    --------
    >>> p = torch.tensor([[[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]])
    >>> most_confident(p.log(), 2)
    (tensor([[0, 2]]), tensor([[0, 1]]))
    """
    label = log_p.argmax(-1)
    others = log_p.scatter(-1, label.unsqueeze(-1), -torch.inf).logsumexp(-1)
    chosen = others.argsort(dim=1, stable=True)[:, :n]
    return chosen, label.gather(1, chosen)


def add_most_confident(
    z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, log_p: Tensor, n: int
) -> tuple[Tensor, Tensor]:
    """Append the ``n`` most confident queries and their labels to the support.

    Samples are vectors or anything else with the axes ``(task, sample, ...)``.
    """
    chosen, label = most_confident(log_p, n)
    tasks = torch.arange(len(chosen), device=chosen.device).unsqueeze(-1)
    return torch.cat((z_sup, z_qry[tasks, chosen]), dim=1), torch.cat((y_sup, label), dim=1)


def queries_of_round(n_qry: int, share: float, number: int) -> int:
    """Count the queries that join in a round, counted from 1.

    Examples
    --------
    >>> [queries_of_round(75, SHARE, number) for number in (1, 2, 3)]
    [35, 70, 75]
    """
    return min(n_qry, number * int(n_qry * share + 1e-9))  # 15 * (35 / 75) may round to 6.999...
