"""The number of ways of systems that have weights of their own for each class of a task."""

from infoshot.core.errors import InvalidArgumentError


def check_n_way(n_way: int, n_trained: int) -> None:
    """Raise ``InvalidArgumentError`` for tasks with another number of classes than in training."""
    if n_way != n_trained:
        raise InvalidArgumentError(
            f"n_way must be {n_trained} for this system, which has weights for {n_trained} classes "
            f"of a task; got {n_way}."
        )
