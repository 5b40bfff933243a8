"""What other accounts of the same machine (or of one cluster) give, on the side of the shared folder's owner.

::

    incoming/<run_id>/<slot>/<sha256>.<chance>   put there by a member of the folder's group, whole, by a rename
    incoming/<run_id>/<slot>/.<chance>.tmp       being written
    accounts/<uid>.json    {"inbox": "user-ben"}: written once, by the learner that first took something of it

The folder belongs to the learner's account. It is setgid and sticky (3770): a member of the group may add files, and
only their own account or the learner's may move or delete them. Everything else in the shared folder is 2750: members
read it. So nobody needs to be trusted: a policy, an inbox or somebody else's segment cannot be replaced. Nor is
somebody else at a segment's name first: the eight hexadecimal digits of chance in it are seen nowhere before.

Who gave a segment is what the file system says of the file's owner, never what its writer says. What the account is
called is for people: a name may change, or not be told for a while (a directory service that is down), and an account
that was dropped must not come back by that. The learner copies what it takes into its own inbox folder, so that a
process that still has the file open changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import pwd
import re
import stat
from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from anchorleg.files import is_a_groups, make_shared_folder, read_json_or_none
from syncd.shared.inbox import MAX_SEGMENT_BYTES, Inbox
from syncd.shared.layout import NAME, Shared, folder_names, put_once
from syncd.shared.reception import Quota, Reception, Refusal, Stored, receive

#: How the inboxes of accounts are called. No restricted key may be.
PREFIX = "user-"
#: Setgid, sticky, members of the group may add; others see nothing.
INCOMING_MODE = 0o3770
#: What one account may leave here for one slot: half a minute of what a learner judges, 250,000 steps.
MAX_WAITING = 500
#: Names that a learner looks at in one round: removing one takes 0.1 ms.
LOOKS = 500
#: A file that is none of ours, or that its writer did not finish.
ABANDONED_S = 600.0
#: The last part was told by earlier versions.
_GIVEN = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{8}(\.asked)?")
#: What is wrong with a file itself: a link, no permission, no regular file.
_ITS_OWN_FAULT = (errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO)


def called(uid: int) -> str:
    """What the inbox of account `uid` is called, unless that is another one's already."""
    try:
        name = PREFIX + pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    return name if NAME.fullmatch(name) else f"{PREFIX}{uid}"


def inbox_of(shared: Shared, uid: int) -> Inbox | None:
    """The inbox of account `uid`; None where nothing of it was taken yet. Errors: OSError."""
    who = _noted(shared.accounts / f"{uid}.json")
    return Inbox.of(shared, who) if who is not None else None


def claim_inbox(shared: Shared, uid: int) -> Inbox:
    """The inbox of account `uid`, from now on whatever it is called. For the folder's owner. Errors: OSError."""
    make_shared_folder(shared.accounts)
    _insist_ours(shared.accounts)
    found = inbox_of(shared, uid)
    if found is None:
        taken = {_noted(path) for path in shared.accounts.glob("*.json")}
        names = itertools.chain([called(uid)], (f"{PREFIX}{uid}-{number}" for number in itertools.count(1)))
        who = next(name for name in names if name not in taken)
        put_once(shared.accounts / f"{uid}.json", json.dumps({"inbox": who}).encode())
        found = inbox_of(shared, uid)  # another slot's learner may have been quicker
    if found is None:
        raise OSError(errno.EIO, "it does not name an inbox", str(shared.accounts / f"{uid}.json"))
    return found


def _noted(path: Path) -> str | None:
    value = read_json_or_none(path)
    who = value.get("inbox") if isinstance(value, dict) else None
    return who if isinstance(who, str) and NAME.fullmatch(who) else None


def is_ours(shared: Shared) -> bool:
    """Whether the account that runs this owns the shared folder. Errors: OSError where there is none."""
    top = shared.path / "v1"
    return os.stat(top if top.exists() else shared.path).st_uid == os.geteuid()


def insist_ours(inbox: Inbox) -> None:
    """Errors: OSError where another account made this inbox: what lies there is whatever it likes."""
    _insist_ours(inbox.path.parent, inbox.path)


def _insist_ours(*folders: Path) -> None:
    for folder in folders:
        if os.lstat(folder).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another account: move it away", str(folder))


def close_to_others(shared: Shared) -> list[str]:
    """Take away everybody else's right to write where inboxes are; what cannot be mended, in one sentence each.

    For the folder's owner. Errors: OSError.
    """
    told = [_close(shared.path.parent, only_look=True), *map(_close, _guarded(shared))]
    return [sentence for sentence in told if sentence is not None]


def _guarded(shared: Shared) -> Iterator[Path]:
    yield from (shared.path, shared.path / "v1", shared.runs, shared.accounts, shared.incoming_folder)
    yield shared.inbox_folder
    for folder, names, _ in os.walk(shared.inbox_folder):
        real = folder_names(Path(folder))  # no links; and what is another's is not looked into
        names[:] = [name for name in real if os.lstat(Path(folder, name)).st_uid == os.geteuid()]
        yield from (Path(folder, name) for name in names)


def _close(folder: Path, *, only_look: bool = False) -> str | None:
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    others_write = mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_uid == os.geteuid():
        if others_write and stat.S_ISDIR(status.st_mode) and not only_look:
            os.chmod(folder, mode & ~others_write)
    elif others_write and not mode & stat.S_ISVTX:
        return (
            f"others can replace the contents of {folder}, which is not yours (mode {mode:o}): "
            "choose a collaboration.shared_dir of your own, or ask its owner for chmod +t"
        )
    return None


def make_incoming(shared: Shared, run_id: str, slot: int) -> bool:
    """Make the folder for one slot, where the shared folder is a group's (setgid); whether it is. Errors: OSError."""
    if not is_a_groups(shared.path):
        return False
    folder = shared.incoming(run_id, slot)
    make_shared_folder(folder)
    if stat.S_IMODE(os.stat(folder).st_mode) != INCOMING_MODE:
        os.chmod(folder, INCOMING_MODE)
    return True


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

        What an inbox has no room for stays. `now`: unix seconds. Returns the sums of those that are in an inbox now.
        Errors: OSError.
        """
        self._look(now)
        quotas: dict[int, Quota] = {}
        taken: list[str] = []
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
            if isinstance(answer, Stored):
                taken.append(_sum_in(name))
            del line[name]
            if line:
                turns.append(uid)
            else:
                del self._lines[uid]
        return taken

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


def _sum_in(name: str) -> str:
    return name.partition(".")[0]


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
