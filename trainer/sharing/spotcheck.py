"""Which segments are done again before their rows enter, and what comes of it.

Of each contributor the first `FIRST` episodes that an attempt judges, whole or as many beginnings as have their rows,
then a share that nobody can foresee. It falls as more rows of its sender have passed (BOINC's adaptive replication),
down to the run's own (`contribution_check_share`); it is five times as much for a contributor who was held lately, and
less where so much is sent that checking would cost more than `ROWS_A_SECOND`, but never less than `LEAST_SHARE`. So a
lie enters at times; as soon as one is found, all that its sender ever gave leaves the ring again.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainer.sharing.segment import Segment

#: Episodes: enough to show that somebody's machine and version do the same as ours, a second of one core.
FIRST = 20
#: How much more often a contributor who was held lately is checked.
IN_DOUBT = 5.0
#: What checking may take while all goes well: 2 % of a core that steps 10,000 rows a second.
ROWS_A_SECOND = 200.0
LEAST_SHARE = 0.02
#: The rate of what comes in is taken over this long.
RATE_S = 60.0


@dataclass(frozen=True)
class Redone:
    """What came out. `gap`: the largest difference of a number; 0.0 where every bit is the same. `rows`: steps done.

    `wrong`: one sentence where it is not what was sent, else empty.
    """

    gap: float
    rows: int
    wrong: str = ""


class Redo(Protocol):
    """What does a segment again: `trainer.sharing.resimulation.Resimulator`."""

    def redo(self, segment: Segment) -> Redone:
        """Do `segment` again."""

    def close(self) -> None:
        """Free what it holds."""


def share(wanted: float, passed: float, rows_a_second: float, *, in_doubt: bool) -> float:
    """The part of a contributor's segments that is checked after the rows of `passed` episodes came out as they were
    sent, where `rows_a_second` come in from all. Pure.

    The way from the first ones to `wanted` is gone at any rate: it costs FIRST * ln(1 / wanted) checks, a few seconds.
    """
    affordable = max(LEAST_SHARE, ROWS_A_SECOND / max(rows_a_second, 1e-9))
    unproven = FIRST / max(passed, FIRST)
    usual = min(wanted, affordable) * (IN_DOUBT if in_doubt else 1.0)
    return min(1.0, max(usual, unproven if unproven > wanted > 0 else 0.0))


class SpotChecks:
    """Checks for one slot. `wanted`: the share of the segments to do again. `chance`: uniform in [0, 1), secret."""

    def __init__(
        self,
        make: Callable[[], Redo | None],
        wanted: float,
        *,
        chance: Callable[[], float] = random.SystemRandom().random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._wanted = wanted
        self._chance, self._monotonic = chance, monotonic
        self._redo: Redo | None = None
        self._is_made = False
        self._passed: dict[str, int] = {}  # rows
        self._came: deque[tuple[float, int]] = deque()
        self._rows = 0

    @property
    def can_repeat(self) -> bool:
        """Whether this run's environments can be done again at all. Makes them ready when asked first."""
        if not self._is_made:
            self._redo, self._is_made = self._make(), True
        return self._redo is not None

    def check(self, who: str, segment: Segment, *, in_doubt: bool) -> Redone | None:
        """What came out where `segment` of `who` was done again; None where it was not its turn.

        A sender who fails begins anew: its next segments are all checked.
        """
        rate = self._rate(segment.steps)
        passed = self._passed.get(who, 0)
        episodes = passed / segment.horizon
        if episodes >= FIRST and self._chance() >= share(self._wanted, episodes, rate, in_doubt=in_doubt):
            return None
        if not self.can_repeat or self._redo is None:
            return None
        done = self._redo.redo(segment)
        self._passed[who] = 0 if done.wrong else passed + segment.steps
        return done

    def close(self) -> None:
        """Free the environments."""
        if self._redo is not None:
            self._redo.close()
            self._redo = None

    def _rate(self, rows: int) -> float:
        """Rows a second that came in lately, these among them."""
        now = self._monotonic()
        self._came.append((now, rows))
        self._rows += rows
        while now - self._came[0][0] > RATE_S:
            self._rows -= self._came.popleft()[1]
        return self._rows / RATE_S
