"""The policies that a slot is known to have published: what a judge holds a segment's policies against."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence
from itertools import groupby

from syncd import store
from trainer.sharing.judge import step_of

Version = tuple[int, int, int]
#: So many may be known before the old ones are thinned out: a hundred kilobytes.
MANY = 1_000


class Versions:
    """Of the slot whose policies lie in `place`. `know` may be called from any thread, the rest from the judge's.

    `max_lag`: experience of policies that are further behind is not taken, so of these only the first and the last of
    each attempt are remembered: what lies between counts as the first (`trainer.sharing.judge.step_of`).
    """

    def __init__(self, place: store.SlotPlace, max_lag: int) -> None:
        self._place = place
        self._max_lag = max_lag
        self._known: list[Version] = []
        self._damaged: set[tuple[int, int]] = set()
        self._news: deque[Version] = deque()
        self._has_looked = False
        self._many = MANY
        self._step = 0

    def know(self, attempt: int, seq: int, step: int) -> None:
        """A policy of this slot is about to be seen."""
        self._news.append((attempt, seq, step))

    def sorted(self, step: int) -> Sequence[Version]:
        """(attempt, seq, step) of each, ascending; `step`: the learner's, from which it is told what is too old."""
        self._step = step
        while self._news:
            self._add(self._news.popleft())
        if len(self._known) > self._many:
            self._known = thinned(self._known, self._max_lag, step)
            self._many = max(MANY, 2 * len(self._known))
        return self._known

    def new_round(self) -> None:
        """`found_more` may read again."""
        self._has_looked = False

    def found_more(self) -> bool:
        """Read manifests that are not known yet, once a round at most; whether there was any. Errors: OSError."""
        if self._has_looked:
            return False
        self._has_looked = True
        found = False
        there = store.versions(self._place)
        self._damaged.intersection_update(there)
        for version in there:
            attempt, seq = version
            if (attempt, seq) in self._damaged or self._is_known(attempt, seq) or self._is_old(attempt, seq):
                continue
            try:
                manifest = store.read_manifest(self._place, version)
            except FileNotFoundError:
                continue  # cleared away meanwhile, or another node's that cannot be opened here yet
            except store.DamagedPolicyError:
                self._damaged.add((attempt, seq))  # of no use to anybody
                continue
            self._add((attempt, seq, manifest.step))
            found = True
        return found

    def _is_known(self, attempt: int, seq: int) -> bool:
        at = bisect.bisect_left(self._known, (attempt, seq))
        return any(one[:2] == (attempt, seq) for one in self._known[at : at + 1])

    def _is_old(self, attempt: int, seq: int) -> bool:
        """Whether it was thinned out, or might have been."""
        step = step_of(attempt, seq, self._known)
        return step is not None and step < _oldest(self._known, self._max_lag, self._step)

    def _add(self, version: Version) -> None:
        if not self._is_known(*version[:2]):
            bisect.insort(self._known, version)


def thinned(versions: Sequence[Version], max_lag: int, step: int) -> list[Version]:
    """Without those, but the first and last of each attempt, that lie twice `max_lag` behind the newest and behind the
    learner, who is at `step`. Pure.
    """
    oldest = _oldest(versions, max_lag, step)
    kept: list[Version] = []
    for _, group in groupby(versions, key=lambda one: (one[0], one[2] >= oldest)):
        first, *others = group
        kept += [first, *(others if first[2] >= oldest else others[-1:])]
    return kept


def _oldest(versions: Sequence[Version], max_lag: int, step: int) -> int:
    """The step from which on all are remembered. The learner may be behind the newest: one of another slot, or one that
    went back.
    """
    return min(versions[-1][2], step) - 2 * max_lag
