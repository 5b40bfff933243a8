"""Contributors whose rows must leave the ring: what the ingester's thread finds, and the loop does at a barrier.

That something was not true is written down (`syncd.shared.holds`) before anything is done about it, and stays until
two checkpoints are without the rows: a job may end, or be killed, before its loop comes to it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from anchorleg.job import Job
from syncd import store
from trainer.sharing.athand import AtHand, Ready


class Removals:
    """Of one slot. `next`, `later` and `done` are for the loop, the rest is for the ingester's thread, whose methods
    raise OSError.
    """

    def __init__(self, job: Job, at_hand: AtHand, clock: Callable[[], float] = time.time) -> None:
        self._at_hand, self._clock = at_hand, clock
        self._waiting: deque[str] = deque()
        self._given_back: deque[Ready] = deque()
        self._done: deque[tuple[str, float]] = deque()
        self._asked: set[str] = set()
        self._mark = partial(store.mark_untrue, run_id=job.run_id, slot=job.slot)
        self._is_marked = partial(store.found_untrue, run_id=job.run_id, slot=job.slot)
        self._clear = partial(store.clear_untrue, run_id=job.run_id, slot=job.slot)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self) -> str | None:
        """Whose rows must leave now."""
        if not self._waiting:
            return None
        who = self._waiting.popleft()
        self._given_back.extend(self._at_hand.remove(who))  # put back after what waited had left
        return who

    def later(self, who: str) -> None:
        """The rows of `who` could not be taken out now."""
        self._waiting.append(who)

    def done(self, who: str, at: float) -> None:
        """Two checkpoints are without the rows that `who` had in the ring at `at` (unix seconds)."""
        self._done.append((who, at))

    def begin(self, who: str) -> list[Ready]:
        """The rows of `who` must leave. Returns what was at hand of them."""
        lost = self._at_hand.remove(who)  # first: what the loop takes after a removal stays
        self._waiting.append(who)
        return lost

    def write_down(self, inbox: store.Inbox) -> None:
        """What came by `inbox` was not true."""
        self._mark(inbox.path, now=self._clock())

    def is_left(self, inbox: store.Inbox) -> bool:
        """Whether an attempt before found so, and the rows may still be there. True at the first call alone."""
        if inbox.who in self._asked:
            return False
        is_left = self._is_marked(inbox.path)
        self._asked.add(inbox.who)
        return is_left

    def look(self, inbox: store.Inbox) -> list[Ready]:
        """Forget what is done. Returns what the loop gave back after it had to leave."""
        for one in [one for one in self._done if one[0] == inbox.who]:
            self._clear(inbox.path, before=one[1])
            self._done.remove(one)
        back = [one for one in self._given_back if one.who == inbox.who]
        for ready in back:
            self._given_back.remove(ready)
        return back
