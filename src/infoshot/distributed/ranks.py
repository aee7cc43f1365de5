"""The processes of a job: which one this is, and what they exchange."""

import hashlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor

from infoshot.core import checks
from infoshot.core.environment import default_device
from infoshot.core.errors import DataError, InvalidArgumentError, LostProcessError
from infoshot.core.job_variables import check_job, job_rank, job_size, local_rank


@dataclass(frozen=True)
class Ranks:
    """The current process among the processes of a job.

    ``rank`` is its number, ``size`` the number of processes, ``device`` the device it computes on.
    The main process, of rank 0, writes the files and the messages.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Sum a tensor over all processes."""
        if self.size > 1:
            values = values.to(self.device).clone()
            _all_reduce(values)
        return values

    def broadcast(self, values: Tensor) -> Tensor:
        """Return the tensor of the main process in all processes; shapes must be equal."""
        return self.sum(values if self.is_main else torch.zeros_like(values))

    def broadcast_flag(self, flag: bool) -> bool:
        """Return the flag of the main process in all processes."""
        if self.size == 1:
            return flag
        return bool(self.broadcast(torch.tensor([int(flag)])).item())

    def check_same(self, what: str, text: str) -> None:
        """Raise ``DataError`` in all processes unless all of them pass the same text.

        Parameters
        ----------
        what
            What the text describes, for the message.
        text
            The text to compare.
        """
        if self.size == 1:
            return
        digest = torch.frombuffer(
            bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8
        )
        total = self.sum(digest.long())
        if not torch.equal(total, self.size * digest.long().to(total.device)):
            raise DataError(
                f"{what} differ between the processes; all of them must read the same files, and "
                "these must not change meanwhile."
            )


SINGLE_PROCESS = Ranks()


@contextmanager
def join_processes(
    device: str | None = None, environ: Mapping[str, str] = os.environ
) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started; without ``torchrun``, use this process only.

    Parameters
    ----------
    device
        Where to compute; ``None``: ``cuda`` if there is a GPU, else ``cpu``. Several processes
        accept ``cpu`` (they communicate through gloo) and ``cuda`` (through nccl; each process uses
        the GPU of its local rank).
    environ
        Environment variables, in which ``torchrun`` describes the job.

    Raises
    ------
    InvalidArgumentError
        If the device is not available, or a variable of the job is wrong or missing.
    """
    device = device or default_device()
    size = job_size(environ)
    if size > 1 and device not in ("cpu", "cuda"):
        raise InvalidArgumentError(
            f"device must be 'cpu' or 'cuda' with several processes; got '{device}'."
        )
    check_job(environ)
    if size == 1:
        checks.device(device)
        yield Ranks(device=device)
        return
    own = f"cuda:{local_rank(environ)}" if device == "cuda" else "cpu"
    checks.device(own)
    if device == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    with _raise_on_sigterm(dist.get_rank()):
        yield Ranks(dist.get_rank(), size, own)
    # Not after an exception: the other processes may wait for this one, and this one for them.
    dist.destroy_process_group()


def is_main_process(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is the main process of a ``torchrun``, or was started without ``torchrun``."""
    return job_rank(environ) == 0


def exit_if_distributed(code: int) -> None:
    """End this process at once if it is one of several; otherwise do nothing.

    After an exception the communication threads cannot be stopped in an orderly way, and an
    ordinary exit may crash in them.
    """
    if dist.is_available() and dist.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _all_reduce(values: Tensor) -> None:
    """Sum over all processes, in place; ``LostProcessError`` if one of them has ended."""
    try:
        dist.all_reduce(values)
        if values.is_cuda:
            torch.cuda.synchronize(values.device)
    except RuntimeError as error:
        raise LostProcessError(
            "another process of this run has ended; its own message gives the reason, unless it "
            "was killed. Rerun the command to resume."
        ) from error


@contextmanager
def _raise_on_sigterm(rank: int) -> Iterator[None]:
    """Raise ``LostProcessError`` when ``torchrun`` stops this process since another has ended."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise LostProcessError(
            f"process {rank} was stopped, probably because another process has ended. Rerun the "
            "command to resume."
        )

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
