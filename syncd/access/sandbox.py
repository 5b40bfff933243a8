"""rsync within one folder: rsync's own daemon rules, put between a plain rsync client and us.

Checked options are not enough: an rsync client also sends *rules* through the connection, and a plain
`rsync --server` obeys them with the account's rights. `rsync --filter=': /etc/passwd' host:v1/runs/ .` prints the first
line of any file that the account can read (measured with rsync 3.2.7; rrsync has the same hole). rsync's daemon mode is
made for strangers: every path, rule and list is kept within its module. So a daemon is started for this one
connection, and we speak its greeting; from then on both sides say the same, and bytes are only passed on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from syncd.access.gate import Rsync
from syncd.errors import RemoteError

#: The newest protocol whose two greetings (binary for a shell, a line for a daemon) we know to be the same.
PROTOCOL = 31
#: rsync's own lowest.
OLDEST_PROTOCOL = 20
#: From this protocol on, a daemon reads its arguments up to a zero byte, before up to the end of the line.
_ZEROED_ARGUMENTS = 30
#: A client that says nothing for so long is dead.
SILENCE_S = 60
_CHUNK_BYTES = 64 * 1024
#: A greeting or an error line of the daemon is shorter.
_LONGEST_LINE_BYTES = 1024
_MODULE = "shared"
#: How often the size of what arrives is looked at: at 1 Gbit/s the disk gets 120 MB more at worst.
LOOK_EVERY_S = 1.0


def open_folder(shared: Path, parts: tuple[str, ...]) -> Path:
    """The folder `shared/parts…`, no component of which below `shared` is a link.

    Errors: RemoteError (not there, or a link in the way).
    """
    fd = -1
    try:
        fd = os.open(shared, os.O_RDONLY | os.O_DIRECTORY)
        for part in parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
    except OSError as error:
        raise RemoteError(f"{'/'.join(parts)} is no folder of the shared folder (yet)") from error
    finally:
        if fd >= 0:
            os.close(fd)
    return shared.joinpath(*parts)


def configuration(folder: Path, *, reads: bool) -> str:
    """rsyncd.conf(5) for one module. Errors: RemoteError where rsync could misread the folder's name."""
    text = str(folder)
    if not text.isprintable() or any(letter in text for letter in "%\\") or text != text.strip():
        raise RemoteError("the shared folder's name has characters that rsync's configuration cannot hold")
    lines = [
        "use chroot = no",
        "munge symlinks = yes",
        "log file = /dev/null",
        "reverse lookup = no",
        "max verbosity = 0",
        f"timeout = {SILENCE_S}",
        f"[{_MODULE}]",
        f"path = {text}",
        "list = no",
        f"read only = {'yes' if reads else 'no'}",
        f"write only = {'no' if reads else 'yes'}",
        "refuse options = delete remove-source-files copy-links copy-unsafe-links links devices specials log-file",
    ]
    if os.geteuid() == 0:  # else a daemon of root becomes nobody
        lines[:0] = ["uid = 0", "gid = 0"]
    return "\n".join(lines) + "\n"


def run_rsync(
    wanted: Rsync,
    folder: Path,
    *,
    longest_bytes: int,
    is_overfull: Callable[[], bool] = lambda: False,
    client: tuple[int, int] = (0, 1),
    look_every_s: float = LOOK_EVERY_S,
) -> int:
    """Serve `wanted` within `folder` to the rsync client at the descriptors `client` (in, out); rsync's exit code.

    No file longer than `longest_bytes` can be written; it ends when `is_overfull` (asked each `look_every_s`).
    Errors: RemoteError (no rsync, or one that cannot do it).
    """
    program = shutil.which("rsync")
    if program is None:
        raise RemoteError("there is no rsync on this side; use the transport openssh or paramiko")
    with tempfile.TemporaryFile("w+") as file:  # without a name: nothing is left, whatever ends us
        file.write(configuration(folder, reads=wanted.reads))
        file.flush()
        file.seek(0)
        ended, held = os.pipe()
        try:
            child = subprocess.Popen(
                [program, "--server", "--daemon", f"--config=/dev/fd/{file.fileno()}", "."],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(file.fileno(), held),
                cwd=folder,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                process_group=0,
                preexec_fn=None if wanted.reads else lambda: _limit(longest_bytes),  # noqa: PLW1509 - no thread yet
            )
        finally:
            os.close(held)
        try:
            return _carry(child, wanted, client, is_overfull, look_every_s)
        finally:
            _end(child, ended)
            os.close(ended)


def _end(child: subprocess.Popen[bytes], ended: int) -> None:
    """Kill what still runs of rsync, and wait until it is gone.

    rsync writes with two processes, of which `child` is one; the other one would go on writing into a folder that is
    being removed. Both hold the other end of the pipe `ended`, so its end is theirs.
    """
    if not select.select([ended], [], [], 0)[0]:
        _kill(child)
        select.select([ended], [], [], SILENCE_S)
    with contextlib.suppress(subprocess.TimeoutExpired):  # a disk that hangs: what stays is told by who removes it
        child.wait(timeout=SILENCE_S)


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the second of a dead group
        os.killpg(child.pid, signal.SIGKILL)


def _limit(longest_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest_bytes, longest_bytes))


def _carry(
    child: subprocess.Popen[bytes],
    wanted: Rsync,
    client: tuple[int, int],
    is_overfull: Callable[[], bool],
    look_every_s: float,
) -> int:
    """Introduce both sides to each other, then pass bytes on until the daemon ends."""
    if child.stdin is None or child.stdout is None:
        raise RemoteError("rsync cannot be reached")
    stdin, to_child, from_child = child.stdin, child.stdin.fileno(), child.stdout.fileno()
    try:
        _greet(wanted, client, (from_child, to_child))
    except EOFError:
        raise RemoteError("rsync ended before it began") from None
    over = threading.Event()

    def inwards() -> None:
        _pass_on(client[0], to_child)
        stdin.close()

    def watch() -> None:
        while not over.wait(look_every_s):
            try:
                is_enough = is_overfull()
            except OSError:  # what cannot be looked at must not grow unseen
                is_enough = True
            if is_enough:
                _kill(child)
                return

    # Daemon threads: the first may wait for a client that says nothing more, after the transfer is over.
    threading.Thread(target=inwards, daemon=True, name="to rsync").start()
    threading.Thread(target=watch, daemon=True, name="watch the staging").start()
    try:
        _pass_on(from_child, client[1])
        code = child.wait(timeout=SILENCE_S)
    finally:
        over.set()
    if code < 0:
        raise RemoteError("rsync was ended: more came than an inbox may hold, or this machine needed the memory")
    return code


def _greet(wanted: Rsync, client: tuple[int, int], daemon: tuple[int, int]) -> None:
    """The client's binary greeting, the daemon's spoken one, module and arguments. Errors: EOFError, RemoteError."""
    theirs = struct.unpack("<i", _read(client[0], 4))[0]
    hello = _line(daemon[0])
    if not hello.startswith(b"@RSYNCD: "):
        raise RemoteError("rsync on this side has no daemon mode; use the transport openssh or paramiko")
    ours = int(hello.split()[1].partition(b".")[0])
    protocol = min(theirs, ours, PROTOCOL)
    if protocol < OLDEST_PROTOCOL:
        raise RemoteError("the other rsync speaks a protocol that is too old")
    _write(client[1], struct.pack("<i", protocol))
    _write(daemon[1], b"@RSYNCD: %d.0\n%s\n" % (protocol, _MODULE.encode()))
    while not (answer := _line(daemon[0])).startswith(b"@RSYNCD: OK"):
        if answer.startswith((b"@ERROR", b"@RSYNCD: EXIT")):
            raise RemoteError(f"rsync refuses: {answer.decode(errors='replace').strip()}")
    words = ["--server", *(["--sender"] if wanted.reads else []), *wanted.options, ".", f"{_MODULE}/{wanted.name}"]
    end = b"\0" if protocol >= _ZEROED_ARGUMENTS else b"\n"
    _write(daemon[1], b"".join(word.encode() + end for word in words) + end)


def _read(fd: int, count: int) -> bytes:
    """Errors: EOFError at the end, or where nothing comes: nobody holds a process of ours by saying nothing."""
    data = b""
    while len(data) < count:
        if not select.select([fd], [], [], SILENCE_S)[0]:
            raise EOFError
        piece = _some(fd, count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _line(fd: int) -> bytes:
    """One line, byte by byte: what follows it belongs to the other side."""
    line = b""
    while not line.endswith(b"\n"):
        line += _read(fd, 1)
        if len(line) > _LONGEST_LINE_BYTES:
            raise RemoteError("rsync on this side speaks another language")
    return line


def _some(fd: int, most: int) -> bytes:
    """What there is to read, b"" at the end. The descriptor may have been made non-blocking by whoever gave it."""
    while True:
        try:
            return os.read(fd, most)
        except BlockingIOError:
            select.select([fd], [], [])
        except ConnectionError:
            return b""


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _pass_on(source: int, target: int) -> None:
    """Until the source ends or nobody listens to the target any more."""
    try:
        while data := _some(source, _CHUNK_BYTES):
            _write(target, data)
    except (BrokenPipeError, ConnectionError):
        return
