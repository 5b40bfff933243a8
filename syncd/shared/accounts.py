"""Which inbox belongs to which account of the machine, and that nobody else writes where inboxes are.

::

    accounts/<uid>.json    {"inbox": "user-ben"}: written once, by the learner that first took something of it

Who gives as an account of its own is known by the owner of its files, a number that the file system tells. What the
account is called is for people: a name may change, or not be told for a while (a directory service that is down), and
an account that was dropped must not come back by that.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from anchorleg.files import make_shared_folder, read_json_or_none
from syncd.shared.inbox import Inbox
from syncd.shared.layout import NAME, Shared, folder_names, put_once

#: How the inboxes of accounts are called. No restricted key may be.
PREFIX = "user-"


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
        raise OSError(errno.EIO, "it does not say whose inbox it is", str(shared.accounts / f"{uid}.json"))
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
    for folder in (inbox.path.parent, inbox.path):
        _insist_ours(folder)


def _insist_ours(folder: Path) -> None:
    if not _is_ours(folder):
        raise PermissionError(errno.EPERM, "it belongs to another account: move it away", str(folder))


def _is_ours(folder: Path) -> bool:
    return os.lstat(folder).st_uid == os.geteuid()


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
        names[:] = [name for name in real if _is_ours(Path(folder, name))]
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
            f"others can put something else in the place of what lies in {folder}, which is not yours (mode {mode:o}): "
            "choose a collaboration.shared_dir of your own, or ask its owner for chmod +t"
        )
    return None
