"""Somebody else's code in this process, an environment's: what it may not keep changed, and how long it may take.

In a worker process the pool does the second (`trainer.envs.workers`), and there are no nets that the first could harm.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from anchorleg.signals import answer_again
from trainer.errors import EnvironmentFailedError, TrainerError

#: For closing the environments of a process once nothing else is left to do.
CLOSE_S = 5.0
#: Loaded where nets are: what is torch's elsewhere is the environment's own business.
_NETS = "trainer.nets.policy"
#: What of torch nets depend on: how it is asked for, and set.
_OF_TORCH = (
    ("get_default_dtype", "set_default_dtype"),
    ("is_grad_enabled", "set_grad_enabled"),
    ("get_num_threads", "set_num_threads"),
)

_log = logging.getLogger(__name__)
#: The exit code of this process, once all that it leaves is durable.
_decided: list[int] = []


def decide(code: int) -> None:
    """All is durable: whatever environments do from here on, this process ends with `code`."""
    _decided[:] = [code]


def is_decided() -> bool:
    """Whether all is durable."""
    return bool(_decided)


class Settled:
    """A block of foreign code, named `who`: the signals of a hand-over are answered behind it as before it, and torch
    is as it was. What was changed is put back and told once. 4 µs.
    """

    def __init__(self, who: str) -> None:
        self._who = who
        self._before: list[Any] = []

    def __enter__(self) -> None:
        torch = sys.modules["torch"] if _NETS in sys.modules else None
        self._before = [getattr(torch, ask)() for ask, _ in _OF_TORCH] if torch else []

    def __exit__(self, *_error: object) -> None:
        answer_again()
        for (ask, put), before in zip(_OF_TORCH, self._before, strict=False):
            torch = sys.modules["torch"]
            if (now := getattr(torch, ask)()) != before:
                getattr(torch, put)(before)
                _tell(self._who, f"torch.{put}({now})", str(before))


@cache
def _tell(who: str, call: str, before: str) -> None:
    """Once a process."""
    words = "%s has called %s in the trainer's process. Networks depend on this setting, which is reset to %s. If "
    _log.warning(words + "the environment needs it, give that its own process (num_workers: 1)", who, call, before)


@contextlib.contextmanager
def limited(seconds: float, sentence: str) -> Iterator[Callable[[], None]]:
    """End this process, with its stacks and then `sentence` on standard error, where the block takes so long, or any
    part of it between two calls of what it is given. The exit code is the one that was decided, else that of an error
    that is on its way out, else an environment's.
    """
    error, over, told = sys.exc_info()[1], threading.Event(), [time.monotonic()]

    def watch() -> None:
        while (left_s := told[0] + seconds - time.monotonic()) > 0:
            if over.wait(left_s):
                return
        faulthandler.dump_traceback()
        code = _decided[0] if _decided else EnvironmentFailedError.exit_code
        print(f"trainer: {sentence}", file=sys.stderr, flush=True)
        if isinstance(error, TrainerError):
            code = error.exit_code
            print(f"trainer: {error}", file=sys.stderr, flush=True)
        os._exit(code)

    def tell() -> None:
        told[0] = time.monotonic()

    with contextlib.suppress(RuntimeError):  # the system has no thread left: then nobody watches
        threading.Thread(target=watch, daemon=True, name="limit").start()
    try:
        yield tell
    finally:
        over.set()


def leave(code: int) -> None:
    """End this process with `code`: a thread, or a hook of the interpreter's end, that an environment left behind
    delays it by `CLOSE_S` at most. All that is to be kept is durable.
    """
    last = threading.Timer(CLOSE_S, os._exit, [code])
    last.daemon = True
    with contextlib.suppress(RuntimeError):
        last.start()
    sys.exit(code)
