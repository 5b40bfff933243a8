"""What one slot's learner notes of each contributor: in memory during a round, then in the inboxes, durably.

A kill loses the notes of the round under way at most: each file has a round whole or not at all, and what had been
accepted before a kill is not counted again when it is judged anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from anchorleg.job import Job
from syncd import store
from trainer.sharing.takings import USABLE, Takings

#: (who, act): whether it was done in the inbox of `who`.
Try = Callable[[str, Callable[[], object]], bool]


class SlotNotes:
    """The notes of one slot, for the ingester's thread. `clock`: unix seconds; `usable`: as `Takings` has it."""

    def __init__(self, job: Job, clock: Callable[[], float], usable: float = USABLE) -> None:
        self.takings = Takings(job, clock=clock, usable=usable)
        self._job, self._clock = job, clock
        self._shared = store.Shared(job.shared_dir)
        self._notes: dict[str, store.Counts] = {}
        self._terms: store.Terms | None = None

    def look(self) -> None:
        """Read what the attempts before this one noted, and say the owner's terms; once. Errors: OSError."""
        self.takings.look()
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
                self.takings.add(who, accepted=counts.accepted, rows=counts.rows)

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
