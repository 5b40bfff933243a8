"""The token of this account, and a folder for a socket: both for nobody else's eyes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from anchorleg.files import make_folder, write_bytes
from anchorleg.places import own_folder
from viewer.errors import BusyError, StorageError

#: 256 bits, as 43 letters that a URL takes as they are.
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700
#: Below this path: it is emptied at a reboot, is on this machine's disk, and its names are short. `$XDG_RUNTIME_DIR`
#: goes at logout, and a home folder may be a network's, where sockets may not be.
SOCKETS = Path("/tmp")  # noqa: S108 - the folder in it is made 0700, and looked at
#: A Unix socket's path has 104 bytes on macOS, 108 on Linux, with the zero at its end.
MOST_BYTES = 100


def load_token(environ: Mapping[str, str] = os.environ) -> str:
    """The token of this account, made at the first call. Kept, so that a page that is open survives a restart.

    A file that others may read is no secret any more: a new one is made. Errors: StorageError.
    """
    path = token_file(environ)
    try:
        known = path.read_text(encoding="ascii").strip()
        is_private = not stat.S_IMODE(path.stat().st_mode) & 0o077 and path.stat().st_uid == os.getuid()
        if is_private and _TOKEN.fullmatch(known):
            return known
    except (OSError, ValueError):
        pass  # there is none that can be used: the next lines make one, or say why not
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        make_folder(path.parent)
        write_bytes(path, f"{token}\n".encode(), mode=_PRIVATE_FILE)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}): the page's token is kept there.") from None
    return token


def token_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where it is kept."""
    return own_folder("state", environ) / "viewer.token"


def write_signpost(url: str, environ: Mapping[str, str] = os.environ) -> Path:
    """A file for this account's eyes that leads a browser to `url`: on its command line everybody could read the token.

    Errors: StorageError.
    """
    path = own_folder("state", environ) / "viewer-open.html"
    words = (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}"><title>viewer</title>'
    )
    try:
        make_folder(path.parent)
        write_bytes(path, f"{words}\n".encode(), mode=_PRIVATE_FILE)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}): open the address yourself.") from None
    return path


def check_folder(folder: Path) -> None:
    """Whether nobody but us gets into `folder`. Errors: BusyError where others do, or it is theirs; StorageError."""
    try:
        seen = folder.lstat()
    except OSError as error:
        raise StorageError(f"{folder} cannot be used for a socket: {error.strerror}.") from None
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise BusyError(f"{folder} belongs to somebody else: name another socket with --socket PATH.")
    if stat.S_IMODE(seen.st_mode) & 0o077:
        raise BusyError(f"{folder} is open to others: `chmod 700 {folder}`, or name another socket with --socket PATH.")


def socket_path(name: str, base: Path = SOCKETS) -> Path:
    """Where the socket of `name` goes: `/tmp/anchorleg-viewer-<uid>/<name>.sock`. The folder is made, 0700 and ours.

    Errors: BusyError where somebody else has that folder or has opened it to others; StorageError.
    """
    folder = base / f"anchorleg-viewer-{os.getuid()}"
    try:
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be made ({error.strerror}): the page's socket lies in it.") from None
    check_folder(folder)
    short = re.sub(r"[^A-Za-z0-9._-]", "-", name)[: MOST_BYTES - len(bytes(folder)) - len("/.sock")]
    return folder / f"{short or 'run'}.sock"


def free_socket(path: Path) -> None:
    """Clear away a socket that nobody serves any more: its process was killed. One that answers stays.

    Errors: BusyError where somebody serves there, or it is no socket; StorageError.
    """
    if len(bytes(path)) > MOST_BYTES:
        raise StorageError(f"{path} is too long for a socket ({MOST_BYTES} bytes at most): name a shorter one.")
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path} cannot be looked at: {error.strerror}.") from None
    if not stat.S_ISSOCK(seen.st_mode):
        raise BusyError(f"{path} is there, and is no socket: name another one with --socket PATH.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise BusyError(f"another viewer serves at {path} already: end it, or name another socket with --socket PATH.")


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One viewer at a time clears away what is left there and makes its own: two would clear away each other's.

    Errors: StorageError.
    """
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StorageError(f"{folder} cannot be used for a socket: {error.strerror}.") from None
    try:
        with contextlib.suppress(OSError):  # a file system without locks: as it would be alone
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


@contextlib.contextmanager
def private_folder(folder: Path) -> Iterator[None]:
    """A new folder that nobody but us enters, and that goes with what is in it. Errors: StorageError."""
    try:
        folder.mkdir(mode=_PRIVATE_FOLDER)
    except OSError as error:
        raise StorageError(f"{folder} cannot be made ({error.strerror}): the page's socket lies in it.") from None
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def leave(path: Path, inode: int) -> None:
    """Clear away our own socket; another viewer may have one of its name since."""
    with contextlib.suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()
