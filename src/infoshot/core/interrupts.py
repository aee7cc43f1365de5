"""What an interrupt (Ctrl-C) does at each moment of a command.

While modules are imported it ends the process at once, with one line: nothing can be lost then, and
an exception in the middle of an import could appear as any other error. While a command runs it
raises ``KeyboardInterrupt``. Interrupts that the caller of the process ignores stay ignored.

This module is imported before the first interrupt can be handled, so it imports little itself.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time

TYPE_CHECKING = False  # not from typing, which takes longer to import than the rest together
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_EXIT_CODE = 130
_PAUSE = 0.01  # seconds until an interrupt that was dropped comes again


def end_at_once() -> None:
    """End the process at an interrupt, with one line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_exceptions() -> None:
    """Raise ``KeyboardInterrupt`` again where :func:`end_at_once` changed that.

    Python prints and drops an interrupt that comes while an object is freed. It is repeated then.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _repeat


def interrupt_on_sigterm() -> None:
    """Treat SIGTERM like an interrupt, unless the process handles or ignores it already."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def end_silently() -> None:
    """End the process at an interrupt, without a line: all work is done."""
    if signal.getsignal(signal.SIGINT) in (_end, signal.default_int_handler):
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Deferred:
    """A part of a command at whose end an interrupt is raised that came within it.

    Within code of other languages an interrupt may appear as any other error, and be taken for it.

    Examples
    --------
    >>> with Deferred():
    ...     done = "without an interrupt nothing changes"
    """

    def __enter__(self) -> None:
        self._came = False
        self._is_on = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            if self._is_on:
                signal.signal(signal.SIGINT, self._note)
        except ValueError:  # only the main thread handles signals
            self._is_on = False

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = True


def _end(number: int, frame: FrameType | None) -> None:
    sys.stderr.write("Interrupted: stopped.\n")
    sys.stderr.flush()
    os._exit(_EXIT_CODE)


def _repeat(dropped: Any) -> None:  # noqa: ANN401 - the type has no public name
    if dropped.exc_type is KeyboardInterrupt:
        _thread.start_new_thread(_interrupt_again, (_thread.get_ident(),))
    else:
        sys.__unraisablehook__(dropped)


def _interrupt_again(interrupted: int) -> None:
    time.sleep(_PAUSE)  # not while the dropped one is still handled
    if hasattr(signal, "pthread_kill"):  # a real signal, which also ends a call that waits
        signal.pthread_kill(interrupted, signal.SIGINT)
    else:
        _thread.interrupt_main()
