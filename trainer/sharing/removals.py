"""Contributors whose rows must leave the ring: what the reader's thread finds, and the loop does at a barrier.

That something was not true is written down (`syncd.shared.holds`) before anything is done about it, and then what
checkpoint is the first without the rows: a job may end, or be killed, before its loop comes to it, and a later one may
go on from an older checkpoint.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Sequence

from anchorleg.job import Job
from syncd import store
from trainer.sharing.reader import Ready, ReadySegments
from trainer.sharing.segment import Reason

#: The reason in a word, and in a sentence.
Why = tuple[Reason, str]
#: Of what else somebody sent who lied.
WITH_A_LIE: Why = (Reason.NOT_REPRODUCED, "another segment of its sender was not reproduced")


class Removals:
    """Of one slot. `next`, `later`, `done` and `put_back` are for the loop; the rest is for the reader's thread, and
    raises OSError. `start`: (attempt, step) of the checkpoint that was gone on from. `why`: of whom rows had to leave.
    """

    def __init__(self, job: Job, ready: ReadySegments, start: tuple[int, int] | None) -> None:
        self._job, self._ready, self._start = job, ready, start
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        self._given_back: deque[Ready] = deque()
        self._done: deque[tuple[str, int]] = deque()
        self._open: Counter[str] = Counter()
        self._asked: set[str] = set()
        self.why: dict[str, Why] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self) -> str | None:
        """Whose rows must leave now."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def later(self, who: str) -> None:
        """The rows of `who` could not be taken out now."""
        with self._lock:
            self._waiting.appendleft(who)

    def done(self, who: str, step: int) -> None:
        """The rows of `who` left at the barrier of `step`."""
        self._done.append((who, step))

    def put_back(self, taken: Sequence[Ready]) -> None:
        """These could not be used now: they wait again, but for those of whom rows must leave."""
        with self._lock:
            leaving = set(self._waiting)
            self._ready.put_back([one for one in taken if one.who not in leaving])
            self._given_back.extend(one for one in taken if one.who in leaving)

    def begin(self, who: str, why: Why) -> list[Ready]:
        """The rows of `who` must leave. Returns what was ready of them."""
        with self._lock:
            self._waiting.append(who)
            self._open[who] += 1
            self.why[who] = why
            return self._ready.remove(who)

    def write_down(self, inbox: store.Inbox) -> None:
        """What came by `inbox` was not true. On a full disk only this attempt knows."""
        with contextlib.suppress(OSError):
            store.mark_untrue(inbox.path, self._job.run_id, self._job.slot)

    def is_left(self, inbox: store.Inbox) -> bool:
        """Whether an attempt before found so, and the rows may still be there. True at the first call alone."""
        if inbox.who in self._asked:
            return False
        is_left = store.found_untrue(inbox.path, self._job.run_id, self._job.slot, start=self._start)
        self._asked.add(inbox.who)
        return is_left

    def look(self, inbox: store.Inbox) -> list[Ready]:
        """Write down what is done. Returns what the loop gave back after it had to leave."""
        who = inbox.who
        for step in [step for whose, step in list(self._done) if whose == who]:
            if self._open[who] <= 1:  # else there is something newer that is not done
                store.note_removed(inbox.path, self._job.run_id, self._job.slot, attempt=self._job.attempt, step=step)
            self._open[who] -= 1
            self._done.remove((who, step))
        back = [one for one in list(self._given_back) if one.who == who]
        for one in back:
            self._given_back.remove(one)
        return back
