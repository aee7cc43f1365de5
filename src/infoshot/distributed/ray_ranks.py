"""The processes of one job on a Ray cluster, described to each other as ``torchrun`` does.

They set up the process group themselves (``ranks.py``), so a job takes the same path as under
``torchrun``. If one of them ends, all are started again: the job must resume.
"""

import math
import os
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from infoshot.core.errors import InvalidArgumentError, LostProcessError
from infoshot.core.progress import Progress, ProgressLike, open_progress
from infoshot.distributed.ray_cluster import (
    RayEngine,
    Workers,
    choose_workers,
    current_folder,
    enter_folder,
    first_line,
    open_cluster,
    repeat_warnings,
)

Result = TypeVar("Result")
_MOST_STARTS = 4
_SECONDS_TO_END = 60.0  # for the others, after one process has ended
_SECONDS_TO_CHECK = 5.0  # between two looks at the nodes, while other jobs use them
_PAUSE = 1.0  # between two reports of progress; also until locks of killed processes are free


def run_on_ranks(
    work: Callable[..., Result],
    engine: RayEngine,
    *,
    device: str | None = None,
    progress: ProgressLike = None,
) -> Result:
    """Call ``work`` in every process of a job on a Ray cluster; return what the main one returns.

    Parameters
    ----------
    work
        Takes ``device`` and ``progress``. It joins the other processes, and resumes where an
        earlier call stopped.
    engine
        The cluster and the number of processes.
    device, progress
        Where to compute, and where the progress of the main process is shown.

    Raises
    ------
    InvalidArgumentError
        If processes would share a GPU.
    LostProcessError
        If processes ended again and again.
    """
    with open_cluster(engine) as ray, open_progress(progress) as bar:
        if engine.gpus_per_worker not in (None, 0, 1):
            raise InvalidArgumentError(
                "gpus_per_worker must be 0 or 1, since the processes of one solve cannot share a "
                f"GPU; got {engine.gpus_per_worker:g}."
            )
        choose = partial(choose_workers, ray, engine, device)
        for n_left in reversed(range(_MOST_STARTS)):
            job = _Job(ray, choose(), bar)
            try:
                job.wait_for_places(choose)
                return job.run(work)
            except LostProcessError:
                if not n_left:
                    raise
                bar.say("a process on the Ray cluster has ended; all of them start again.")
            finally:
                job.end()
            time.sleep(_PAUSE)
    raise AssertionError("the last start returns or raises")


class _Rank:
    """One process of the job."""

    def place(self) -> tuple[str, int]:
        """Return the address of this node, and a port that is free now."""
        import ray

        address = ray.util.get_node_ip_address()
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
            free.bind((address, 0))
            return address, free.getsockname()[1]

    def run(
        self, job: Mapping[str, str], folder: str, work: Callable[[], Result]
    ) -> tuple[Result, list[tuple[type[Warning], str]]]:
        """Call ``work`` as one process of a job; return its result and its warnings."""
        os.environ.update(job)
        enter_folder(folder)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", UserWarning)
            result = work()
        return result, [(each.category, str(each.message)) for each in found]


class _Reporter:
    """A callback for progress that sends what it gets to the user's process, once a second."""

    def __init__(self, queue: Any) -> None:  # noqa: ANN401 - Ray's queue
        self._queue, self._phase, self._last = queue, "", 0.0

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if phase != self._phase or done == total or now - self._last >= _PAUSE:
            from ray.exceptions import RayError

            with suppress(RayError):  # the node of the queue may be lost
                self._queue.put((phase, done, total))
            self._phase, self._last = phase, now


class _Job:
    """The processes of one start."""

    def __init__(self, ray: Any, workers: Workers, bar: Progress) -> None:  # noqa: ANN401
        from ray.util.placement_group import placement_group
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._ray, self._workers, self._bar = ray, workers, bar
        self._queue = Queue(actor_options={"num_cpus": 0})
        # All processes or none get their place: two jobs cannot wait for each other.
        self._group = placement_group([workers.resources] * workers.number)
        self._actors = [
            ray.remote(_Rank)
            .options(
                **workers.options,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, number),
            )
            .remote()
            for number in range(workers.number)
        ]

    def wait_for_places(self, choose: Callable[[], Workers]) -> None:
        """Wait until all processes have their place; ``choose`` says how many there could be."""
        while not self._group.wait(timeout_seconds=_SECONDS_TO_CHECK):
            if choose().number < self._workers.number:
                raise LostProcessError("a node of the Ray cluster has been lost.")

    def run(self, work: Callable[..., Result]) -> Result:
        """Call ``work`` in all processes, and wait for them."""
        try:
            address, port = self._ray.get(self._actors[0].place.remote())
        except self._ray.exceptions.RayError as error:
            raise _lost(error) from error
        job = {
            "WORLD_SIZE": str(len(self._actors)),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "LOCAL_RANK": "0",  # each sees its own GPU only
            "LOCAL_WORLD_SIZE": "1",
        }
        runs = []
        for rank, actor in enumerate(self._actors):
            report = False if rank else _Reporter(self._queue)
            own = partial(work, device=self._workers.device, progress=report)
            runs.append(actor.run.remote({**job, "RANK": str(rank)}, current_folder(), own))
        errors = self._wait(runs)
        if errors:
            raise min(errors, key=lambda error: isinstance(error, LostProcessError))
        result, found = self._ray.get(runs[0])
        repeat_warnings(found)
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        """End all processes, and give back their place."""
        from ray.util.placement_group import remove_placement_group

        with suppress(self._ray.exceptions.RayError):
            for actor in self._actors:
                self._ray.kill(actor)
            self._queue.shutdown(force=True)
        remove_placement_group(self._group)

    def _wait(self, runs: list[Any]) -> list[Exception]:
        """Wait until all processes have ended, and show progress; return their errors.

        After the first error the others get a minute, in which they give back their locks.
        """
        errors: list[Exception] = []
        deadline = math.inf
        while runs and time.monotonic() < deadline:
            ended, runs = self._ray.wait(runs, num_returns=1, timeout=_PAUSE)
            self._show()
            for run in ended:
                try:
                    self._ray.get(run)
                except self._ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    if isinstance(cause, self._ray.exceptions.RayError):
                        errors.insert(0, _lost(cause))  # the cause of those that others report
                    else:
                        errors.append(cause)
            if errors and deadline == math.inf:
                deadline = time.monotonic() + _SECONDS_TO_END
        return errors

    def _show(self) -> None:
        """Show what the main process has reported."""
        with suppress(self._ray.exceptions.RayError):
            for phase, done, total in self._queue.get_nowait_batch(self._queue.qsize()):
                if (phase, total) != (self._bar.phase, self._bar.total):
                    self._bar.start(phase, total, "rows")
                if done > self._bar.done:
                    self._bar.advance(done - self._bar.done)


def _lost(error: Exception) -> LostProcessError:
    return LostProcessError(f"a process on the Ray cluster has ended ({first_line(error)}).")
