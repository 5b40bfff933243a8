"""The signals that ask a job to hand over, and what becomes of them in the processes that a program starts.

A child inherits an ignored signal (SIG_IGN), through exec too; a forked child inherits a handler. Either way
`terminate()` would end none of them, and a parent that waits for one would wait for ever. So a program answers these
signals with a handler, and the processes that it forks get the default of SIGTERM back.

Standard library only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` takes ten times as long, for making names of numbers
import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

#: The shim's wake-up, scancel's word to every process, and a person's.
HAND_OVER_SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)

_Handler = Callable[[int, FrameType | None], Any]

#: What this process answers them with; nothing before it does.
_handlers: list[_Handler] = []


def answer_hand_over(handler: _Handler) -> None:
    """`handler` takes each of them until the interpreter leaves, in place of one before it. From the main thread."""
    for number in HAND_OVER_SIGNALS:
        signal.signal(number, handler)
    if not _handlers:
        atexit.register(_ignore)
        os.register_at_fork(after_in_child=_give_back)
    _handlers[:] = [handler]


def answer_again() -> None:
    """Put back what somebody else's code has changed of `answer_hand_over` since: other handlers, also below Python,
    and signals that it has blocked. A microsecond; nothing where nobody has called that, or outside the main thread.
    """
    if not _handlers or threading.current_thread() is not threading.main_thread():
        return
    for number in HAND_OVER_SIGNALS:
        _signal.signal(number, _handlers[0])
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, HAND_OVER_SIGNALS)


def bear_hand_over() -> None:
    """Go on as if none of them came: it is another process's to hand over. From the main thread."""
    answer_hand_over(lambda _number, _frame: None)
    for number in HAND_OVER_SIGNALS:
        signal.siginterrupt(number, False)  # foreign code may not know of calls that are interrupted


def _give_back() -> None:
    # SIGTERM alone: Ctrl-C reaches a terminal's whole group, and the parent may need its children until it has saved.
    if signal.getsignal(signal.SIGTERM) in _handlers:  # what somebody else has set since then stays
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _ignore() -> None:
    # A leaving interpreter puts the default actions back, and a wake-up that comes just then would turn exit 75
    # into a death by signal.
    for number in HAND_OVER_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def python_path() -> dict[str, str]:
    """For a child's environment: it imports what this process does. `-P` keeps its own folder out of that."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
