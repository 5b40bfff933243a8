"""What a user wishes for a whole run. Pure."""

from __future__ import annotations

from typing import Literal

from orchestrator.executors.base import Frozen

#: Who wished the end of a run whose time is over: the command that set the time.
TIME_OVER = "start --for"


class Control(Frozen):
    """A wish that every tick honours: `run`, `stop` (hand over first) or `stop-now`. The highest number counts.

    `until`: a `run` that `start --for` bounds; the first tick from then on (unix seconds) turns it into a `stop`.
    """

    number: int = 0
    wish: Literal["run", "stop", "stop-now"] = "run"
    at: float = 0.0
    by: str = ""
    grace_s: float = 0.0
    until: float | None = None

    def due(self, now: float, grace_s: float) -> Control:
        """What counts at `now`: the `stop` with `grace_s` that a wish becomes when its time is over, else this one."""
        if self.until is None or now < self.until:
            return self
        return Control(number=self.number + 1, wish="stop", at=now, by=TIME_OVER, grace_s=grace_s)
