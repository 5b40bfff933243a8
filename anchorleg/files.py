"""Writing files so that a crash, at any instruction, leaves either the old one or the new one.

Everything here holds on shared network folders too, where neither `flock` nor SQLite can be trusted and
`os.replace` is no compare-and-swap: exclusive creation goes through `os.link`, which POSIX makes atomic
and NFS implements on the server (open(2), "NOTES", on O_EXCL and NFS).

Standard library only: the job's side of the contract (`anchorleg.job`, `orchestrator.shim`) uses it.

What is made in a group's folder (setgid) is the group's to read, whatever the umask says; elsewhere the umask decides.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

#: What an unfinished file may be old (s) before it counts as left behind by a dead writer.
LEFT_BEHIND_S = 600.0
#: A shared folder that refuses a read (ESTALE, EIO) mostly grants it a moment later: so often it is asked, with such
#: pauses, and not again when so long has passed. A mount that answers after minutes would be asked for an hour.
READ_TRIES = 20
READ_PAUSE_S = 0.25
READ_PATIENCE_S = READ_TRIES * READ_PAUSE_S
#: What no moment changes: rights, or what lies in a path's way.
_LASTING = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
#: Names of unfinished files.
_TEMPORARY = re.compile(r"\..+\.tmp")

_T = TypeVar("_T")


def is_full(error: BaseException | None) -> bool:
    """Whether this is the error of a disk or a quota that is full."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def patiently(
    look: Callable[[], _T],
    *,
    tries: int = READ_TRIES,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> _T:
    """`look()`, again where a file cannot be read just now: for some five seconds where `tries` are `READ_TRIES`.
    Errors: those of the last look.
    """
    give_up_at = monotonic() + tries / READ_TRIES * READ_PATIENCE_S
    for _ in range(tries - 1):
        try:
            return look()
        except OSError as error:
            if error.errno in _LASTING or monotonic() > give_up_at:
                raise
        sleep(READ_PAUSE_S)
    return look()


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` durable. Errors: OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_tree(folder: Path) -> None:
    """Make all files in `folder`, and the names of all but its own, durable. Errors: OSError."""
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if os.path.islink(path):
                continue  # it is a name alone, and may lead nowhere
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        fsync_folder(Path(where))


def make_folder(folder: Path, mode: int = 0o755) -> None:
    """Create `folder` and its parents, where they are not there, durably, with `mode` as far as the umask lets it.
    Errors: OSError.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing or [folder]):
        path.mkdir(mode, exist_ok=True)
    for path in missing:
        fsync_folder(path.parent)


def _write_temporary(beside: Path, data: bytes, mode: int | None = None) -> Path:
    temporary = beside.with_name(f".{beside.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            made = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            wanted = made & 0o644 if mode is None else mode  # whom the umask lets write might choose what we run
            if made != wanted:
                os.fchmod(file.fileno(), wanted)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(beside)  # a full disk is met by write(2), which does not know where
        raise
    return temporary


def sweep_temporary(folder: Path, before: float) -> None:
    """Delete what killed writers left unfinished in `folder` before then (unix s); nothing behind a link. Where there
    is no folder, there is nothing. Errors: OSError.
    """
    try:
        names = [] if folder.is_symlink() else os.listdir(folder)
    except FileNotFoundError:
        return
    for name in filter(_TEMPORARY.fullmatch, names):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            if os.lstat(folder / name).st_mtime < before:
                os.unlink(folder / name)


def write_bytes(
    path: Path, data: bytes, *, mode: int | None = None, check: Callable[[Path], None] = lambda _temporary: None
) -> None:
    """Replace `path` by `data`: temporary file, fsync, rename, fsync of the folder. `mode` None: others may read it, as
    far as the umask lets them.

    `check` is shown the temporary file before the rename. Errors: OSError (disk full, no permission), whatever `check`
    raises; the old file is then untouched.
    """
    temporary = _write_temporary(path, data, mode)
    try:
        check(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def read_regular(path: str | os.PathLike[str], most: int, *, follow: bool = False) -> bytes:
    """The first `most` bytes of a file that somebody else may have put there: no pipe or device is waited for, and no
    link is followed unless `follow`. Errors: OSError, with EINVAL where it is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        with open(fd, "rb", closefd=False) as file:
            return file.read(min(most, found.st_size + 1))  # room for `most` is not there, where that is forged
    finally:
        os.close(fd)


def to_json(value: Any) -> bytes:
    """`value` as indented JSON with a final newline; keys in the order given."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """`write_bytes` of `value` as JSON."""
    write_bytes(path, to_json(value))


def read_json(path: Path) -> Any:
    """The JSON value in `path`. Errors: OSError; ValueError where it is not JSON, RecursionError where too deep."""
    return json.loads(path.read_bytes())


def read_json_or_none(path: Path) -> Any | None:
    """The JSON value in `path`, None where it is absent, torn or too deep: for files that are only hints."""
    try:
        return read_json(path)
    except (OSError, ValueError, RecursionError):
        return None


def link_count(path: Path) -> int:
    """How many names the file has, from a new open: a mount that caches what it knows of files (NFS, FUSE) asks its
    server again for that, and not for a `stat`. Errors: OSError.
    """
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_nlink


def create_exclusive(path: Path, data: bytes, *, mode: int | None = None) -> bool:
    """Create `path` with `data` unless it exists. True: we made it; False: somebody else has. `mode`: `write_bytes`'.

    A link count of 2 on our temporary file is the proof, not the return of `link`: an NFS server that
    loses its answer makes the client repeat the call and see EEXIST for its own success.
    """
    temporary = _write_temporary(path, data, mode)
    try:
        try:
            os.link(temporary, path)
            made = True
        except FileExistsError:
            made = link_count(temporary) == 2
        if made:
            fsync_folder(path.parent)
        return made
    finally:
        temporary.unlink(missing_ok=True)


def publish_folder(temporary: Path, final: Path) -> None:
    """Rename the finished folder `temporary` to `final` (same parent), durably.

    The caller has fsynced the files inside. Errors: FileExistsError/OSError where `final` is there and not empty.
    """
    fsync_folder(temporary)
    os.rename(temporary, final)
    fsync_folder(final.parent)


def remove_folder(folder: Path) -> None:
    """Take the number away first, so that nobody ever sees half a checkpoint; then delete. Errors: OSError.

    A program of somebody's own may have a file there, or a link: that goes, and not what it leads to.
    """
    doomed = folder
    if folder.name.isdigit():
        doomed = folder.with_name(f".{folder.name}.deleted")
        if os.path.lexists(doomed):
            _delete(doomed)
        os.rename(folder, doomed)
        fsync_folder(folder.parent)
    _delete(doomed)


def _delete(path: Path) -> None:
    import shutil

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def as_line(value: Any) -> bytes:
    """`value` as one line of JSON."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def append_lines(path: Path, *lines: bytes, mode: int = 0o666) -> None:
    """Append whole lines, all or none of them, with one `write` and an fsync, so that lines never interleave. `mode`:
    of a file that is made for them, as far as the umask lets it.

    A line before them that was written only in part (a kill) is closed first, and stays the only one lost.
    Errors: OSError (disk full): none is there then, unless somebody else appended at the same moment.
    """
    data = b"".join(lines)
    written = 0
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
    try:
        before = os.fstat(fd).st_size
        if before and os.pread(fd, 1, before - 1) != b"\n":
            data = b"\n" + data
        try:
            written = os.write(fd, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - as write(2) itself, a moment later
            os.fsync(fd)
        except OSError:
            if os.fstat(fd).st_size == before + written:
                os.ftruncate(fd, before)
            raise
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk is met by write(2), which does not know where
        raise
    finally:
        os.close(fd)


#: Of a group's folder and its files: members of the group read, others see nothing.
_FOLDER_MODE = 0o2750
_FILE_MODE = 0o640


def make_shared_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, durably.

    Inside a setgid folder new ones are 2750, whatever the umask says; elsewhere the umask decides. Errors: OSError.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            os.mkdir(new)
        except FileExistsError:
            continue  # another writer was quicker
        if is_a_groups(new.parent):
            os.chmod(new, _FOLDER_MODE)
        fsync_folder(new.parent)


def file_mode(folder: Path) -> int | None:
    """The mode of new files in `folder`: 0640 in a group's (setgid) folder, else None: as the umask says. Errors:
    OSError.
    """
    return _FILE_MODE if is_a_groups(folder) else None


def is_a_groups(folder: Path) -> bool:
    """Whether `folder` is setgid: what is made in it belongs to its group. Errors: OSError."""
    return bool(os.stat(folder).st_mode & stat.S_ISGID)
