"""What a contributor's restricted key may ask for: our server, the weights to read, its own inbox to write.

Pure: words in, a decision out. `syncd.commands.gate` carries it out; `restrict` in `authorized_keys` forbids the rest
(shell, forwarding, terminal, agent). A path is what rsync's client says, relative to `$SHARED` or absolute below it.

The list of rsync's options is what our own client sends and no more: each further one would have to be understood
(`--remove-source-files` deletes what it reads, `-L` follows links, `--log-file` writes where it likes).
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from syncd.errors import ConfigError
from syncd.shared.accounts import PREFIX
from syncd.shared.layout import NAME
from syncd.wire.refusals import PARTIAL_FOLDER

#: Longer than any honest command: rsync's are below 200 characters.
LONGEST_COMMAND = 4096
#: v1/inbox/<who>/new/<run id>/<slot>
LONGEST_INBOX_PATH = 6
#: A folder or file of `$SHARED`: run ids, slots, hashes, metrics. No leading dot: rsync's own parts begin with one.
_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,160}")
#: Bundles of short options: recursive, times, relative (with --files-from), then the client's capabilities.
_BUNDLE = re.compile(r"-[rtR]+(e[0-9]*\.[A-Za-z]*)?|-e[0-9]*\.[A-Za-z]*")
_TIMEOUT = re.compile(r"--timeout=[1-9][0-9]{0,3}")
_BANDWIDTH = re.compile(r"--bwlimit=[1-9][0-9]{0,8}")
_READERS_WORDS = frozenset({"--files-from=-", "--from0"})
_WRITERS_WORDS = frozenset({"--stats", "--ignore-existing"})
_KEY_TYPES = re.compile(
    r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
)
#: What a reader may see below `$SHARED`, beside the verdicts on its own segments.
_READABLE = ("v1", "runs")


class RefusedError(Exception):
    """The key may not do this. One sentence; it does not mean that the key is unknown or the connection broken."""


@dataclass(frozen=True)
class Serve:
    """Run our server for the contributor. What the client said of folders and names is not asked."""


@dataclass(frozen=True)
class Rsync:
    """Run rsync within one folder of `$SHARED`.

    `reads`: it sends files to the client, else it receives. `folder`: components below `$SHARED`, the wall that
    it may not leave. `name`: what of it is meant, "" for all of it. `options`: checked words for rsync's server.
    """

    reads: bool
    folder: tuple[str, ...]
    name: str
    options: tuple[str, ...]


def decide(command: str | None, who: str, shared: str) -> Serve | Rsync:
    """What `who` gets for the `command` that its client sent (SSH_ORIGINAL_COMMAND). `shared`: absolute `$SHARED`.

    Errors: RefusedError.
    """
    if not NAME.fullmatch(who) or not shared.startswith("/"):
        raise RefusedError("its line in authorized_keys is wrong: it needs a plain name and an absolute --shared")
    if not command:
        raise RefusedError("no shell here: this key carries policies and experience only (try `syncd pull`)")
    if len(command) > LONGEST_COMMAND or not command.isprintable():
        raise RefusedError("the command is too long, or not plain text")
    try:
        words = shlex.split(command)
    except ValueError:
        raise RefusedError("the command's quotes do not match") from None
    if len(words) >= 2 and words[0].rpartition("/")[2] == "syncd" and words[1] == "serve":
        return Serve()
    if words[:2] == ["rsync", "--server"]:
        return _rsync(words[2:], who, shared)
    raise RefusedError(f"this key may run `syncd serve` and rsync, not {words[0][:40] if words else 'nothing'!r}")


def _rsync(words: Sequence[str], who: str, shared: str) -> Rsync:
    reads = words[:1] == ["--sender"]
    options, paths = _options(list(words[1:] if reads else words), reads=reads)
    if len(paths) != 1:
        raise RefusedError("rsync: exactly one path, please")
    parts, slashed = _components(paths[0], shared)
    if reads:
        folder, name = _readable(parts, who, slashed=slashed)
        return Rsync(reads=True, folder=folder, name=name, options=options)
    if parts[:4] != ("v1", "inbox", who, "new"):
        raise RefusedError(f"rsync: this key writes to v1/inbox/{who}/new/ only")
    if len(parts) > LONGEST_INBOX_PATH:
        raise RefusedError(f"rsync: the folders of an inbox are v1/inbox/{who}/new/<run id>/<slot>/")
    return Rsync(reads=False, folder=parts[:4], name="/".join(parts[4:]), options=options)


def _options(words: list[str], *, reads: bool) -> tuple[tuple[str, ...], list[str]]:
    """(checked options, paths): what comes before rsync's lone ".", and after it. Errors: RefusedError."""
    if "." not in words:
        raise RefusedError("rsync: this is not how rsync's client speaks")
    end = words.index(".")
    checked: list[str] = []
    index = 0
    while index < end:
        word = words[index]
        if word == "--partial-dir" and words[index + 1] == PARTIAL_FOLDER and index + 1 < end:
            checked.append(f"--partial-dir={PARTIAL_FOLDER}")
            index += 2
            continue
        if not _is_known(word, reads=reads):
            raise RefusedError(f"rsync: the option {word[:40]!r} is not allowed here (use `rsync -rt`, or `syncd`)")
        checked.append(word)
        index += 1
    return tuple(checked), words[end + 1 :]


def _is_known(word: str, *, reads: bool) -> bool:
    if _BUNDLE.fullmatch(word):
        return reads or "R" not in word.partition("e")[0]
    if word == f"--partial-dir={PARTIAL_FOLDER}" or word in (_READERS_WORDS if reads else _WRITERS_WORDS):
        return True
    return bool(_TIMEOUT.fullmatch(word) or _BANDWIDTH.fullmatch(word))


def _components(path: str, shared: str) -> tuple[tuple[str, ...], bool]:
    """(components below `$SHARED`, whether `path` ends with a slash). Errors: RefusedError."""
    inner = path
    if path.startswith("/"):
        root = shared.rstrip("/") + "/"
        if not path.startswith(root):
            raise RefusedError("rsync: the path lies outside of the shared folder; write v1/runs/…")
        inner = path[len(root) :]
    slashed = inner.endswith("/")
    parts = tuple(part for part in inner.removesuffix("/").split("/") if part != ".")
    if not path.startswith("/") and "v1" in parts[1:]:  # the shared folder's own path, from the account's home
        above = parts[: parts.index("v1")]
        if shared.rstrip("/").endswith("/" + "/".join(above)):
            parts = parts[len(above) :]
    if not all(_COMPONENT.fullmatch(part) for part in parts) or len(parts) < 2:
        raise RefusedError("rsync: the path must be plain names below v1/runs/ or the own inbox")
    return parts, slashed


def _readable(parts: tuple[str, ...], who: str, *, slashed: bool) -> tuple[tuple[str, ...], str]:
    """(wall, name within it). The wall of a single name is its parent, so a root must be asked for with a slash."""
    own = ("v1", "inbox", who, "verdicts")
    root = next((root for root in (_READABLE, own) if parts[: len(root)] == root), None)
    if root is None:
        raise RefusedError(f"rsync: this key reads v1/runs/ and {'/'.join(own)}/ only")
    if slashed:
        return parts, ""
    if parts == root:
        raise RefusedError(f"rsync: write {'/'.join(root)}/ with a slash at its end")
    return parts[:-1], parts[-1]


def authorized_keys_line(who: str, public_key: str, gate: Sequence[str], shared: str) -> str:
    """The line that lets `public_key` in as `who`, to this gate only.

    `gate`: the words of our absolute `syncd` command. Errors: ConfigError (a name or a key that is none, a path that
    could break the line).
    """
    if not NAME.fullmatch(who):
        raise ConfigError(f"{who!r} is no contributor name: letters, digits, . _ -")
    if who.startswith(PREFIX):
        raise ConfigError(
            f"{who!r}: names that begin with {PREFIX} are those of this machine's accounts; choose another"
        )
    kind, blob = _public_key(public_key)
    words = [*gate, "gate", who, "--shared", shared]
    if not all(word and word.isprintable() for word in words) or not (words[0].startswith("/") and shared[:1] == "/"):
        raise ConfigError("the paths of syncd and of the shared folder must be absolute and printable")
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
        raise ConfigError("that is no public key: it is one line, as in ~/.ssh/id_ed25519.pub") from error
    named = len(kind).to_bytes(4, "big") + kind.encode()
    if not _KEY_TYPES.fullmatch(kind) or not raw.startswith(named):
        raise ConfigError("that is no public key of a known type: it is one line, as in ~/.ssh/id_ed25519.pub")
    return kind, blob
