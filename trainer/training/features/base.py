"""What the loop asks of a feature of a training."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any


class Feature:
    """Something that a training does beside learning. The loop calls it between two vector steps, on rank 0 alone, and
    knows nothing else of it. None of it waits for the world outside or changes a number of the training.
    """

    def begin(self) -> None:
        """Once, before the first step, when it is decided which checkpoint the attempt goes on from."""

    def on_row(self, row: Mapping[str, Any]) -> None:
        """A row of metrics is complete."""

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        """A row of evaluations is complete; its step may be older than that of the newest row of metrics."""

    def before_save(self) -> None:
        """Write what must be on the disk before the present step's checkpoint is. Errors: OSError: none is saved."""

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out the sentences that wait for the user."""

    def end(self) -> None:
        """The attempt ends, for whatever reason. Bounded in time, and never raises."""


@cache
def silence(*threads: str) -> None:
    """Threads of a library, by their names or classes, print no traceback: what went wrong there is said elsewhere."""
    told = threading.excepthook

    def tell(args: threading.ExceptHookArgs) -> None:
        if not {args.thread.name if args.thread else "", type(args.thread).__name__} & {*threads}:
            told(args)

    threading.excepthook = tell
