"""Where other accounts of the same machine (or of one cluster) put experience, and how it comes into their inboxes.

::

    incoming/<run_id>/<slot>/<sha256>.<chance>        put there by a member of the folder's group, whole, by a rename
    incoming/<run_id>/<slot>/<sha256>.<chance>.asked  the same, of somebody who will look into the inbox for the verdict
    incoming/<run_id>/<slot>/.<chance>.tmp            being written

The folder belongs to the learner's account. It is setgid and sticky (3770): a member of the group may add files, and
only their own account or the learner's may move or delete them. Everything else in the shared folder is 2750: members
read it. So nobody needs to be trusted: a policy, an inbox or somebody else's segment cannot be replaced. Nor is
somebody else at a segment's name first: the eight hexadecimal digits of chance in it are seen nowhere before.

Who gave a segment is what the file system says of the file's owner, never what its writer says
(`syncd.shared.accounts`). The learner copies what it takes into its own inbox folder, so that a process that still
has the file open changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import hashlib
import os
import re
import secrets
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from anchorleg.files import fsync_folder, is_a_groups, make_shared_folder
from syncd.errors import StorageError
from syncd.shared.accounts import called, claim_inbox, inbox_of
from syncd.shared.counts import Counts, counts
from syncd.shared.inbox import MAX_SEGMENT_BYTES, Inbox
from syncd.shared.layout import Shared
from syncd.shared.reception import Quota, Reception, Refusal, Stored, receive, spent, terms_of

#: Setgid, sticky, members of the group may add; others see nothing.
INCOMING_MODE = 0o3770
#: What one account may leave here for one slot: half a minute of what a learner judges, 250,000 steps.
MAX_WAITING = 500
#: Names that a learner looks at in one round (removing one takes 0.1 ms), and a giver that counts its own.
LOOKS = 500
MAX_LISTED = 20_000
#: A file that is none of ours, or that its writer did not finish.
ABANDONED_S = 600.0
#: How long a count of what waits is believed.
USAGE_BELIEVED_S = 2.0
_ASKED = ".asked"
_GIVEN = re.compile(rf"[0-9a-f]{{64}}\.[0-9a-f]{{8}}({re.escape(_ASKED)})?")
#: What is wrong with a file itself: a link, no permission, no regular file.
_ITS_OWN_FAULT = (errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)


def make_incoming(shared: Shared, run_id: str, slot: int) -> bool:
    """Make the folder for one slot, where the shared folder is a group's (setgid); whether it is. Errors: OSError."""
    if not is_a_groups(shared.path):
        return False
    folder = shared.incoming(run_id, slot)
    make_shared_folder(folder)
    if stat.S_IMODE(os.stat(folder).st_mode) != INCOMING_MODE:
        os.chmod(folder, INCOMING_MODE)
    return True


class Deposit:
    """The giver's side: puts segments into `incoming/` as the account that runs this.

    `who`: what its inbox is called. `is_dropped`: the folder's owner takes nothing from this account any more, as
    far as was seen lately. `most_waiting`: segments in one slot's folder.
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

    def inbox(self) -> Inbox | None:
        """The inbox of this account; None before the learner has taken anything of it. Errors: OSError."""
        return inbox_of(self._shared, os.geteuid())

    def has_room(self, run_id: str, slot: int) -> bool:
        """Whether `offer` would take one. Errors: StorageError, as there."""
        folder = self._shared.incoming(run_id, slot)
        with self._explained(folder, run_id, slot):
            self._count(folder)
        return self._is_open(folder)

    def offer(self, run_id: str, slot: int, data: bytes, *, asks: bool = False) -> bool:
        """Put a segment there, durably; False where as many wait as may, or where this account was dropped.

        `asks`: somebody will look into the inbox for the verdict.
        Errors: StorageError with one sentence: the folder is not there or not for us, the disk is full, or this account
        has given what one may give a day.
        """
        folder = self._shared.incoming(run_id, slot)
        with self._explained(folder, run_id, slot):
            self._count(folder)
            if self._spent is not None:
                raise StorageError("incoming.spent", sentence=self._spent.sentence)
            if not self._is_open(folder):
                return False
            _write_whole(folder / name_of(hashlib.sha256(data).hexdigest(), asks=asks), data)
        self._waiting[folder] += 1
        return True

    @contextlib.contextmanager
    def _explained(self, folder: Path, run_id: str, slot: int) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise StorageError("incoming.closed", slot=slot, run_id=run_id) from error
        except PermissionError as error:
            raise StorageError("incoming.not-a-member", who=self.who, path=folder, hint=_who_may(folder)) from error
        except OSError as error:
            raise StorageError("storage.unwritable", path=folder, why=error.strerror) from error

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

    def _is_open(self, folder: Path) -> bool:
        return self._waiting[folder] < self.most_waiting and not self.is_dropped

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


def name_of(sha256: str, *, asks: bool = False) -> str:
    """What a segment is called in its slot's folder: another name each time, where nobody else can be first."""
    return f"{sha256}.{secrets.token_hex(4)}{_ASKED * asks}"


def _is_mine(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    return False


def _sum_in(name: str) -> str:
    return name.partition(".")[0]


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
        return "ask its owner whether a folder above it is closed to you"
    try:
        name = grp.getgrgid(gid).gr_name
    except KeyError:
        name = str(gid)
    return f"it is for the group {name}; ask to be let in, then log in again"


class Incoming:
    """The learner's side of one slot's folder: what others put there comes into their inboxes.

    A round looks at `LOOKS` names at most, and the next one goes on where it stopped: junk makes a round no longer, and
    hides nothing for good. What is no segment goes, an empty folder too; so does what is left by somebody who was
    dropped, unread. Of the segments that were seen, the givers' are read in turns. For one thread.
    """

    def __init__(self, shared: Shared, run_id: str, slot: int) -> None:
        self._shared, self._run_id, self._slot = shared, run_id, slot
        self._folder = shared.incoming(run_id, slot)
        self._names = contextlib.ExitStack()
        self._left: Iterator[os.DirEntry[str]] | None = None
        self._lines: dict[int, dict[str, None]] = {}
        self._junk: Counter[int] = Counter()

    def close(self) -> None:
        """Let the folder go. May be called twice."""
        self._left = None
        self._names.close()

    def collect(self, most: int, *, now: float) -> list[str]:
        """Read at most `most` waiting segments, and copy the good ones into their givers' inboxes.

        What an inbox has no room for stays. `now`: unix seconds. Returns the sums of those that are in an inbox now,
        and about whose verdict nobody asks. Errors: OSError.
        """
        self._look(now)
        quotas: dict[int, Quota] = {}
        unasked: list[str] = []
        turns = deque(self._lines)
        while turns and most > 0:
            uid = turns.popleft()
            line = self._lines.pop(uid)
            self._lines[uid] = line  # who was served comes last the next time
            name = next(iter(line))
            answer = _take(self._shared, self._run_id, self._slot, uid, self._folder / name, quotas)
            if isinstance(answer, Refusal) and answer.retry_after_s is not None:
                continue  # no room for this giver now
            _remove(self._folder / name)
            most -= 1
            if isinstance(answer, Stored) and not name.endswith(_ASKED):
                unasked.append(_sum_in(name))
            del line[name]
            if line:
                turns.append(uid)
            else:
                del self._lines[uid]
        return unasked

    def _look(self, now: float) -> None:
        found = []
        is_dropped: dict[int, bool] = {}
        for name, status in self._next():
            uid = status.st_uid
            if uid not in is_dropped:
                inbox = inbox_of(self._shared, uid)
                is_dropped[uid] = inbox is not None and inbox.is_dropped
            if _GIVEN.fullmatch(name) and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                if is_dropped[uid]:
                    _remove(self._folder / name)
                else:
                    found.append((status.st_ctime, name, uid))
                continue
            self._junk[uid] += 1
            is_old = status.st_ctime < now - ABANDONED_S or self._junk[uid] > 2 * MAX_WAITING
            if is_old or is_dropped[uid] or not stat.S_ISREG(status.st_mode):
                _remove(self._folder / name)
        for uid in [uid for uid in self._lines if is_dropped.get(uid)]:
            del self._lines[uid]
        for _, name, uid in sorted(found):
            line = self._lines.setdefault(uid, {})
            if name in line or len(line) < 2 * MAX_WAITING:  # jobs of one account count by themselves
                line[name] = None
            else:
                _remove(self._folder / name)

    def _next(self) -> Iterator[tuple[str, os.stat_result]]:
        """(name, status) of the next names in the folder; links as links. Errors: OSError."""
        if self._left is None:
            self._left = self._names.enter_context(os.scandir(self._folder))
            self._junk.clear()
        seen = 0
        try:
            for entry in islice(self._left, LOOKS):
                seen += 1
                with contextlib.suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False)
        finally:
            if seen < LOOKS:
                self.close()


def _take(
    shared: Shared, run_id: str, slot: int, uid: int, path: Path, quotas: dict[int, Quota]
) -> Stored | Refusal | None:
    """Copy one file into the inbox of `uid`. None: it cannot be read, or is not what its name says."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ITS_OWN_FAULT or isinstance(error, FileNotFoundError):
            return None
        raise
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            return None
        data = file.read(MAX_SEGMENT_BYTES + 1)
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != _sum_in(path.name):
        return None
    inbox = claim_inbox(shared, uid)
    quota = quotas.setdefault(uid, Quota(inbox))
    answer = receive(inbox, run_id, slot, sha256, len(data), quota)
    if not isinstance(answer, Reception):
        return answer
    answer.write(data)
    return answer.finish()


def _remove(path: Path) -> None:
    """Delete a file, or a folder that somebody made here if it is empty; one that stays, or is gone, is no error."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        try:
            os.unlink(path)
        except IsADirectoryError:
            with contextlib.suppress(OSError):
                os.rmdir(path)
