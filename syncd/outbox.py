"""What this machine wants to send: segments of experience, and what became of them.

::

    DIR/outbox/tmp/                        being written
    DIR/outbox/new/<run id>/<slot>/<sha256>   whole and durable; goes away when the other side has it durably
    DIR/outbox/refused/…                   never wanted over there (too large, a deleted run); the oldest go
    DIR/state/contributions.json           counts: sent, accepted, refused by reason
    DIR/state/played.json                  `<run id>/<slot>` → the last verdict of any actor on this machine

Actors put in, the client takes out; any number of actors, one client at a time (`mirror_lock`). The client alone
writes the counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from anchorleg.files import fsync_folder, read_json, write_json
from anchorleg.words import printable
from syncd.errors import ConfigError, StorageError
from syncd.shared.layout import NAME, SHA256, SLOT, SlotPlace, files_in, folder_names, read_hint, writing
from syncd.wire.protocol import SegmentVerdict

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

#: A living client's word (DIR/state/status.json) is 5 s old at most, or as old as one try to connect takes.
SILENT_AFTER_S = 90.0
#: Some hours of a laptop's experience. More would reach the learner too old to be accepted.
MAX_SEGMENTS = 2_000
MAX_BYTES = 256 * 2**20
#: Of segments that were refused for good, kept to look why.
MAX_REFUSED_BYTES = 32 * 2**20
#: A segment of a run that the other side does not know waits so long for one that does.
UNKNOWN_KEPT_S = 86_400.0
#: Verdicts come for what was sent lately. Those for older segments are not counted twice, but not at all.
MAX_UNJUDGED = 2_000
#: A learner has some thirty reasons. The words are the other side's: no more than these are kept.
MAX_REASONS = 50
OTHER_REASON = "other"
#: So much of a sha256 tells 2,000 segments apart, and keeps the counts' file at some 40 kB.
_SHORT = 16
#: A file in tmp/ that nobody has written to for so long has lost its writer.
ABANDONED_AFTER_S = 3_600.0
#: How long a count of what waits is believed, so that an actor does not list the folder for each segment.
USAGE_BELIEVED_S = 2.0


class OutboxFile(NamedTuple):
    """One segment that waits."""

    path: Path
    run_id: str
    slot: int
    bytes: int


class Contributions(BaseModel):
    """What became of what was sent. `refused`: reason → number. `unjudged`: short sums of what has no verdict yet."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sent: int = 0
    accepted: int = 0
    refused: dict[Annotated[str, AfterValidator(printable)], int] = {}
    sent_at: float | None = None
    judged_at: float | None = None
    unjudged: tuple[str, ...] = ()

    @property
    def refusals(self) -> int:
        """How many were refused, for whatever reason."""
        return sum(self.refused.values())

    def with_sent(self, sums: Sequence[str], now: float) -> Contributions:
        """These counts after the segments with these sha256 sums were sent."""
        waiting = (*self.unjudged, *(each[:_SHORT] for each in sums))[-MAX_UNJUDGED:]
        return self.model_copy(update={"sent": self.sent + len(sums), "sent_at": now, "unjudged": waiting})

    def with_verdicts(self, verdicts: Sequence[SegmentVerdict], now: float) -> Contributions:
        """These counts after these verdicts. One on a segment that is not waited for changes nothing.

        Verdicts are told at least once, so only the first one of a segment may count.
        """
        waiting = dict.fromkeys(self.unjudged)
        accepted, refused = self.accepted, dict(self.refused)
        for verdict in verdicts:
            short = verdict.sha256[:_SHORT]
            if short not in waiting:
                continue
            del waiting[short]
            if verdict.accepted:
                accepted += 1
            else:
                count_reason(refused, verdict.reason)
        if len(waiting) == len(self.unjudged):
            return self
        changed = {"accepted": accepted, "refused": refused, "judged_at": now, "unjudged": tuple(waiting)}
        return self.model_copy(update=changed)


def count_reason(refused: dict[str, int], reason: str) -> None:
    """One more refusal in `refused` (reason → number). A new reason beyond `MAX_REASONS` counts as `OTHER_REASON`."""
    known = reason if reason in refused or len(refused) < MAX_REASONS else OTHER_REASON
    refused[known] = refused.get(known, 0) + 1


def read_contributions(folder: Path) -> Contributions:
    """The counts of the mirror `folder`; zeros where there are none, or where they cannot be read."""
    return read_hint(Contributions, _counts_file(folder)) or Contributions()


def _counts_file(folder: Path) -> Path:
    return folder / "state" / "contributions.json"


class Outbox:
    """The outgoing segments of the mirror `folder` (DIR)."""

    def __init__(
        self,
        folder: Path,
        *,
        max_segments: int = MAX_SEGMENTS,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.path = folder / "outbox"
        self.max_segments = max_segments
        self.max_bytes = max_bytes
        self._clock = clock
        self._usage = (0, 0)
        self._counted_at: float | None = None

    def offer(self, run_id: str, slot: int, data: bytes) -> bool:
        """Put a segment in, durably; False where the box is full: then nothing was written, and nothing thrown away.

        Its name is the sha256 of `data`; the same data twice is one segment. Errors: ConfigError for a run id that
        cannot be a folder; StorageError (disk full, permission): nothing is left behind.
        """
        if not (NAME.fullmatch(run_id) and SLOT.fullmatch(str(slot))):
            raise ConfigError("outbox.bad-place", run_id=run_id, slot=slot)
        if not self._has_room(len(data)):
            return False
        place = self.path / "new" / run_id / str(slot)
        final = place / hashlib.sha256(data).hexdigest()
        temporary = self.path / "tmp" / f"{final.name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            if final.exists():
                return True
            for folder in (temporary.parent, place):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_private(temporary, data)
            os.replace(temporary, final)
            fsync_folder(place)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StorageError("storage.unwritable", path=self.path, why=error.strerror) from error
        count, size = self._usage
        self._usage = (count + 1, size + len(data))
        return True

    def _has_room(self, added_bytes: int) -> bool:
        for is_fresh in (False, True):  # one that seems full is counted anew: the client may have emptied it
            count, size = self.usage(fresh=is_fresh)
            if count < self.max_segments and size + added_bytes <= self.max_bytes:
                return True
        return False

    def usage(self, *, fresh: bool = True) -> tuple[int, int]:
        """(number, bytes) of what waits. `fresh` False: as counted at most `USAGE_BELIEVED_S` ago."""
        now = self._clock()
        if fresh or self._counted_at is None or not 0 <= now - self._counted_at < USAGE_BELIEVED_S:
            sizes = [entry.bytes for _, entry in self._entries()]
            self._usage, self._counted_at = (len(sizes), sum(sizes)), now
        return self._usage

    def count(self) -> int:
        """How many segments wait."""
        return self.usage()[0]

    def bytes(self) -> int:
        """How many bytes wait."""
        return self.usage()[1]

    def waiting(self, limit: int | None = None, *, without: Container[tuple[str, int]] = ()) -> list[OutboxFile]:
        """The segments that wait, oldest first; at most `limit`, and none for the slots `without` (run id, slot)."""
        wanted = (each for each in self._entries() if (each[1].run_id, each[1].slot) not in without)
        return [entry for _, entry in sorted(wanted)[:limit]]

    def _entries(self) -> Iterator[tuple[tuple[float, str], OutboxFile]]:
        """((mtime, name), segment) of each file that is one; what vanishes meanwhile, or is none, is passed over."""
        new = self.path / "new"
        for run_id in filter(NAME.fullmatch, folder_names(new)):
            for slot in filter(SLOT.fullmatch, folder_names(new / run_id)):
                with contextlib.suppress(OSError):
                    for file in files_in(new / run_id / slot, SHA256.fullmatch):
                        segment = OutboxFile(file.path, run_id, int(slot), file.bytes)
                        yield (file.written_at, file.path.name), segment

    def sent(self, paths: Sequence[Path]) -> None:
        """The other side has these durably: they go, and are counted. Errors: StorageError."""
        if not paths:
            return
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError("storage.undeletable", path=path, why=error.strerror) from error
        self._count(read_contributions(self.folder).with_sent([path.name for path in paths], self._clock()))

    def refused(self, path: Path, reason: str) -> None:
        """The other side will never take this one: out of the way with it, and counted. Errors: StorageError."""
        kept = self.path / "refused"
        try:
            kept.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.replace(path, kept / path.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError("outbox.unmovable", path=path, to=kept, why=error.strerror) from error
        counts = read_contributions(self.folder)
        refused = dict(counts.refused)
        count_reason(refused, reason)
        self._count(counts.model_copy(update={"refused": refused, "judged_at": self._clock()}))

    def keeps_unknown(self, path: Path) -> bool:
        """Whether a segment of a run that the other side does not know may stay: it is younger than `UNKNOWN_KEPT_S`,
        and all that waits takes half of the box at most. False where it is gone. Errors: OSError.
        """
        try:
            age_s = self._clock() - path.stat().st_mtime
        except FileNotFoundError:
            return False
        count, size = self.usage()
        return age_s < UNKNOWN_KEPT_S and 2 * count <= self.max_segments and 2 * size <= self.max_bytes

    def judged(self, verdicts: Sequence[SegmentVerdict]) -> None:
        """Count what the learner said. Errors: StorageError."""
        before = read_contributions(self.folder)
        after = before.with_verdicts(verdicts, self._clock())
        if after != before:
            self._count(after)

    def _count(self, counts: Contributions) -> None:
        path = _counts_file(self.folder)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_json(path, counts.model_dump())

    def tidy(self) -> None:
        """Delete what writers that were killed left in tmp/, and the oldest refused ones above their limit."""
        now = self._clock()
        for file in files_in(self.path / "tmp"):
            if now - file.written_at > ABANDONED_AFTER_S:
                file.path.unlink(missing_ok=True)
        kept = 0
        for file in sorted(files_in(self.path / "refused"), key=lambda file: -file.written_at):
            kept += file.bytes
            if kept > MAX_REFUSED_BYTES:
                file.path.unlink(missing_ok=True)


def _write_private(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def observe(folder: Path, tell: Callable[[], None]) -> BaseObserver | None:
    """Call `tell`, in another thread, when something comes into `folder` or below it, until what is returned is told to
    `stop`. None where this system refuses (inotify's limits, a foreign file system): looking now and then is enough.
    """
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers import Observer

    class Handler(FileSystemEventHandler):
        def on_created(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - whatever it is, somebody looks
            tell()

        def on_moved(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - as above
            tell()

    observer = Observer()
    observer.daemon = True
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        observer.schedule(Handler(), str(folder), recursive=True)
        observer.start()
    except OSError:
        return None
    return observer


#: Runs that nobody plays any more need no line for ever.
MAX_PLAYED = 200


class Played(BaseModel):
    """One verdict: `version` as `str(Version)`; `ok` or else the `error` as a phrase; unix time."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str
    ok: bool
    error: Annotated[str, AfterValidator(printable)] = ""
    at: float


def played_file(folder: Path) -> Path:
    """Where the verdicts of the mirror `folder` lie."""
    return folder / "state" / "played.json"


def read_played(folder: Path) -> dict[str, Played]:
    """`<run id>/<slot>` → the last verdict; empty where there is none, or none that can be read."""
    try:
        return {str(key): Played.model_validate(value) for key, value in read_json(played_file(folder)).items()}
    except (OSError, ValueError, ValidationError, AttributeError):
        return {}


def note_played(
    folder: Path, place: SlotPlace, version: object, ok: bool, error: str = "", *, now: float | None = None
) -> bool:
    """Note an actor's verdict on `version` of `place`.

    False where it cannot be written: that costs a line of `status`, not the actor.
    Two actors that write at once may lose one of the two words; the next one writes it again.
    """
    verdict = Played(version=str(version), ok=ok, error=error, at=time.time() if now is None else now)
    known = {**read_played(folder), f"{place.run_id}/{place.slot}": verdict}
    newest = sorted(known.items(), key=lambda item: item[1].at)[-MAX_PLAYED:]
    path = played_file(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(path, {key: value.model_dump() for key, value in newest})
    except OSError:
        return False
    return True
