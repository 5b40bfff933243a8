"""How much of this machine a mirror takes, whatever its server offers.

A server may name as many runs, slots and curves as it likes. What is beyond a limit is passed over before it is
fetched, and said; what is here stays, and the rest goes on. No honest server comes near a limit.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anchorleg.words import sized
from syncd.errors import NoRoomError, StorageError
from syncd.shared.disk import is_nearly_full
from syncd.shared.inbox import Inbox
from syncd.shared.layout import NAME, SLOT, Shared, SlotPlace, files_in, folder_names
from syncd.wire.transport import MAX_CURVES_BYTES, MAX_FILES, MAX_SLOTS, Offer

#: A group's folder has some tens, and nobody clears them away here but the user.
MAX_RUNS = 256
#: Of one slot. A row of metrics has 1.6 kB on MT10, 6.4 on MT50, and a long training 100,000 rows.
MAX_CURVE_BYTES = 2**30
#: 4,000 slots with three policies of 0.35 MB each have 4.2 GB, and all curves leave them that (`MAX_CURVES_BYTES`).
MAX_BYTES = 8 * 2**30
#: Before something is passed over, what is here is counted anew, but not more often: the user may have made room.
RECOUNT_S = 60.0


@dataclass(frozen=True)
class CapacityLimits:
    """Of one mirror; `curve_bytes` of one slot, `curves_bytes` of all. Tests have smaller ones."""

    runs: int = MAX_RUNS
    slots: int = MAX_SLOTS
    curve_bytes: int = MAX_CURVE_BYTES
    curves_bytes: int = MAX_CURVES_BYTES
    files: int = MAX_FILES
    bytes: int = MAX_BYTES


@dataclass(frozen=True)
class _Held:
    """What is here of one slot. `curves`: file name → bytes, `curve_bytes` in all."""

    files: int = 0
    bytes: int = 0
    curve_bytes: int = 0
    curves: dict[str, int] = field(default_factory=dict)


class Capacity:
    """The room of the mirror `shared`; `parts` is its folder of unfinished files. One thread uses it."""

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
        self._slots: dict[SlotPlace, _Held] | None = None
        self._counted_at = 0.0

    def count_anew(self) -> None:
        """Believe nothing that was counted before."""
        self._slots = None

    def changed(self, place: SlotPlace) -> None:
        """Something of this slot came or went. Errors: OSError."""
        self._held()[place] = self._held_of(place)

    def check_slot(self, place: SlotPlace, also: set[SlotPlace] | None = None) -> None:
        """Whether there is room for one more slot, and its run; `also`: slots that are let in meanwhile.

        Errors: NoRoomError with one sentence.
        """
        self._check(lambda: self._slot_objection(place, also or set()))

    def check_policy(self, size: int) -> None:
        """Whether there is room for a policy of `size` bytes. Errors: NoRoomError; StorageError: the disk's."""
        self._check(lambda: self._objection(size))

    def check_curve(self, place: SlotPlace, name: str, size: int) -> None:
        """Whether there is room for this part of a curve, in place of what is here. Errors: as `check_policy`."""
        self._check(lambda: self._curve_objection(place, name, size) or self._objection(size))

    def check_live(self, place: SlotPlace, size: int) -> None:
        """Whether there is room for a ring or a scene of this slot. Errors: as `check_policy`."""
        self._check(lambda: self._slot_objection(place, set()) or self._objection(size))

    def _check(self, objection: Callable[[], NoRoomError | None]) -> None:
        if objection() and self._monotonic() - self._counted_at >= RECOUNT_S:
            self.count_anew()
        if error := objection():
            raise error

    def _slot_objection(self, place: SlotPlace, also: set[SlotPlace]) -> NoRoomError | None:
        held = self._held()
        if place in held or place in also:
            return None
        known = held.keys() | also
        runs = {each.run_id for each in known}
        if place.run_id not in runs and len(runs) >= self._limits.runs:
            return NoRoomError("mirror.too-many-runs", most=self._limits.runs, folder=self._shared.runs)
        if len(known) >= self._limits.slots:
            return NoRoomError("mirror.too-many-slots", most=self._limits.slots, folder=self._shared.runs)
        return None

    def _curve_objection(self, place: SlotPlace, name: str, size: int) -> NoRoomError | None:
        held = self._held()
        here = held.get(place, _Held())
        added = size - here.curves.get(name, 0)
        if here.curve_bytes + added > self._limits.curve_bytes:
            return NoRoomError("mirror.curve-too-long", most=sized(self._limits.curve_bytes))
        if sum(each.curve_bytes for each in held.values()) + added > self._limits.curves_bytes:
            most = sized(self._limits.curves_bytes)
            return NoRoomError("mirror.too-many-curves", most=most, folder=self._shared.runs)
        return None

    def _objection(self, size: int) -> NoRoomError | None:
        here = self._shared.path
        if is_nearly_full(here, size):
            raise StorageError("mirror.disk-full", path=here)
        held = self._held().values()
        if sum(each.files for each in held) >= self._limits.files:
            return NoRoomError("mirror.too-many-files", most=self._limits.files, folder=self._shared.runs)
        parts = sum(_sizes(self._parts).values())
        if sum(each.bytes for each in held) + parts + size > self._limits.bytes:
            return NoRoomError("mirror.too-large", most=sized(self._limits.bytes), folder=self._shared.runs)
        return None

    def _held(self) -> dict[SlotPlace, _Held]:
        if self._slots is None:
            self._counted_at = self._monotonic()
            self._slots = {place: self._held_of(place) for place in {*self._shared.slots(), *self._shown()}}
        return self._slots

    def _shown(self) -> Iterator[SlotPlace]:
        """The slots that contributors' agents play, which need not be here otherwise. Errors: OSError."""
        for inbox in Inbox.all_of(self._shared):
            for folder in inbox.live_folders():
                if NAME.fullmatch(folder.parent.name) and SLOT.fullmatch(folder.name):
                    yield self._shared.slot(folder.parent.name, int(folder.name))

    def _held_of(self, place: SlotPlace) -> _Held:
        """Folders of blobs count as files: they stay, too. So do contributors' agents of the slot. Errors: OSError."""
        curves = _sizes(place.metrics)
        sizes = [*curves.values(), *_sizes(place.live).values()]
        for inbox in Inbox.all_of(self._shared):
            sizes += _sizes(inbox.path / "live" / place.run_id / str(place.slot)).values()
        folders = 0
        for policies in (place, place.averaged):
            blobs = folder_names(policies.blobs)
            folders += len(blobs)
            sizes += _sizes(policies.manifests).values()
            for folder in blobs:
                sizes += _sizes(policies.blobs / folder).values()
        return _Held(len(sizes) + folders, sum(sizes), sum(curves.values()), curves)


class KnownSums:
    """By the files' inodes, sizes and times."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int, int], str]] = {}

    def is_here(self, path: Path, offer: Offer, *, may_differ: bool) -> bool:
        """Whether the offered part of a curve lies at `path`: by its sum, or by its size where nobody knows the sum,
        and then only unless it `may_differ`. Errors: OSError where it cannot be read.
        """
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            self._known.pop(path, None)
            return False
        if status.st_size != offer.bytes:
            return False
        if offer.sha256 is None:
            return not may_differ
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = (stamp, hashlib.sha256(path.read_bytes()).hexdigest())
        return known[1] == offer.sha256


def _sizes(folder: Path) -> dict[str, int]:
    """File name → bytes. What vanishes meanwhile is not there."""
    return {file.path.name: file.bytes for file in files_in(folder)}
