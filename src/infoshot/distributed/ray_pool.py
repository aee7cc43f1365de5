"""Independent pieces of work on the workers of a Ray cluster; workers that end are replaced.

A piece is done by one actor, which keeps what all pieces need, such as an encoder. Ray's own pools
wait for actors that cannot be restarted while no node has room for them: then a lost node would
stop the job at its last piece. Here the other workers take over.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from infoshot.core.errors import LostProcessError
from infoshot.distributed.ray_cluster import (
    Workers,
    current_folder,
    enter_folder,
    first_line,
)

Item = TypeVar("Item")
Result = TypeVar("Result")
_MOST_LOSSES = 3  # workers that may end at one piece, or before their first


def map_on_workers(
    ray: Any,  # noqa: ANN401 - the module
    make: Callable[[], Callable[[Item], Result]],
    items: Sequence[Item],
    workers: Workers,
) -> Iterator[tuple[int, Result]]:
    """Apply what ``make`` returns to every item; yield numbers and results as they are ready.

    Parameters
    ----------
    ray
        The module, connected to a cluster.
    make
        Called once in each worker.
    items
        What to work on. A worker that ends loses the results of one item, which is then done again.
    workers
        How many to start; those that no node can take start later, or never.

    Raises
    ------
    LostProcessError
        If several workers end at the same item.
    """
    pool = _Pool(ray, make, items, workers)
    try:
        for _ in range(min(workers.number, len(items))):
            pool.start()
        n_left = len(items)
        while n_left:
            for done in pool.wait():
                n_left -= 1
                yield done
    finally:
        pool.end()


class _Worker(Generic[Item, Result]):
    """One process of the pool."""

    def __init__(self, make: Callable[[], Callable[[Item], Result]], folder: str) -> None:
        self._make, self._folder = make, folder

    def open(self) -> None:
        """Prepare for the first item; errors are raised here."""
        enter_folder(self._folder)
        self._work = self._make()

    def run(self, item: Item) -> Result:
        """Do the work of one item."""
        return self._work(item)


class _Pool(Generic[Item, Result]):
    """The workers, what each is doing, and what is left to do."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - the module
        make: Callable[[], Callable[[Item], Result]],
        items: Sequence[Item],
        workers: Workers,
    ) -> None:
        self._ray, self._items = ray, items
        self._actor = ray.remote(**workers.options)(_Worker)
        self._make = ray.put(make)
        self._todo = deque(range(len(items)))
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, int | None]] = {}  # no number: it is being opened
        self._lost: Counter[int | None] = Counter()

    def start(self) -> None:
        """Start a worker; it gets work when it is ready."""
        actor = self._actor.remote(self._make, current_folder())
        self._busy[actor.open.remote()] = actor, None

    def wait(self) -> Iterator[tuple[int, Result]]:
        """Wait for one worker, give it more work, and yield its result, if any."""
        (ended,), _ = self._ray.wait(list(self._busy), num_returns=1)
        actor, number = self._busy.pop(ended)
        try:
            result = self._ray.get(ended)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            self._replace(actor, number, error)
        else:
            if number is not None:
                self._lost.pop(None, None)
                yield number, result
            self._idle.append(actor)
        while self._idle and self._todo:
            actor, number = self._idle.pop(), self._todo.popleft()
            self._busy[actor.run.remote(self._items[number])] = actor, number

    def end(self) -> None:
        """End all workers."""
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)

    def _replace(self, actor: Any, number: int | None, error: Exception) -> None:  # noqa: ANN401
        """Start another worker for one that has ended, and let others do what it worked on."""
        self._lost[number] += 1
        if self._lost[number] > _MOST_LOSSES:
            raise LostProcessError(
                f"{self._lost[number]} workers of the Ray cluster have ended at the same piece of "
                f"work ({first_line(error)})."
            ) from error
        if number is not None:
            self._todo.appendleft(number)
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)
        self.start()
