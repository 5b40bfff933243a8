"""A shared folder and the other accounts of this cluster. The owner's folder is the group's to read (2750), and each
slot's folder in `v1/incoming/` is the group's to add to (3770, made by the slot's learner).
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path

from orchestrator.errors import ConfigError, StorageError
from orchestrator.run.rundir import RunDir

#: Setgid: what is made in it belongs to its group. Members read; others see nothing.
FOLDER_MODE = 0o2750
FILE_MODE = 0o640
#: Whose root's folders are in a container, or on a server that maps root to nobody.
NOBODY = 65534
#: What opening says of a link, a socket, what we may not read, and what is gone meanwhile.
_PASSED_OVER = (errno.ELOOP, errno.ENXIO, errno.EOPNOTSUPP, errno.EACCES, errno.ENOENT)


def share_with(folder: Path, group: str) -> None:
    """Give `folder` and all in it that is ours to `group`, to be read and not to be written, unless it is so already.
    Errors: ConfigError (no such group, or not ours), StorageError (not our folder).
    """
    gid = _gid_of(group)
    try:
        status = os.stat(folder)
        if status.st_gid == gid and status.st_mode & (FOLDER_MODE | stat.S_IWGRP) == FOLDER_MODE:
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _give(fd, gid)
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError("group.not-given", path=error.filename or folder, group=group, why=error.strerror) from None


def _give(fd: int, gid: int) -> None:
    """Give an open file, or a folder behind all that is in it: what was killed in between begins anew."""
    status = os.fstat(fd)
    is_folder = stat.S_ISDIR(status.st_mode)
    sticky = status.st_mode & (stat.S_ISVTX | stat.S_IWGRP) if status.st_mode & stat.S_ISVTX else 0
    for name in os.listdir(fd) if is_folder else ():
        _give_entry(name, fd, gid, is_open=bool(sticky))
    os.fchown(fd, -1, gid)
    # A folder to which the group adds is sticky, and stays that. After chown: it takes setgid away.
    os.fchmod(fd, (FOLDER_MODE if is_folder else FILE_MODE) | sticky)


def _give_entry(name: str, folder: int, gid: int, *, is_open: bool) -> None:
    """Give what `folder` has under `name`, where it is ours. `is_open`: others may add to the folder. They may put a
    link there at any moment: what is looked at is what is changed, and a file of several names may be another of ours.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in _PASSED_OVER:
            return
        raise
    try:
        status = os.fstat(fd)
        is_ours = os.geteuid() in {status.st_uid, 0}  # root may give all
        is_file = stat.S_ISREG(status.st_mode) and (status.st_nlink == 1 or not is_open)
        if is_ours and (is_file or stat.S_ISDIR(status.st_mode)):
            _give(fd, gid)
    except OSError as error:
        error.filename = error.filename or name
        raise
    finally:
        os.close(fd)


def _gid_of(group: str) -> int:
    """Errors: ConfigError where this account is not in it."""
    ours = {os.getegid(), *os.getgroups()}
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        gid = None
    if gid is not None and (gid in ours or os.geteuid() == 0):
        return gid
    mine = f"yours: {', '.join(sorted(map(_name_of, ours)))}"
    raise ConfigError("group.unknown" if gid is None else "group.not-a-member", group=group, mine=mine)


def check_theirs(shared: Path) -> None:
    """The folder for which actors are to play must be there, and open to us. Errors: ConfigError."""
    try:
        is_there = shared.is_dir()
    except PermissionError:
        is_there = False
    if not is_there or not os.access(shared, os.R_OK | os.X_OK):
        raise ConfigError("actors.no-folder", path=shared)


def troubles(run_dir: RunDir) -> list[str]:
    """Who may put another folder in the place of the run's, or of one above it, as "found. advice.": jobs would run
    what is in it, as us. As far as modes tell: an access list may open what they close.
    """
    folder = run_dir.path
    try:
        for place in reversed((folder, *folder.parents)):
            if not place.is_dir():
                break
            status = os.stat(place)
            if status.st_uid not in {0, os.geteuid(), NOBODY}:
                who = f"its owner {_account(status.st_uid)}"
            elif place == folder or status.st_mode & stat.S_ISVTX:
                continue  # our own run folder is closed by `start`
            elif status.st_mode & stat.S_IWOTH:
                who = "everybody"
            elif status.st_mode & stat.S_IWGRP and not _is_ours_alone(status.st_gid):
                who = f"members of {_name_of(status.st_gid)}"
            else:
                continue
            mode = stat.S_IMODE(status.st_mode)
            found = f"{who} can replace the contents of {place} (mode {mode:o}), and jobs would run it as you."
            return [f"{found} Choose a run_dir below a folder that only you can write to, or trust them."]
    except OSError as error:
        return [f"{error.filename or folder} cannot be read ({error.strerror}). Ask its owner."]
    return []


def _is_ours_alone(gid: int) -> bool:
    """The group that many systems make for each account."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == _account(os.geteuid()) and set(group.gr_mem) <= {group.gr_name}


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"account {uid}"


def _name_of(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
