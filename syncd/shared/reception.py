"""The arrival of one segment, and whether it is taken: the one judge of what may be written into an inbox.

A segment is in memory until it is whole and verified; then it is put into `new/`. What a run's owner asks of those who
give::

    runs/<run_id>/terms.json    written by the run's learners, from `collaboration` in the owner's config
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from anchorleg.files import make_shared_folder
from anchorleg.words import roughly, sized
from syncd.shared.counts import day_ends_at, held, rows_today
from syncd.shared.curves import read_metrics
from syncd.shared.inbox import MAX_SEGMENT_BYTES, Inbox, State, Usage
from syncd.shared.layout import NAME, SHA256, SLOT, Shared, SlotPlace, is_nearly_full, put, put_json, read_hint

#: After this long a full inbox may have room again: the learner looks into it every second.
QUOTA_RETRY_S = 60.0
#: Counting 5,000 waiting files takes 40 ms, so a connection counts again after this long only. Two connections of one
#: contributor can overshoot by what arrives meanwhile.
RECOUNT_S = 2.0
#: The disk may have room again then, or the folder be mounted again.
STORAGE_RETRY_S = 60.0
#: How often one who is held may ask again.
HELD_RETRY_S = 600.0
#: How often a client of too old a version may ask again: somebody may have updated it, or the owner changed their mind.
VERSION_RETRY_S = 3_600.0

#: The curve in which a slot's learner says what it needs of others, in one row (`trainer.sharing.notice`).
INTAKE = "intake"
#: That it has all that it can use is believed for so long: it says so twice a minute, unless it waits in a queue.
BELIEVED_S = 600.0
#: Who is not needed may ask again after so long; its own chance adds to it (`syncd.laptop.exchange`).
NOT_NEEDED_RETRY_S = 150.0
#: A training that is complete may be lengthened: what waits is kept for so long after its word, and offered this often.
LENGTHENED_S, OVER_RETRY_S = 86_400.0, 3_600.0


@dataclass(frozen=True)
class Stored:
    """The segment lies in the inbox durably (or did already)."""


@dataclass(frozen=True)
class Refusal:
    """It was not taken: one word, one sentence, and when to try again (None: never)."""

    reason: str
    sentence: str
    retry_after_s: float | None = None


#: What arrived was deleted: sending it again from the start may do.
DAMAGED = Refusal("damaged", "its bytes do not match its name (sha256 differs)", retry_after_s=1.0)


def dropped(who: str) -> Refusal:
    """Of a contributor that was thrown out."""
    return Refusal("dropped", f"{who} was dropped by the owner of this shared folder")


class Quota:
    """What counts against a contributor's quota, as one connection knows it. `clock`: monotonic seconds."""

    def __init__(self, inbox: Inbox, clock: Callable[[], float] = time.monotonic) -> None:
        self._inbox, self._clock = inbox, clock
        self._known = Usage(0, 0)
        self._counted_at = float("-inf")

    def refusal(self, size: int) -> Refusal | None:
        """Whether there is no room for `size` more bytes: as counted now, or up to `RECOUNT_S` ago plus what was put
        there since. Errors: OSError.
        """
        if self._clock() >= self._counted_at + RECOUNT_S:
            self._known = self._inbox.claimed()
            self._counted_at = self._clock()
        usage, most = self._known, self._inbox.limits
        if usage.segments >= most.waiting_segments or usage.bytes + size > most.waiting_bytes:
            words = (
                f"{usage.segments} segments ({sized(usage.bytes)}) of {self._inbox.who} wait for the learner already"
            )
            return Refusal("quota", words, QUOTA_RETRY_S)
        return None

    def put(self, size: int) -> None:
        """One more waits."""
        self._known = Usage(self._known.segments + 1, self._known.bytes + size)


class Reception:
    """A segment on its way in, in memory. `keep` puts it where it belongs, durably, once it is whole."""

    def __init__(self, sha256: str, size: int, keep: Callable[[bytes], Stored | Refusal]) -> None:
        self._sha256, self._size, self._keep = sha256, size, keep
        self._data = bytearray()

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are here."""
        return len(self._data) == self._size

    @property
    def offset(self) -> int:
        """How many bytes are here."""
        return len(self._data)

    def write(self, data: bytes) -> None:
        """The next bytes. Errors: ValueError where they are more than was said."""
        if self.offset + len(data) > self._size:
            raise ValueError(f"more than the {self._size} announced bytes")
        self._data += data

    def finish(self) -> Stored | Refusal:
        """Verify what arrived, and keep it. Errors: OSError."""
        data = bytes(self._data)
        if len(data) != self._size or hashlib.sha256(data).hexdigest() != self._sha256:
            return DAMAGED
        return self._keep(data)


def receive(
    inbox: Inbox,
    run_id: str,
    slot: int,
    sha256: str,
    size: int,
    quota: Quota | None = None,
    *,
    version: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Reception | Stored | Refusal:
    """Take in a segment of `size` bytes for one slot: a Reception to write to, or the answer at once.

    Nothing of what the other side says is trusted: names, size, quota, and whether the slot exists are checked here.
    `quota`: what the connection knows of it; None: it is counted now. `version`, `clock`: as in `objection`.
    Errors: OSError.
    """
    refusal = objection(inbox, run_id, slot, sha256, size, version=version, clock=clock)
    if refusal is not None:
        return refusal
    if is_stored(inbox, run_id, slot, sha256):
        return Stored()
    known = quota or Quota(inbox)
    if (refusal := known.refusal(size)) is not None:
        return refusal

    def keep(data: bytes) -> Stored | Refusal:
        if (refusal := known.refusal(size)) is not None:  # others may have come meanwhile
            return refusal
        place = inbox.place("new", run_id, slot)
        make_shared_folder(place)
        put(place / sha256, data)
        known.put(size)
        return Stored()

    return Reception(sha256, size, keep)


def is_stored(inbox: Inbox, run_id: str, slot: int, sha256: str) -> bool:
    """Whether the inbox has this segment, whole, or had and refused it. Errors: OSError."""
    states: tuple[State, ...] = ("new", "accepted", "quarantine")
    return any((inbox.place(state, run_id, slot) / sha256).exists() for state in states)


def objection(
    inbox: Inbox,
    run_id: str,
    slot: int,
    sha256: str,
    size: int,
    *,
    version: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Refusal | None:
    """Why it is not taken, whatever waits already. `version`: of the client's Anchorleg; None: this way says none.
    `clock`: unix seconds of this side. Errors: OSError.
    """
    if not (NAME.fullmatch(run_id) and SLOT.fullmatch(str(slot)) and SHA256.fullmatch(sha256)):
        return Refusal("name", "its run, slot or checksum is not valid")
    if not 0 < size <= MAX_SEGMENT_BYTES:
        return Refusal("size", f"it has {size} bytes; the limits are 1 and {MAX_SEGMENT_BYTES}")
    if inbox.is_dropped:
        return dropped(inbox.who)
    if (now_held := held(inbox.path, clock())) is not None:
        return Refusal("held", f"nothing is accepted from {inbox.who} for now: {now_held.why}", HELD_RETRY_S)
    runs = inbox.path.parents[1] / "runs"
    place = SlotPlace(runs / run_id / str(slot), run_id, slot)
    if not place.path.is_dir():
        if not runs.is_dir():  # unmounted, say: a client that takes that for the run's end throws good segments away
            return Refusal("storage", "there are no runs in this shared folder now", STORAGE_RETRY_S)
        return Refusal("other_run", f"slot {slot} of run {run_id[:81]} does not publish here")
    if (unmet := _unmet(inbox, place, version, clock())) is not None:
        return unmet
    if is_nearly_full(runs):
        return Refusal("storage", "the disk there is nearly full", STORAGE_RETRY_S)
    return None


def _unmet(inbox: Inbox, place: SlotPlace, version: str | None, now: float) -> Refusal | None:
    """What the run's owner asks of contributors and this one does not meet, or that nothing is needed."""
    terms = terms_of(place.path.parents[1], place.run_id)
    if version is not None and terms.oldest_client is not None and is_too_old(version, terms.oldest_client):
        words = f"this run accepts experience of anchorleg {terms.oldest_client} and later, and this is {version}"
        return Refusal("version", words, VERSION_RETRY_S)
    rows = read_metrics(place, INTAKE, parts=1)
    if rows and (needless := not_needed(rows[-1], now)) is not None:
        why, retry_after_s = needless
        reason = "not_needed" if retry_after_s is None else "full"
        return Refusal(reason, f"slot {place.slot} of {place.run_id} needs no contributions: {why}", retry_after_s)
    return spent(inbox, place.run_id, terms.rows_per_day, now)


def spent(inbox: Inbox, run_id: str, rows_per_day: int | None, now: float) -> Refusal | None:
    """Whether a contributor has given what one may give a day; with when that ends. Errors: OSError."""
    if rows_per_day is None or (rows := rows_today(inbox.path, run_id, now)) < rows_per_day:
        return None
    left_s = day_ends_at(now) - now
    words = f"{inbox.who} gave {rows:,} rows today, and {run_id} accepts {rows_per_day:,} a day"
    return Refusal("day_quota", f"{words}; it accepts more from 00:00 UTC, in {roughly(left_s)}", left_s)


def not_needed(row: Mapping[str, Any], now: float) -> tuple[str, float | None] | None:
    """Whether a slot can use nothing, by the row that it wrote last: why, as the end of a sentence, and when to ask
    again (None: never). `now`: unix seconds of this side's clock. Pure.
    """
    at = row.get("at")
    age = abs(now - at) if isinstance(at, int | float) else float("inf")
    if row.get("over") is True:
        return "its training is complete", OVER_RETRY_S if age < LENGTHENED_S else None
    if row.get("takes") is False:
        return "it cannot learn from contributed experience", None
    if row.get("full") is True and age < BELIEVED_S:
        return "it has as much as it can use for now", NOT_NEEDED_RETRY_S
    return None


_NUMBERS = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")


class Terms(BaseModel):
    """`rows_per_day`: rows of one contributor that the run accepts a day (UTC); `oldest_client`: the first version of
    Anchorleg whose experience is taken. None: no such limit.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    rows_per_day: int | None = None
    oldest_client: str | None = None


def terms_file(runs: Path, run_id: str) -> Path:
    """Where a run's terms lie. `runs`: `$SHARED/v1/runs`."""
    return runs / run_id / "terms.json"


def terms_of(runs: Path, run_id: str) -> Terms:
    """A run's terms; none where none are written, or what is written is none."""
    return read_hint(Terms, terms_file(runs, run_id)) or Terms()


def set_terms(shared: Shared, run_id: str, terms: Terms) -> None:
    """Make these the run's terms, durably; without any, where there were none, nothing is written. Errors: OSError."""
    if terms != terms_of(shared.runs, run_id):
        path = terms_file(shared.runs, run_id)
        make_shared_folder(path.parent)
        put_json(path, terms.model_dump())


def is_too_old(version: str, oldest: str) -> bool:
    """Whether `version` comes before `oldest` (both as "0.5.1"; what follows the numbers does not count). One that has
    no number ("unknown") is too old.
    """
    ours, asked = _NUMBERS.match(version), _NUMBERS.match(oldest)
    return asked is not None and (ours is None or _parts(ours[0]) < _parts(asked[0]))


def _parts(numbers: str) -> tuple[int, ...]:
    """The numbers, without zeros at the end: 0.5 is 0.5.0."""
    parts = [int(part) for part in numbers.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)
