"""What a contributor's restricted key may ask for: our own server, and nothing else.

`syncd.commands.serve` carries it out; `restrict` in `authorized_keys` forbids the rest
(shell, forwarding, terminal, agent). What the server shows and takes is its own decision (`syncd.wire.feed`).

No rsync: its client sends rules, names and options through the connection, and its server obeys them with the
account's rights. A wall around it is as good as the installed version of rsync (3.5.0 alone mends dozens of CVEs).
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from anchorleg.places import own_folder
from syncd.errors import ConfigError, RefusedError, StorageError
from syncd.shared.incoming import PREFIX
from syncd.shared.layout import NAME

#: Longer than any honest command.
LONGEST_COMMAND = 4096
_KEY_TYPES = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
)


def check(command: str | None, who: str, shared: str) -> None:
    """Whether `who` gets our server for the `command` that its client sent (SSH_ORIGINAL_COMMAND).

    What the client says of folders and names is not asked. `shared`: absolute `$SHARED`. Errors: RefusedError.
    """
    if not NAME.fullmatch(who) or not shared.startswith("/"):
        raise RefusedError("gate.bad-line")
    if not command:
        raise RefusedError("gate.no-shell")
    if len(command) > LONGEST_COMMAND or not command.isprintable():
        raise RefusedError("gate.bad-command")
    try:
        words = shlex.split(command)
    except ValueError:
        raise RefusedError("gate.open-quotes") from None
    program = words[0].rpartition("/")[2] if words else "nothing"
    if program == "syncd" and words[1:2] == ["serve"]:
        return
    if program == "rsync":
        raise RefusedError("gate.no-rsync")
    raise RefusedError("gate.other-program", program=program[:40])


def authorized_keys_line(
    who: str, public_key: str, gate: Sequence[str], shared: str, *, checkpoints: bool = False
) -> str:
    """The line that lets `public_key` in as `who`, to this gate only.

    `gate`: the words of our absolute `syncd` command. `checkpoints`: it may read whole checkpoints, too.
    Errors: ConfigError (a name or a key that is none, a path that could break the line).
    """
    if not NAME.fullmatch(who):
        raise ConfigError("name.unusable", name=who)
    if who.startswith(PREFIX):
        raise ConfigError("name.reserved", name=who, prefix=PREFIX)
    kind, blob = _public_key(public_key)
    words = [*gate, "gate", who, "--shared", shared, *(["--checkpoints"] if checkpoints else [])]
    if not all(word and word.isprintable() for word in words) or not (words[0].startswith("/") and shared[:1] == "/"):
        raise ConfigError("gate.relative-path")
    # sshd takes \" for a quote and leaves everything else to the account's shell (sshd(8), AUTHORIZED_KEYS).
    command = shlex.join(words).replace('"', '\\"')
    return f'restrict,command="{command}" {kind} {blob} {who}'


def _public_key(line: str) -> tuple[str, str]:
    """(type, base64) of one line of a `.pub` file. Errors: ConfigError."""
    words = line.split()
    try:
        kind, blob = words[0], words[1]
        raw = base64.b64decode(blob, validate=True)
    except (IndexError, binascii.Error) as error:
        raise ConfigError("key.not-public") from error
    named = len(kind).to_bytes(4, "big") + kind.encode()
    if not _KEY_TYPES.fullmatch(kind) or not raw.startswith(named):
        raise ConfigError("key.unknown-type")
    return kind, blob


#: One laptop needs one; a second one, a `syncd pull` by hand and a doctor find a place, too.
CONNECTIONS = 4
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def take_place(who: str, shared: Path, environ: Mapping[str, str] = os.environ) -> int | None:
    """Hold one of the places of `who` as long as the returned descriptor is open; None: all are taken.

    Errors: StorageError where no file can be locked here.
    """
    folder = _folder(environ) / hashlib.sha256(os.fsencode(os.path.realpath(shared))).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(CONNECTIONS):
            fd = os.open(folder / f"{who}.connection.{number}", _OPEN, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            except BaseException:
                os.close(fd)
                raise
            else:
                return fd
    except OSError as error:
        raise StorageError("gate.no-place", path=folder, why=error.strerror) from error
    return None


def _folder(environ: Mapping[str, str]) -> Path:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        try:
            status = os.stat(runtime)
        except OSError:
            status = None
        if status is not None and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            return Path(runtime) / "anchorleg" / "gate"
    return own_folder("state", environ) / "gate"
