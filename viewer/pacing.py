"""How often something is read again: a page that is looked at must not wear out a login node.

What costs much to read is read rarely: after a reading that took t seconds the next one comes 50 t later at the
earliest, so that one watcher takes at most some 2 % of a core. And one look spends a bounded time on what it has not
read yet; the rest comes with the next looks, and the page says that it is to come.
"""

from __future__ import annotations

import time
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


@dataclass(frozen=True)
class _Kept(Generic[Value]):
    signature: Hashable
    value: Value
    due_at: float


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

    def begin_look(self) -> None:
        """The time of a look begins."""
        self._ends_at = self._monotonic() + self._look_s

    def read(self, key: Hashable, signature: Hashable, make: Callable[[], Value]) -> Value | None:
        """The value of `key`: what is kept of it where `signature` is the same or it is not due yet, else made anew.

        None: it was never made, and the time of this look is over. Errors: those of `make`.
        """
        kept = self._kept.get(key)
        now = self._monotonic()
        if kept is not None and (kept.signature == signature or now < kept.due_at or now >= self._ends_at):
            return cast("Value", kept.value)
        if kept is None and now >= self._ends_at:
            return None
        value = make()
        done = self._monotonic()
        self._kept[key] = _Kept(signature, value, done + max(self._least_s, REST * (done - now)))
        return value
