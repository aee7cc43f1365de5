"""Which process this is, and the few things processes say to each other."""

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
from infoshot.core.errors import DataError, InvalidArgumentError, LostProcessError


@dataclass(frozen=True)
class Ranks:
    """The own process among those that work on a job.

    ``device`` is where this process computes. The main process writes files and speaks.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def is_main(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Sum of a tensor over all processes."""
        if self.size > 1:
            values = values.to(self.device).clone()
            _add_up(values)
        return values

    def from_main(self, values: Tensor) -> Tensor:
        """What the main process has, in all of them; shapes must be the same everywhere."""
        return self.sum(values if self.is_main else torch.zeros_like(values))

    def main_says(self, yes: bool) -> bool:
        """Tell all processes what the main one found."""
        if self.size == 1:
            return yes
        return bool(self.from_main(torch.tensor([int(yes)])).item())

    def agree(self, what: str, text: str) -> None:
        """Raise ``DataError`` in all processes unless the same text is given in all of them."""
        if self.size == 1:
            return
        digest = torch.frombuffer(
            bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8
        )
        total = self.sum(digest.long())
        if not torch.equal(total, self.size * digest.long().to(total.device)):
            raise DataError(
                f"processes do not agree on {what}; do they all read the same, finished files?"
            )


ALONE = Ranks()


def _add_up(values: Tensor) -> None:
    """Sum over all processes, in place.

    Raises
    ------
    LostProcessError
        If one of them is not there any more.
    """
    try:
        dist.all_reduce(values)
        if values.is_cuda:
            torch.cuda.synchronize(values.device)
    except RuntimeError as error:
        raise LostProcessError(
            "another process of this run has ended; it says why itself, unless it was killed. The "
            "same command goes on from what was finished."
        ) from error


@contextmanager
def joined_ranks(device: str, environ: Mapping[str, str] = os.environ) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started; without it, the one process there is.

    Parameters
    ----------
    device
        ``cpu`` (over gloo), or ``cuda`` (over nccl; every process takes the GPU of its number).
    environ
        Where ``torchrun`` left its notes.
    """
    size = int(environ.get("WORLD_SIZE", "1"))
    if size == 1:
        checks.device(device)
        yield Ranks(device=device)
        return
    if device not in ("cpu", "cuda"):
        raise InvalidArgumentError(
            f"device must be 'cpu' or 'cuda' with several processes; got '{device}'."
        )
    own = f"cuda:{environ['LOCAL_RANK']}" if device == "cuda" else "cpu"
    checks.device(own)
    if device == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    with _stopped_in_words(dist.get_rank()):
        yield Ranks(dist.get_rank(), size, own)
    # Not after an exception: the others may be waiting for us, and would be waited for in turn.
    dist.destroy_process_group()


def leave_others(code: int) -> None:
    """End this process at once if it is one of several; else do nothing.

    After an exception the threads that talk to the others cannot be stopped in order, and an
    ordinary exit may abort in them.
    """
    if dist.is_available() and dist.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def _stopped_in_words(rank: int) -> Iterator[None]:
    """Say why this process ends when ``torchrun`` stops it, because another one has ended."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise LostProcessError(
            f"process {rank} was stopped, perhaps because another one has ended. The same command "
            "goes on from what was finished."
        )

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
