"""Which process this is, and the few things processes say to each other."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from infoshot import checks
from infoshot.errors import DataError, InvalidArgumentError


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
            dist.all_reduce(values)
        return values

    def main_says(self, yes: bool) -> bool:
        """Tell all processes what the main one found."""
        if self.size == 1:
            return yes
        answer = torch.tensor([int(yes and self.is_main)], device=self.device)
        dist.all_reduce(answer)
        return bool(answer.item())

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
    yield Ranks(dist.get_rank(), size, own)
    # Not after an exception: the others may be waiting for us, and would be waited for in turn.
    dist.destroy_process_group()
