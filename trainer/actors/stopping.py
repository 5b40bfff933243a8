"""What tells the actors to stop: a person, or the end of the job in which they play."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Protocol, Self

from anchorleg.job import Job


class Stopping(Protocol):
    """`asked`: whether to stop. Cheap; it is looked at before every step."""

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        ...


class Stop:
    """Ctrl-C and SIGTERM as a flag. Use it as a context, in the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:  # a second Ctrl-C: something hangs
            raise KeyboardInterrupt
        self.asked = True


class JobStop:
    """The job's own: its deadline, its signals, its hand-over file. The job listens already."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return

    @property
    def asked(self) -> bool:
        """Whether the job must hand over."""
        return self._job.hand_over_reason() is not None
