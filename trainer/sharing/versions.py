"""The policies that a slot is known to have published: what a judge holds a segment's policies against."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence

from syncd import store


class Versions:
    """Of the slot whose policies lie in `place`. `know` may be called from any thread, the rest from the judge's."""

    def __init__(self, place: store.SlotPlace) -> None:
        self._place = place
        self._known: list[tuple[int, int, int]] = []
        self._read: set[tuple[int, int]] = set()
        self._news: deque[tuple[int, int, int]] = deque()
        self._has_looked = False

    def know(self, attempt: int, seq: int, step: int) -> None:
        """A policy of this slot is about to be seen."""
        self._news.append((attempt, seq, step))

    def sorted(self) -> Sequence[tuple[int, int, int]]:
        """(attempt, seq, step) of each, ascending."""
        while self._news:
            self._add(*self._news.popleft())
        return self._known

    def new_round(self) -> None:
        """`found_more` may read again."""
        self._has_looked = False

    def found_more(self) -> bool:
        """Read manifests that are not known yet, once a round at most; whether there was any. Errors: OSError."""
        if self._has_looked:
            return False
        self._has_looked = True
        before = len(self._known)
        for version in store.versions(self._place):
            if version in self._read:
                continue
            try:
                manifest = store.read_manifest(self._place, version)
            except FileNotFoundError:
                continue  # cleared away meanwhile, or another node's that cannot be opened here yet
            except store.DamagedPolicyError:
                self._read.add(version)  # of no use to anybody
                continue
            self._add(version.attempt, version.seq, manifest.step)
        return len(self._known) > before

    def _add(self, attempt: int, seq: int, step: int) -> None:
        at = bisect.bisect_left(self._known, (attempt, seq))
        if self._known[at : at + 1] and self._known[at][:2] == (attempt, seq):
            return
        self._known.insert(at, (attempt, seq, step))
        self._read.add((attempt, seq))
