"""How much of this machine a mirror takes, whatever its server offers.

A server may name as many slots and curves as it likes. What is beyond a limit is passed over before it is fetched, and
said; what is here stays, and the rest goes on. No honest server comes near a limit.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anchorleg.words import sized
from syncd.errors import NoRoomError, StorageError
from syncd.shared.layout import Shared, SlotPlace, is_nearly_full
from syncd.wire.arrivals import MAX_FILES, MAX_SLOTS

#: 4,000 slots with three policies of 0.35 MB each have 4.2 GB, and 34 curves of 20,000 rows on MT50 4.3 GB.
MAX_BYTES = 16 * 2**30
#: Before something is passed over, what is here is counted anew, but not more often: the user may have made room.
RECOUNT_S = 60.0


@dataclass(frozen=True)
class CapacityLimits:
    """Of one mirror. Tests have smaller ones."""

    slots: int = MAX_SLOTS
    files: int = MAX_FILES
    bytes: int = MAX_BYTES


class Capacity:
    """The room of the mirror `shared`; `parts` is its folder of unfinished files. One thread uses it.

    What was let in since the last count is added to it, also where it took the place of another file.
    """

    def __init__(
        self,
        shared: Shared,
        parts: Path,
        limits: CapacityLimits | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared, self._parts = shared, parts
        self._limits = limits or CapacityLimits()
        self._monotonic = monotonic
        self._slots: set[SlotPlace] = set()
        self._files = self._bytes = 0
        self._counted_at = float("-inf")

    def count_anew(self) -> None:
        """Count what is here."""
        self._counted_at = self._monotonic()
        self._slots = set(self._shared.slots())
        self._files = self._bytes = 0
        for top in (self._shared.path / "v1", self._parts):
            for folder, _, names in os.walk(top):
                self._files += len(names)
                for name in names:
                    with contextlib.suppress(OSError):
                        self._bytes += os.lstat(os.path.join(folder, name)).st_size

    def check_slot(self, place: SlotPlace) -> None:
        """Have room for one more slot. Errors: NoRoomError with one sentence."""
        if not self._has_room(lambda: place in self._slots or len(self._slots) < self._limits.slots):
            raise NoRoomError("mirror.too-many-slots", most=self._limits.slots, folder=self._shared.runs)
        self._slots.add(place)

    def check(self, size: int) -> None:
        """Have room for one more file of `size` bytes. Errors: NoRoomError; StorageError where the disk is full."""
        if is_nearly_full(self._shared.path, size):
            raise StorageError("mirror.disk-full", path=self._shared.path)
        if not self._has_room(lambda: self._files < self._limits.files):
            raise NoRoomError("mirror.too-many-files", most=self._limits.files, folder=self._shared.runs)
        if not self._has_room(lambda: self._bytes + size <= self._limits.bytes):
            raise NoRoomError("mirror.too-large", most=sized(self._limits.bytes), folder=self._shared.runs)
        self._files += 1
        self._bytes += size

    def _has_room(self, is_left: Callable[[], bool]) -> bool:
        if self._counted_at == float("-inf"):
            self.count_anew()
        if not is_left() and self._monotonic() - self._counted_at >= RECOUNT_S:
            self.count_anew()
        return is_left()
