"""Keys: our own, the other side's, and the one login with a password that makes ours known there.

OpenSSH does what it knows best: makes keys, looks into known_hosts (hashed names too), resolves ~/.ssh/config, reads
the host key before any login, and asks for the password on the terminal, so that we never see it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import platform
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorleg.files import write_bytes
from anchorleg.places import account_name, user_path
from anchorleg.words import printable
from syncd.errors import ConfigError, HostKeyError, LoginRefusedError, RemoteError, StorageError
from syncd.remote import Remote
from syncd.shared.layout import make_own_folder, writing
from syncd.transports.openssh import EXIT_SSH, explain, ssh_words, typed_ssh
from syncd.wire.streams import run_bounded

#: ssh-keygen and `ssh -G` touch local files only.
LOCAL_TIMEOUT_S = 20.0
#: A connection over the internet stands within a second or two; a login node under load takes its time.
CONNECT_TIMEOUT_S = 15.0
#: Second factors are answered on a phone.
LOGIN_TIMEOUT_S = 90.0
DEFAULT_PORT = 22
#: More lines before a question than any site prints.
_MOST_LINES = 40
_MOST_SAID = 16 * 1024
#: Kinds of host keys, in the order in which ssh prefers them.
_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
#: Of a login without a key: one try, and no host that is not pinned.
_ASKED = (
    "-o", "PreferredAuthentications=password,keyboard-interactive", "-o", "NumberOfPasswordPrompts=1",
    "-o", "StrictHostKeyChecking=yes",
)  # fmt: skip

#: Reads the key from stdin: appends it to authorized_keys unless it is there; modes as sshd's StrictModes wants them.
#: On one line, and without single quotes: csh knows no other way to take it.
_INSTALL_SCRIPT = (
    "umask 077; cd && mkdir -p .ssh && chmod 700 .ssh && cd .ssh || exit 1; "
    "touch authorized_keys && chmod 600 authorized_keys || exit 1; "
    'IFS= read -r line; key=$(printf %s "$line" | cut -d " " -f 1,2); '
    'grep -qF -e "$key" authorized_keys && exit 0; '
    '[ -z "$(tail -c 1 authorized_keys)" ] || echo >> authorized_keys || exit 1; '
    'printf "%s\\n" "$line" >> authorized_keys'
)

#: Of the variables by which programs choose what they load; as the empty file each of them is harmless.
_CHOOSING = ("BASH_ENV", "LD_PRELOAD", "PYTHONPATH")


@dataclass(frozen=True)
class OwnKey:
    """A key pair of ours. `public` is the line of the .pub file; `made`: it was not there before."""

    path: Path
    public: str
    made: bool


@dataclass(frozen=True)
class HostKey:
    """A host's public key: `kind` as in known_hosts (ssh-ed25519 …), `blob` its base64."""

    kind: str
    blob: str

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -l` prints it."""
        try:
            digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        except binascii.Error:
            return "SHA256:?"
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Endpoint:
    """Where a connection really goes, after ~/.ssh/config. `alias`: under which name its host key is known. `agent`:
    the one that holds keys for it; None: that of the terminal.
    """

    host: str
    port: int
    user: str
    alias: str
    known_hosts: tuple[Path, ...]
    jump: str | None = None
    agent: str | None = None

    @property
    def pinned_name(self) -> str:
        """As known_hosts writes it: `[name]:port` where the port is not 22 (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT)."""
        name = self.alias or self.host
        return name if self.alias or self.port == DEFAULT_PORT else f"[{name}]:{self.port}"


def _run(words: Sequence[str], *, timeout_s: float = LOCAL_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise ConfigError("ssh.not-installed", program=words[0]) from None
    except subprocess.TimeoutExpired:
        raise ConfigError("ssh.no-answer", program=words[0], seconds=timeout_s) from None


def ensure_key(path: Path) -> OwnKey:
    """The key at `path`; an ed25519 key without a passphrase is made where there is none.

    Errors: ConfigError (no ssh-keygen; a key that cannot be read), StorageError.
    """
    public_file = path.with_name(path.name + ".pub")
    made = not path.exists()
    if made:
        make_own_folder(path.parent)
        comment = f"{account_name()}@{re.sub(r'[^A-Za-z0-9.-]', '-', platform.node()) or 'laptop'}"
        done = _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])
        if done.returncode != 0:
            raise StorageError("key.not-made", path=path, why=(done.stderr or done.stdout).strip())
    try:
        return OwnKey(path, public_file.read_text(encoding="utf-8").strip(), made)
    except (OSError, UnicodeDecodeError):
        derived = _run(["ssh-keygen", "-y", "-P", "", "-f", str(path)])
    if derived.returncode != 0:
        raise ConfigError("key.unreadable", path=path, public=public_file.name)
    return OwnKey(path, derived.stdout.strip(), made=False)


def why_unusable(own: OwnKey, place: Endpoint) -> LoginRefusedError | None:
    """What keeps ssh from using the key by itself; None where nothing is seen here. Errors: ConfigError.

    Where ~/.ssh/config names an agent for `place`, that one is ssh's to ask, and may hold the key.
    """
    opened = _run(["ssh-keygen", "-y", "-P", "", "-f", str(own.path)])
    path = shlex.quote(str(own.path))
    if "too open" in opened.stderr:
        return LoginRefusedError("key.too-open", path=path)
    if opened.returncode == 0 or "passphrase" not in opened.stderr or place.agent:
        return None
    is_held = own.public.split()[:2] in [line.split()[:2] for line in _run(["ssh-add", "-L"]).stdout.splitlines()]
    return None if is_held else LoginRefusedError("key.has-passphrase", path=path)


def endpoint(remote: Remote) -> Endpoint:
    """Where `ssh` would go for `remote`. Errors: ConfigError (no ssh, a broken ~/.ssh/config)."""
    words = ["ssh", "-G", "-o", "IgnoreUnknown=*"]
    if remote.ssh_config:
        words += ["-F", str(remote.ssh_config)]
    if remote.port:
        words += ["-p", str(remote.port)]
    done = _run([*words, "--", remote.account])
    if done.returncode != 0:
        raise ConfigError("ssh.bad-config", account=remote.account, why=done.stderr.strip())
    values: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name, value)
    # A file whose name has a space is printed without quotes: it may be one file, or several.
    named = [values.get(name, "") for name in ("userknownhostsfile", "globalknownhostsfile")]
    files = [user_path(word) for text in named for word in dict.fromkeys([text, *text.split()]) if word]
    jump = values.get("proxyjump") or values.get("proxycommand")
    agent = values.get("identityagent")
    ours = [remote.known_hosts] if remote.known_hosts else []
    return Endpoint(
        host=values.get("hostname") or remote.host or "",
        port=int(values.get("port") or DEFAULT_PORT),
        user=values.get("user") or remote.user or account_name(),
        alias=values.get("hostkeyalias", ""),
        known_hosts=(*ours, *files),
        jump=None if jump in {None, "none"} else jump,
        agent=None if agent == "SSH_AUTH_SOCK" else agent,
    )


def known_keys(place: Endpoint) -> list[HostKey]:
    """The keys under which `place` is known on this machine, ours first."""
    return [key for _, key in _known(place)]


def _known(place: Endpoint) -> Iterator[tuple[Path, HostKey]]:
    """Each with the file that has it."""
    for file in place.known_hosts:
        if not file.is_file():
            continue
        for line in _run(["ssh-keygen", "-F", place.pinned_name, "-f", str(file)]).stdout.splitlines():
            words = line.split()
            if len(words) >= 3 and not line.startswith(("#", "@")):
                yield file, HostKey(words[1], words[2])


def offered_key(place: Endpoint, known: Sequence[HostKey] = ()) -> HostKey:
    """The key that the host shows now, before any login: of a kind that is `known`, where it has one.

    Errors: ConfigError (behind a jump host), UnreachableError, HostKeyError (it is known by another key of that kind).
    """
    if place.jump:
        raise ConfigError("host.behind-jump", host=place.host, jump=place.jump)
    words = ["ssh-keyscan", "-T", f"{CONNECT_TIMEOUT_S:.0f}", "-p", str(place.port), "-t", "ed25519,ecdsa,rsa"]
    done = _run([*words, "--", place.host], timeout_s=LOGIN_TIMEOUT_S)
    lines = (line.split() for line in done.stdout.splitlines())
    shown = [HostKey(*line[1:3]) for line in lines if len(line) >= 3 and line[1] in _KINDS]
    if not shown:
        raise explain(place.host, EXIT_SSH, done.stderr or "it shows no host key")
    kinds = {key.kind for key in known}
    for other in (key for key in shown if key.kind in kinds and key not in known):
        files = dict.fromkeys(str(file) for file, key in _known(place) if key.kind == other.kind)
        forget = " and ".join(f"`{shlex.join(['ssh-keygen', '-R', place.pinned_name, '-f', file])}`" for file in files)
        raise HostKeyError("host.other-key", host=place.pinned_name, fingerprint=other.fingerprint, forget=forget)
    return min(shown, key=lambda key: (key not in known, _KINDS.index(key.kind)))


def pin(place: Endpoint, key: HostKey, file: Path) -> None:
    """Add the host's key to our known_hosts, durably. Errors: StorageError."""
    line = f"{place.pinned_name} {key.kind} {key.blob}\n"
    with writing(file):
        file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        if line not in before:
            write_bytes(file, (before + ("\n" if before and not before.endswith("\n") else "") + line).encode())


def install_public_key(remote: Remote, public: str) -> None:
    """Log in once, with a password or what else the site asks for on the terminal, and add `public` to
    ~/.ssh/authorized_keys there. Idempotent.

    Errors: LoginRefusedError, HostKeyError, UnreachableError, RemoteError.
    """
    said = ""
    words = [*ssh_words(remote, asks=True), *_ASKED, "--", remote.account, f"exec sh -c '{_INSTALL_SCRIPT}'"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True, errors="replace"
    ) as child:
        late = threading.Timer(LOGIN_TIMEOUT_S, child.kill)
        late.start()
        try:
            if child.stdin is not None and child.stderr is not None:
                with contextlib.suppress(BrokenPipeError), child.stdin as key:
                    key.write(public + "\n")
                for number, line in enumerate(child.stderr):  # what a site says before it asks
                    said = (said + line)[-_MOST_SAID:]
                    if number < _MOST_LINES:
                        print(f"  {printable(line.rstrip())}")
        finally:
            late.cancel()
    if child.returncode == EXIT_SSH or child.returncode < 0:
        kinds = re.search(r"(?m)^\S+: Permission denied \(([a-z,-]{1,80})\)", said)
        if kinds and not {"password", "keyboard-interactive"} & {*kinds[1].split(",")}:
            raise LoginRefusedError("login.no-password", account=remote.account, kinds=kinds[1])
        if kinds:
            raise LoginRefusedError("login.refused", account=remote.account)
        raise explain(remote.host or "", EXIT_SSH, said, typed=typed_ssh(remote))
    if child.returncode:
        raise RemoteError("key.install-failed", why=said.strip() or f"exit {child.returncode}")


def takes_variables(remote: Remote) -> bool:
    """Whether sshd over there hands on variables by which a client chooses what programs run (sshd_config's AcceptEnv,
    as `*`): with these a restricted key has the whole account, before its forced command begins.

    Errors: those of `ask_shell`.
    """
    canaries = " ".join(f"{name}=/dev/null" for name in _CHOOSING)
    answer = ask_shell(remote, f"printenv {' '.join(_CHOOSING)}", "-o", f"SetEnv={canaries}")
    return "/dev/null" in answer.stdout.split()


def ask_shell(remote: Remote, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one line in the account's shell over there, with our key; the key is tried once. `options`: more of ssh's.

    Errors: those of a login: LoginRefusedError, HostKeyError, UnreachableError; RemoteError where it never stops.
    """
    child = subprocess.Popen(
        [*ssh_words(remote), *options, "--", remote.account, command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    done = run_bounded(child, remote.host or "", LOGIN_TIMEOUT_S)
    if done.returncode == EXIT_SSH:
        raise explain(remote.host or "", done.returncode, done.stderr, typed=typed_ssh(remote))
    return done
