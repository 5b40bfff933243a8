"""What a user wishes for a whole run. Pure."""

from __future__ import annotations

from typing import Literal

from orchestrator.executors.base import Frozen


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
