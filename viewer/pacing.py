"""How often something is read again: a page that is looked at must not wear out a login node.

After a reading that took t seconds the next one of the same comes 50 t later at the earliest, so that one watcher takes
at most some 2 % of a core. One look spends a bounded time on readings; what it has no time for comes first in the next
one, what is oldest before all others, and each look reads one thing at least: nothing waits for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar, cast

Value = TypeVar("Value")

#: A part of one core: 1/50.
REST = 50.0
#: What one look may spend on readings: the first picture has a second in all.
LOOK_S = 0.4
#: For those who look once and want all of it.
NO_END = float("inf")
#: What nobody asked for in so many looks is kept no longer: pages of slots that were turned, runs that were left.
KEPT_LOOKS = 100


@dataclass
class _Kept:
    signature: Hashable
    value: object
    error: Exception | None
    read_at: float
    due_at: float
    asked: int


class Pacer:
    """Keeps what was read. `least_s`: nothing is read again sooner; `look_s`: what one look may spend. One thread uses
    it.
    """

    def __init__(
        self, least_s: float = 1.0, look_s: float = LOOK_S, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._least_s, self._look_s, self._monotonic = least_s, look_s, monotonic
        self._kept: dict[Hashable, _Kept] = {}
        self._looks, self._ends_at, self._has_read = 0, 0.0, False
        #: By who looks: what its last look had no time for, and when that was last read.
        self._late: dict[Hashable, dict[Hashable, float]] = {}
        self._first: dict[Hashable, float] = {}
        self._next: dict[Hashable, float] = {}

    def begin_look(self, who: Hashable = None) -> None:
        """The time of a look begins. `who`: each looks at something else, and waits for it."""
        self._looks, self._has_read = self._looks + 1, False
        self._ends_at = self._monotonic() + self._look_s
        if self._looks % KEPT_LOOKS == 0:
            self._kept = {key: one for key, one in self._kept.items() if one.asked > self._looks - KEPT_LOOKS}
            self._late.clear()
        self._first = self._late.pop(who, {})
        self._next = self._late[who] = {}

    def read(self, key: Hashable, signature: Hashable, make: Callable[[], Value]) -> Value | None:
        """The value of `key`: what is kept of it where `signature` is the same or it is not due yet, else made anew.

        None: it was never made, and the time of this look is over. Errors: those of `make`, kept as a value is.
        """
        now, kept = self._monotonic(), self._kept.get(key)
        oldest = min(self._first.values(), default=now)
        self._first.pop(key, None)
        if kept is not None:
            kept.asked = self._looks
            if now < kept.due_at or (kept.signature == signature and kept.error is None):
                return self._told(kept)
        read_at = kept.read_at if kept is not None else -1.0
        if read_at > oldest or (now >= self._ends_at and self._has_read):
            self._next[key] = read_at
            return self._told(kept) if kept is not None else None
        self._has_read = True
        value, failed = None, None
        try:
            value = make()
        except Exception as error:  # noqa: BLE001 - raised below, and again until it is due
            failed = error
        done = self._monotonic()
        due_at = done + max(self._least_s, REST * (done - now))
        self._kept[key] = kept = _Kept(signature, value, failed, now, due_at, self._looks)
        return self._told(kept)

    @staticmethod
    def _told(kept: _Kept) -> Value | None:
        if kept.error is not None:
            raise kept.error.with_traceback(None)
        return cast("Value", kept.value)
