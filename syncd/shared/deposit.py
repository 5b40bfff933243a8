"""An account at somebody else's shared folder, which it reads, and adds to `incoming/` (`syncd.shared.incoming`):
`trainer actors --direct`, and `syncd serve` of a laptop that logs in as another account than the folder's owner.

The file system holds it to what every account may. Its verdicts lie in the inbox that the owner's learner keeps for it.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from anchorleg.files import fsync_folder
from syncd.errors import StorageError
from syncd.shared.counts import Counts, counts
from syncd.shared.inbox import Inbox, InboxVerdict
from syncd.shared.incoming import MAX_WAITING, PREFIX, called, inbox_of
from syncd.shared.layout import Shared
from syncd.shared.reception import (
    QUOTA_RETRY_S,
    STORAGE_RETRY_S,
    Reception,
    Refusal,
    Stored,
    dropped,
    is_stored,
    objection,
    spent,
    terms_of,
)

#: Names that a giver looks at to count its own.
MAX_LISTED = 20_000
#: How long a count of what waits is believed.
USAGE_BELIEVED_S = 2.0


class Deposit:
    """The account that runs this. `who`: what its inbox is called. `is_dropped`: the folder's owner takes nothing from
    this account any more, as far as was seen lately. `most_waiting`: segments in one slot's folder.
    """

    def __init__(
        self, shared: Shared, clock: Callable[[], float] = time.monotonic, most_waiting: int = MAX_WAITING
    ) -> None:
        self.is_dropped = False
        self.most_waiting = most_waiting
        self._shared = shared
        inbox = self.inbox()
        self.who = called(os.geteuid()) if inbox is None else inbox.who
        self._clock = clock
        self._waiting: dict[Path, int] = {}
        self._spent: Refusal | None = None
        self._counted_at: dict[Path, float] = {}
        self._acknowledged: set[str] = set()

    def inbox(self) -> Inbox | None:
        """The inbox of this account; None before the learner has taken anything of it. Errors: OSError."""
        return inbox_of(self._shared, os.geteuid())

    def offer(self, run_id: str, slot: int, data: bytes) -> bool:
        """Put a segment there, durably; False where as many wait as may, or where this account was dropped.

        Errors: StorageError with one sentence: the folder is not there or not for us, the disk is full, or this account
        has given what one may give a day.
        """
        folder = self._shared.incoming(run_id, slot)
        try:
            self._count(folder)
            if self._spent is not None:
                raise StorageError("incoming.spent", sentence=self._spent.sentence)
            if self._waiting[folder] >= self.most_waiting or self.is_dropped:
                return False
            _write_whole(folder / name_of(hashlib.sha256(data).hexdigest()), data)
        except FileNotFoundError as error:
            raise StorageError("incoming.closed", slot=slot, run_id=run_id) from error
        except PermissionError as error:
            raise StorageError("incoming.not-a-member", who=self.who, path=folder, hint=_who_may(folder)) from error
        except OSError as error:
            raise StorageError("storage.unwritable", path=folder, why=error.strerror) from error
        self._waiting[folder] += 1
        return True

    def receive(
        self, run_id: str, slot: int, sha256: str, size: int, version: str | None = None
    ) -> Reception | Stored | Refusal:
        """Take in a segment: see `syncd.shared.reception.receive`. Errors: OSError."""
        inbox = self.inbox()
        # Before anything was taken there is no inbox, nobody is dropped, and no name begins so.
        asked = inbox or Inbox(who=self.who, path=self._shared.inbox_folder / f".{PREFIX}none")
        if (refusal := objection(asked, run_id, slot, sha256, size, version=version)) is not None:
            return refusal
        if inbox is not None and is_stored(inbox, run_id, slot, sha256):
            return Stored()
        if not self._shared.incoming(run_id, slot).is_dir():
            return Refusal("no inbox", f"slot {slot} of {run_id} accepts nothing from other accounts", STORAGE_RETRY_S)

        def keep(data: bytes) -> Stored | Refusal:
            try:
                if self.offer(run_id, slot, data):
                    return Stored()
            except StorageError as error:
                return Refusal("storage", str(error), STORAGE_RETRY_S)
            if self.is_dropped:
                return dropped(self.who)
            # Of this slot: the client sends those of others meanwhile.
            words = f"{self.most_waiting} segments of {self.who} already wait for this slot's learner"
            return Refusal("full", words, QUOTA_RETRY_S)

        return Reception(sha256, size, keep)

    def verdicts(self) -> list[InboxVerdict]:
        """Answers that were not acknowledged here, as many as an inbox hands out. Errors: OSError."""
        inbox = self.inbox()
        return [] if inbox is None else inbox.verdicts(self._acknowledged)

    def acknowledge(self, sha256s: Iterable[str]) -> None:
        """The client has these verdicts. They lie where they are: the inbox is the owner's."""
        self._acknowledged.update(sha256s)

    def count(self) -> int:
        """How many segments of ours wait in the folders that were written to, as counted lately."""
        for folder in list(self._waiting):
            with contextlib.suppress(OSError):
                self._count(folder)
        return sum(self._waiting.values())

    def judged(self) -> Counts:
        """What became of everything that this account ever gave to this shared folder, and that was judged."""
        inbox = self.inbox()
        return Counts() if inbox is None else counts(inbox.path)

    def _count(self, folder: Path) -> None:
        """Count what waits in `folder`, unless that was done just now. Errors: OSError."""
        now = self._clock()
        if now - self._counted_at.get(folder, float("-inf")) < USAGE_BELIEVED_S:
            return
        with os.scandir(folder) as entries:
            self._waiting[folder] = sum(map(_is_mine, islice(entries, MAX_LISTED)))
        self._counted_at[folder] = now
        inbox = self.inbox()
        self.is_dropped = inbox is not None and inbox.is_dropped
        run_id = folder.parent.name
        most = terms_of(self._shared.runs, run_id).rows_per_day
        self._spent = spent(inbox, run_id, most, time.time()) if inbox is not None else None


def name_of(sha256: str) -> str:
    """What a segment is called in its slot's folder: another name each time, where nobody else can be first."""
    return f"{sha256}.{secrets.token_hex(4)}"


def _is_mine(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _write_whole(final: Path, data: bytes) -> None:
    temporary = final.with_name(f".{secrets.token_hex(8)}.tmp")  # it is seen before the rename: it tells no name
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        with open(fd, "wb") as file:
            os.fchmod(fd, 0o640)  # the learner reads it as a member of the group, whatever our umask is
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    fsync_folder(final.parent)


def _who_may(folder: Path) -> str:
    """What to do about a folder that we may not write into."""
    try:
        gid = os.stat(folder).st_gid
    except OSError:
        return "ask its owner whether a parent folder is closed to you"
    try:
        name = grp.getgrgid(gid).gr_name
    except KeyError:
        name = str(gid)
    return f"it belongs to the group {name}: ask to be added, then log in again"
