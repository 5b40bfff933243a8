"""Simulated time: one true clock, a queue of what will happen, and wall clocks that people and daemons set."""

from __future__ import annotations

import heapq
from collections.abc import Callable

Action = Callable[[], None]


class Timeline:
    """What happens when. `now`: true seconds, which only grow. `story`: one line per thing worth telling."""

    def __init__(self, start: float, *, remember: int = 30) -> None:
        self.now = start
        self.start = start
        self.remember = remember
        self.story: list[str] = []
        self._queue: list[tuple[float, int, Action]] = []
        self._serial = 0

    def at(self, time: float, action: Action) -> None:
        """Do `action` at `time`; at once where that is past."""
        self._serial += 1
        heapq.heappush(self._queue, (max(time, self.now), self._serial, action))

    def after(self, delay_s: float, action: Action) -> None:
        """Do `action` in `delay_s` seconds."""
        self.at(self.now + delay_s, action)

    def run_until(self, time: float) -> None:
        """Let everything up to `time` happen, in its order."""
        queue = self._queue
        while queue and queue[0][0] <= time:
            when, _, action = heapq.heappop(queue)
            self.now = max(self.now, when)
            action()
        self.now = max(self.now, time)

    def tell(self, line: str) -> None:
        """Remember a line for whoever reads the story of a failure."""
        passed = self.now - self.start
        days, rest = divmod(passed, 86_400)
        hours, rest = divmod(rest, 3_600)
        self.story.append(f"day {days:.0f} {hours:02.0f}:{rest // 60:02.0f}:{rest % 60:04.1f}  {line}")
        if self.remember and len(self.story) > 50 * self.remember:
            del self.story[: -self.remember]

    def last_lines(self) -> list[str]:
        """The end of the story."""
        return self.story[-self.remember :] if self.remember else self.story


class WallClock:
    """What one machine believes the time to be. `offset_s`: how far it is off; steps change it."""

    def __init__(self, timeline: Timeline, offset_s: float = 0.0) -> None:
        self._timeline = timeline
        self.offset_s = offset_s

    def __call__(self) -> float:
        return self._timeline.now + self.offset_s
