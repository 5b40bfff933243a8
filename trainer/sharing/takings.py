"""How much each contributor gave to this slot, and what the slot says of itself to those who choose where to play.

What it says is one row of the curve `intake`, which goes wherever the slot's curves go::

    {"at": 1760086400.0, "takes": true, "over": false, "step": 120000, "steps": 9000, "rows": 2500,
     "slots": 4}

`steps` are the learner's own and `rows` those of others that it accepted, both of the last ten minutes. `takes` false:
it takes nothing. `over`: the training is complete, and nothing will be taken any more. `slots`: of its run, when its
job was submitted; those that wait in a queue have said nothing yet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from anchorleg.job import Job
from syncd import store

#: The curve's name.
INTAKE = "intake"
#: The row is written anew this often: often enough for jobs of minutes, 200 bytes to each laptop.
SAY_EVERY_S = 30.0
#: What counts as lately: longer than a hand-over, shorter than a job.
LATELY_S = 600.0


class Takings:
    """Of one slot, over all its attempts. Methods but `by_contributor` are for the ingester's thread.

    `clock`: unix seconds; `monotonic`: seconds.
    """

    def __init__(
        self, job: Job, *, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._job = job
        self._clock, self._monotonic = clock, monotonic
        self._shared = store.Shared(job.shared_dir)
        self._given: dict[str, store.Counts] | None = None
        self._rows = 0
        self._marks: deque[tuple[float, int, int]] = deque()
        self._say_at = float("-inf")

    @property
    def by_contributor(self) -> dict[str, dict[str, Any]]:
        """Name → segments and transitions that were accepted, and when the last segment was judged (unix seconds)."""
        given = self._given or {}
        most = sorted(given.items(), key=lambda item: -item[1].rows)
        return {
            who: {"segments": counts.accepted, "transitions": counts.rows, "last_at": round(counts.last_at, 1)}
            for who, counts in most
            if counts.accepted
        }

    def add(self, who: str, *, accepted: int, rows: int) -> None:
        """A round has accepted so many segments of `who`, with so many rows."""
        self._rows += rows
        before = (self._given or {}).get(who, store.Counts())
        more = store.Counts(accepted=accepted, rows=rows, last_at=self._clock())
        self._given = {**(self._given or {}), who: before.plus(more)}

    def look(self) -> None:
        """Read what the attempts before this one noted; once. Errors: OSError."""
        if self._given is None:
            self._given = {
                inbox.who: store.given_to(inbox.path, self._job.run_id, self._job.slot)
                for inbox in store.Inbox.all_of(self._shared)
            }

    def say(self, step: int, *, takes: bool) -> None:
        """Write the row, every `SAY_EVERY_S`. `step`: where the learner is. Errors: OSError."""
        now = self._monotonic()
        if now < self._say_at:
            return
        self._marks.append((now, step, self._rows))
        while len(self._marks) > 2 and now - self._marks[1][0] >= LATELY_S:
            self._marks.popleft()
        _, then, rows = self._marks[0]
        say(self._job, step, self._clock(), takes=takes, steps=step - then, rows=self._rows - rows)
        self._say_at = now + SAY_EVERY_S


def say(job: Job, step: int, at: float, *, takes: bool, over: bool = False, steps: int = 0, rows: int = 0) -> None:
    """Write the row of `job`'s slot. Errors: OSError."""
    row = {"at": round(at, 1), "takes": takes, "over": over, "step": step, "steps": steps, "rows": rows}
    row |= {"slots": job.slots}
    store.write_metrics(store.Shared(job.shared_dir).slot(job.run_id, job.slot), INTAKE, [row])


def say_over(job: Job, step: int, tell: Callable[[str], None]) -> None:
    """The training is complete: whoever plays for it may go. `tell`: told where that cannot be written."""
    if not job.accepts_contributions:
        return
    try:
        say(job, step, time.time(), takes=False, over=True)
    except OSError as error:
        tell(f"that the training is over cannot be written to {job.shared_dir} ({error.strerror})")
