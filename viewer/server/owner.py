"""Whose a port is, as far as this machine's `/proc` tells it (Linux)."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

_LISTENING = "0A"
_PROC = Path("/proc")


def owner_of_port(port: int, proc: Path = _PROC) -> str:
    """`process 4657 of anna: python3 -m http.server`, or as much of it as can be seen; "" where nothing can."""
    found = _listener(port, proc)
    if found is None:
        return ""
    uid, inode = found
    if uid != os.getuid():
        return f"of {_name(uid)}"
    pid = _process_with(inode, proc)
    if pid is None:
        return "of this account"
    return f"process {pid}{_command(pid, proc)}"


def _listener(port: int, proc: Path) -> tuple[int, str] | None:
    """(uid, inode) of who listens on the port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                return int(fields[7]), fields[9]
    return None


def _process_with(inode: str, proc: Path) -> int | None:
    for pid in (int(name.name) for name in proc.iterdir() if name.name.isdigit()):
        if f"socket:[{inode}]" in _open_files(proc / str(pid) / "fd"):
            return pid
    return None


def _open_files(folder: Path) -> set[str]:
    """What the links in `folder` lead to; those that vanish meanwhile, and folders of others, lead nowhere."""
    found = set()
    try:
        links = list(folder.iterdir())
    except OSError:
        return set()
    for link in links:
        with contextlib.suppress(OSError):
            found.add(os.readlink(link))
    return found


def _command(pid: int, proc: Path) -> str:
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = b" ".join(word for word in words if word).decode(errors="replace")
    return f": {text[:80]}" if text else ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"account {uid}"
