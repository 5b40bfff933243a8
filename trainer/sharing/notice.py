"""What a slot notes of its contributors, and the notice that it gives to those who choose where to play.

Notes are in memory during a round, then in the inboxes, durably. A kill loses those of the round under way at most:
each file has a round whole or not at all, and what had been accepted before a kill is not counted again.

The notice is one row of the curve `intake`, which goes wherever the slot's curves go::

    {"at": 1760086400.0, "takes": true, "over": false, "step": 120000, "steps": 9000, "rows": 2500,
     "slots": 4, "full": false, "usable": 0.4286}

`steps` are the learner's own and `rows` those of others that it accepted, both of the last ten minutes. `takes` false:
it takes nothing. `full`: it has all that it can use for now; the server tells contributors (`syncd.shared.reception`).
`usable`: rows of others that it can use for each of its own. `over`: the training is complete, and takes no more.
`slots`: of its run, when its job was submitted; those that wait in a queue have said nothing yet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anchorleg.job import Job
from syncd import store
from trainer.buffers.contributed import MAX_SHARE
from trainer.buffers.experience import share_of_others
from trainer.config.settings import GroupSettings

#: The curve's name.
INTAKE = store.INTAKE
#: The row is written anew this often: often enough for jobs of minutes, 200 bytes to each laptop.
SAY_EVERY_S = 30.0
#: What counts as lately: longer than a hand-over, shorter than a job.
LATELY_S = 600.0
#: Rows of others that a slot can use for each of its own, where no other slot gives it any.
USABLE = MAX_SHARE / (1 - MAX_SHARE)
#: It must have come in at such a rate for so long before nobody else is needed: a few segments are no flood.
FULL_AFTER_S = 300.0
#: And more is wanted again below this part of it: the answer does not change with every segment.
WANTED_AGAIN = 0.8


def usable_of(group: GroupSettings, slots: int) -> float:
    """As `USABLE`, where the `slots` of a run give each other rows: those come first, and own rows are one half."""
    of_peers = group.share if group.rows and slots > 1 else 0.0
    of_others = (1 - of_peers) * share_of_others(of_peers)
    return of_others / (1 - of_peers - of_others)


def is_full(rows: int, steps: int, span_s: float, *, was_full: bool, usable: float = USABLE) -> bool:
    """Whether a slot that took `rows` of others in `steps` of its own, in the last `span_s` seconds, has all that it
    can use: `usable` for each step. One that made no step uses nothing.
    """
    if not usable:
        return True
    most = usable * steps
    return rows > WANTED_AGAIN * most if was_full else span_s >= FULL_AFTER_S and rows > most


#: (who, act): whether it was done in the inbox of `who`.
Try = Callable[[str, Callable[[], object]], bool]


class ContributionNotice:
    """Of one slot, over all its attempts. Methods but `by_contributor` are for the reader's thread.

    `clock`: unix seconds; `monotonic`: seconds; `usable`: see `usable_of`.
    """

    def __init__(
        self,
        job: Job,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        usable: float = USABLE,
    ) -> None:
        self._job, self._usable = job, usable
        self._clock, self._monotonic = clock, monotonic
        self._shared = store.Shared(job.shared_dir)
        self._given: dict[str, store.Counts] | None = None
        self._notes: dict[str, store.Counts] = {}
        self._terms: store.Terms | None = None
        self._rows = 0
        self._marks: deque[tuple[float, int, int]] = deque()
        self._say_at = float("-inf")
        self._is_full = False

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

    def look(self) -> None:
        """Read what the attempts before this one noted, and say the owner's terms; once. Errors: OSError."""
        if self._given is None:
            self._given = {
                inbox.who: store.given_to(inbox.path, self._job.run_id, self._job.slot)
                for inbox in store.Inbox.all_of(self._shared)
            }
        if self._terms is None and self._job.accepts_contributions:
            terms = store.Terms.model_validate(self._job.terms)
            store.set_terms(self._shared, self._job.run_id, terms)
            self._terms = terms

    def note(self, who: str, *, rows: int = 0, **counts: Any) -> None:
        """This belongs to the counts of `who`: see `store.Counts`."""
        now = self._clock()
        more = store.Counts(last_at=now, rows=rows, days={str(store.day_of(now)): rows} if rows else {}, **counts)
        self._notes[who] = self._notes.get(who, store.Counts()).plus(more)

    def write(self, attempt: Try) -> None:
        """Add the round to the contributors' counts; what could not be written is added to the next."""
        for who, counts in list(self._notes.items()):
            write = partial(store.Inbox.of(self._shared, who).note, self._job.run_id, self._job.slot, counts)
            if attempt(who, write):
                del self._notes[who]
                self._rows += counts.rows
                before = (self._given or {}).get(who, store.Counts())
                self._given = {**(self._given or {}), who: before.plus(counts)}

    def take_back(self, inbox: store.Inbox) -> None:
        """`inbox` brought a lie: nothing that this slot counted of its sender is to its credit. Errors: OSError."""
        noted = self._notes.get(inbox.who, store.Counts())
        store.take_back(inbox.path, f"{self._job.run_id}.{self._job.slot}", noted)
        self._notes.pop(inbox.who, None)

    def is_spent(self, inbox: store.Inbox) -> bool:
        """Whether its sender has given what one may give a day: what waits stays. Errors: OSError."""
        most = self._terms.rows_per_day if self._terms is not None else None
        if most is None:
            return False
        noted = self._notes.get(inbox.who, store.Counts()).rows
        return noted >= most or store.spent(inbox, self._job.run_id, most - noted, self._clock()) is not None

    def say(self, step: int) -> None:
        """Write the row, every `SAY_EVERY_S`. `step`: where the learner is. Errors: OSError."""
        now = self._monotonic()
        if now < self._say_at:
            return
        self._marks.append((now, step, self._rows))
        while len(self._marks) > 2 and now - self._marks[1][0] >= LATELY_S:
            self._marks.popleft()
        since, then, rows = self._marks[0]
        lately, steps = self._rows - rows, step - then
        self._is_full = is_full(lately, steps, now - since, was_full=self._is_full, usable=self._usable)
        row = {"takes": True, "steps": steps, "rows": lately, "full": self._is_full, "usable": round(self._usable, 4)}
        write_notice(self._job, step, self._clock(), row)
        self._say_at = now + SAY_EVERY_S


def write_notice(job: Job, step: int, at: float, said: Mapping[str, Any]) -> None:
    """Write the row of `job`'s slot: `said`, where it is not nothing. Errors: OSError."""
    row = {"at": round(at, 1), "takes": False, "over": False, "step": step, "steps": 0, "rows": 0}
    row |= {"slots": job.slots, "full": False, "usable": round(USABLE, 4), **said}
    store.write_metrics(store.Shared(job.shared_dir).slot(job.run_id, job.slot), INTAKE, [row])


def say_none(job: Job, step: int, tell: Callable[[str], None], *, over: bool) -> None:
    """Nothing is taken: the training is `over`, so actors that play for it may end; or it cannot learn from experience
    of others, whatever its owner wishes. `tell`: told where that cannot be written.
    """
    if not job.accepts_contributions:
        return
    try:
        write_notice(job, step, time.time(), {"over": over})
    except OSError as error:
        tell(f"the notice that no experience is accepted cannot be written to {job.shared_dir} ({error.strerror})")
