"""The sockets at which a page is served, and its access token: for nobody else's eyes."""

from __future__ import annotations

import contextlib
import errno
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
from viewer.errors import BusyError, StorageError, UsageError

#: Never another address: others on this machine's networks have no business here.
LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 32
_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700
#: Below this path: it is emptied at a reboot, is on this machine's disk, and its names are short. `$XDG_RUNTIME_DIR`
#: goes at logout, and a home folder may be a network's, where sockets may not be.
SOCKETS = Path("/tmp")  # noqa: S108 - the folder in it is made 0700, and looked at
#: A Unix socket's path has 104 bytes on macOS, 108 on Linux, with the zero at its end.
MOST_BYTES = 100


def access_token() -> str:
    """A new one: 256 bits, as 43 letters that a URL takes as they are. A viewer that ended leaves none that is worth
    anything to who takes its port.
    """
    return secrets.token_urlsafe(TOKEN_BYTES)


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
        raise StorageError("page.no-signpost", path=path, why=error.strerror) from None
    return path


def open_port(port: int) -> socket.socket:
    """A listening socket on this machine's loopback; 0: any port. Errors: BusyError where another program has it;
    UsageError where nobody has it, and it cannot be had.
    """
    sock = socket.socket(socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((LOOPBACK, port))
        sock.listen()
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise BusyError("port.taken", port=port) from None
        raise UsageError("port.not-opened", port=port, why=error.strerror) from None
    return sock


def open_socket(path: Path) -> socket.socket:
    """A listening Unix socket, for this account alone; `free_socket` looked before. Errors: StorageError."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(path))
        path.chmod(_PRIVATE_FILE)
        sock.listen()
    except OSError as error:
        sock.close()
        raise StorageError("socket.not-made", path=path, why=error.strerror) from None
    return sock


def check_folder(folder: Path) -> None:
    """Whether nobody but us gets into `folder`. Errors: BusyError where others do, or it is theirs; StorageError."""
    try:
        seen = folder.lstat()
    except OSError as error:
        raise StorageError("socket.folder-unusable", folder=folder, why=error.strerror) from None
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise BusyError("socket.folder-of-others", folder=folder)
    if stat.S_IMODE(seen.st_mode) & 0o077:
        raise BusyError("socket.folder-open", folder=folder)


def socket_path(name: str, base: Path = SOCKETS) -> Path:
    """Where the socket of `name` goes: `/tmp/anchorleg-viewer-<uid>/<name>.sock`. The folder is made, 0700 and ours.

    Errors: BusyError where somebody else has that folder or has opened it to others; StorageError.
    """
    folder = base / f"anchorleg-viewer-{os.getuid()}"
    try:
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise StorageError("socket.folder-not-made", folder=folder, why=error.strerror) from None
    check_folder(folder)
    short = re.sub(r"[^A-Za-z0-9._-]", "-", name)[: MOST_BYTES - len(bytes(folder)) - len("/.sock")]
    return folder / f"{short or 'run'}.sock"


def free_socket(path: Path) -> None:
    """Clear away a socket that nobody serves any more: its process was killed. One that answers stays.

    Errors: BusyError where somebody serves there, or it is no socket; StorageError.
    """
    if len(bytes(path)) > MOST_BYTES:
        raise StorageError("socket.path-too-long", path=path, most=MOST_BYTES)
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError("socket.path-unreadable", path=path, why=error.strerror) from None
    if not stat.S_ISSOCK(seen.st_mode):
        raise BusyError("socket.not-a-socket", path=path)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise BusyError("socket.taken", path=path)


@contextlib.contextmanager
def private_folder(folder: Path) -> Iterator[None]:
    """A new folder that nobody but us enters, and that goes with what is in it. Errors: StorageError."""
    try:
        folder.mkdir(mode=_PRIVATE_FOLDER)
    except OSError as error:
        raise StorageError("socket.folder-not-made", folder=folder, why=error.strerror) from None
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
