"""How often something is read again: a page that is looked at must not wear out a login node.

What costs much to read is read rarely: after a reading that took t seconds the next one comes 50 t later at the
earliest, so that one watcher takes at most some 2 % of a core. And one look spends a bounded time on what it has not
read yet; the rest comes with the next looks, and the page says that it is to come.

Nothing waits for ever: what a look had no time for comes first in the next one, the longest waiting before all others,
and each look reads one of them even where its time is over already.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

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
class _Kept(Generic[Value]):
    signature: Hashable
    value: Value | None
    error: Exception | None
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
        self._kept: dict[Hashable, _Kept[object]] = {}
        self._ends_at = 0.0
        self._looks = 0
        self._late = False
        #: By who looks: what its last look had no time for, and since which look.
        self._left: dict[Hashable, dict[Hashable, int]] = {}
        self._waiting: dict[Hashable, int] = {}
        self._since: Counter[int] = Counter()
        self._next: dict[Hashable, int] = {}

    def begin_look(self, who: Hashable = None) -> None:
        """The time of a look begins. `who`: each looks at something else, and waits for it."""
        self._looks += 1
        self._ends_at = self._monotonic() + self._look_s
        self._late = False
        self._waiting = self._left.pop(who, {})
        self._since = Counter(self._waiting.values())
        self._next = self._left[who] = {}
        while len(self._left) > KEPT_LOOKS:
            del self._left[next(iter(self._left))]
        if self._looks % KEPT_LOOKS == 0:
            self._kept = {key: one for key, one in self._kept.items() if one.asked > self._looks - KEPT_LOOKS}

    def read(self, key: Hashable, signature: Hashable, make: Callable[[], Value]) -> Value | None:
        """The value of `key`: what is kept of it where `signature` is the same or it is not due yet, else made anew.

        None: it was never made, and the time of this look is over. Errors: those of `make`, kept as a value is.
        """
        kept = self._kept.get(key)
        now = self._monotonic()
        since = self._waiting.pop(key, None)
        if since is not None:
            self._since -= Counter([since])
        if kept is not None:
            kept.asked = self._looks
            if now < kept.due_at or (kept.signature == signature and kept.error is None):
                return _told(cast("_Kept[Value]", kept))
        first = since is not None and since <= min(self._since, default=since)
        in_turn = kept is None or first or not self._since
        in_time = now < self._ends_at or (first and not self._late)
        if not (in_turn and in_time):
            self._next[key] = self._looks if since is None else since
            return None if kept is None else _told(cast("_Kept[Value]", kept))
        self._late = self._late or now >= self._ends_at
        made: _Kept[Value] = _Kept(signature, None, None, 0.0, self._looks)
        try:
            made.value = make()
        except Exception as error:  # noqa: BLE001 - raised below, and again until it is due
            made.error = error
        done = self._monotonic()
        made.due_at = done + max(self._least_s, REST * (done - now))
        self._kept[key] = cast("_Kept[object]", made)
        return _told(made)


def _told(kept: _Kept[Value]) -> Value | None:
    if kept.error is not None:
        raise kept.error.with_traceback(None)
    return kept.value
