"""Old policies of a slot go while it learns, when its training is over, and where nobody learns any more."""

from __future__ import annotations

import time
from collections.abc import Callable

from anchorleg.job import Job
from syncd import store
from trainer.config.settings import GroupSettings

#: Old policies are cleared away this often; at one publication each 3 s that is 20 files a time.
COLLECT_EVERY_S = 60.0
#: Slots of the run that have published nothing for a day (dropped, halved, paused) are looked for this often.
OTHERS_EVERY_S, AWAY_S = 3_600.0, 86_400.0


class Clearing:
    """Of the slot of `job`, for one thread. `clock`: unix seconds; `monotonic`: seconds."""

    def __init__(
        self,
        job: Job,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = store.Shared(job.shared_dir).slot(job.run_id, job.slot)
        self._job, self._clock, self._monotonic = job, clock, monotonic
        self._next_at = self._others_at = float("-inf")
        self._told: set[str] = set()

    def when_due(self) -> list[str]:
        """Clear away where it is time to; a sentence for each thing that cannot be done since now. Errors: OSError."""
        now = self._monotonic()
        if now < self._next_at:
            return []
        self._next_at = now + COLLECT_EVERY_S
        troubles = self._collect(self._place)
        if now >= self._others_at:
            self._others_at = now + OTHERS_EVERY_S
            for place in store.Shared(self._job.shared_dir).slots():
                if place.run_id == self._job.run_id and place != self._place and self._is_left(place):
                    troubles += self._collect(place)
        news, self._told = sorted({*troubles} - self._told), {*troubles}
        return news

    def _collect(self, place: store.SlotPlace) -> list[str]:
        now = self._clock()
        return store.collect(place, now=now) + store.collect(place.averaged, now=now, keep=store.AVERAGES)

    def _is_left(self, place: store.SlotPlace) -> bool:
        newest = store.versions(place)[-1:]
        try:
            return bool(newest) and place.manifest(newest[0]).stat().st_mtime < self._clock() - AWAY_S
        except FileNotFoundError:
            return False


def clear_over(job: Job, group: GroupSettings, clock: Callable[[], float] = time.time) -> list[str]:
    """The training is complete, and no experience of older policies is judged any more: the newest alone stay. Returns
    a sentence for each thing that could not be done; nothing goes where a newer attempt has begun. Errors: OSError.

    Where slots give each other rows, another one that is behind may still judge what this one gave: they stay, until a
    learner of the run clears them away a day later.
    """
    if (group.rows and job.slots > 1) or job.superseded_by() is not None:
        return []
    place, now = store.Shared(job.shared_dir).slot(job.run_id, job.slot), clock()
    troubles = store.collect(place, now=now, keep=store.LEARNERS.last())
    return troubles + store.collect(place.averaged, now=now, keep=store.AVERAGES.last())
