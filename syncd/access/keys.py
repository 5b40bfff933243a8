"""Keys: our own, the other side's, and the one login with a password that makes ours known there.

`ssh-keygen` and `ssh -G` do what they know best: make keys, look into known_hosts (hashed names too), resolve
~/.ssh/config. paramiko reads the host key before any login, and takes the password, which is neither kept nor logged.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import logging
import platform
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anchorleg.files import write_bytes
from anchorleg.places import account_name, home_folder, user_path
from anchorleg.printable import printable
from syncd.errors import ConfigError, HostKeyError, LoginRefusedError, RemoteError, StorageError, UnreachableError
from syncd.remote import Remote
from syncd.shared.disk import make_own_folder, writing
from syncd.transports.openssh import EXIT_SSH, explain, ssh_words, typed_ssh
from syncd.wire.streams import run_bounded

if TYPE_CHECKING:
    import paramiko

#: ssh-keygen and `ssh -G` touch local files only.
LOCAL_TIMEOUT_S = 20.0
#: A connection over the internet stands within a second or two; a login node under load takes its time.
CONNECT_TIMEOUT_S = 15.0
#: Second factors are answered on a phone.
LOGIN_TIMEOUT_S = 90.0
INSTALL_TIMEOUT_S = 30.0
DEFAULT_PORT = 22
#: More rounds of questions than any site asks.
_MOST_STEPS = 5
#: And more lines before a question than any site prints.
_MOST_LINES = 40
_MOST_SAID = 16 * 1024

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

#: Asks the user: the question, and whether the answer may be seen while it is typed.
Ask = Callable[[str, bool], str]


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


def default_key(home: Path | None = None) -> Path:
    """`~/.ssh/id_ed25519`."""
    return (home or home_folder()) / ".ssh" / "id_ed25519"


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
    return resolved(done.stdout, remote)


def resolved(output: str, remote: Remote) -> Endpoint:
    """The endpoint in the output of `ssh -G`."""
    values: dict[str, str] = {}
    for line in output.splitlines():
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
    found: list[HostKey] = []
    for file in place.known_hosts:
        if not file.is_file():
            continue
        for line in _run(["ssh-keygen", "-F", place.pinned_name, "-f", str(file)]).stdout.splitlines():
            words = line.split()
            if len(words) >= 3 and not line.startswith(("#", "@")):
                found.append(HostKey(words[1], words[2]))
    return found


def offered_key(place: Endpoint, known: Sequence[HostKey] = ()) -> HostKey:
    """The key that the host shows now, before any login. Asked for in a kind that is `known`, as ssh does.

    Errors: UnreachableError, HostKeyError (it is known by another key of that kind).
    """
    with _connected(place, [key.kind for key in known]) as connection:
        shown = connection.get_remote_server_key()
        key = HostKey(shown.get_name(), shown.get_base64())
    if any(other.kind == key.kind for other in known) and key not in known:
        raise HostKeyError(
            "host.other-key",
            host=place.pinned_name,
            fingerprint=key.fingerprint,
            files=", ".join(str(path) for path in place.known_hosts if path.is_file()),
        )
    return key


def pin(place: Endpoint, key: HostKey, file: Path) -> None:
    """Add the host's key to our known_hosts, durably. Errors: StorageError."""
    line = f"{place.pinned_name} {key.kind} {key.blob}\n"
    with writing(file):
        file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        if line not in before:
            write_bytes(file, (before + ("\n" if before and not before.endswith("\n") else "") + line).encode())


@contextlib.contextmanager
def _connected(place: Endpoint, kinds: Sequence[str] = ()) -> Iterator[paramiko.Transport]:
    """A paramiko connection after the key exchange, before any login. Errors: UnreachableError, ConfigError."""
    import paramiko  # noqa: PLC0415 - a quarter of a second that most commands do not need

    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it logs tracebacks of what we put into words
    name = f"{place.host}:{place.port}"
    if place.jump:
        raise ConfigError("host.behind-jump", host=place.host, jump=place.jump)
    try:
        sock = socket.create_connection((place.host, place.port), timeout=CONNECT_TIMEOUT_S)
    except socket.gaierror as error:
        raise UnreachableError("connection.unknown-host", host=place.host) from error
    except OSError as error:
        raise UnreachableError("connection.failed", place=name, why=error.strerror or error) from error
    connection = paramiko.Transport(sock)
    try:
        if kinds:
            options = connection.get_security_options()
            # RSA keys sign under newer names; a known_hosts line says ssh-rsa for all of them.
            wanted = {*kinds, *(["rsa-sha2-512", "rsa-sha2-256"] if "ssh-rsa" in kinds else [])}
            options.key_types = sorted(options.key_types, key=lambda kind: kind not in wanted)
        try:
            connection.start_client(timeout=CONNECT_TIMEOUT_S)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise UnreachableError("connection.no-ssh", place=name, why=error) from error
        yield connection
    finally:
        connection.close()


def install_public_key(place: Endpoint, expected: HostKey, public: str, ask: Ask) -> None:
    """Log in once with a password (or what the site asks for), and add `public` to ~/.ssh/authorized_keys there.

    Idempotent. Errors: LoginRefusedError (one attempt), HostKeyError, UnreachableError, RemoteError.
    """
    import paramiko  # noqa: PLC0415 - see above

    with _connected(place, [expected.kind]) as connection:
        shown = connection.get_remote_server_key()
        if (shown.get_name(), shown.get_base64()) != (expected.kind, expected.blob):
            raise HostKeyError("host.key-changed", host=place.host)
        connection.auth_timeout = LOGIN_TIMEOUT_S
        _log_in(connection, place, ask)
        try:
            channel = connection.open_session(timeout=INSTALL_TIMEOUT_S)
            channel.settimeout(INSTALL_TIMEOUT_S)
            channel.exec_command(f"exec sh -c '{_INSTALL_SCRIPT}'")
            channel.sendall(public.encode() + b"\n")
            channel.shutdown_write()
            said = channel.makefile_stderr("r").read(_MOST_SAID)
            if not channel.status_event.wait(INSTALL_TIMEOUT_S):
                raise UnreachableError("key.install-unanswered", host=place.host)
            code = channel.recv_exit_status()
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise UnreachableError("key.install-broke", why=error) from error
    if code != 0:
        words = (said if isinstance(said, str) else said.decode(errors="replace")).strip()
        raise RemoteError("key.install-failed", why=words or f"exit {code}")


def _log_in(connection: paramiko.Transport, place: Endpoint, ask: Ask) -> None:
    """One login without a key. Errors: LoginRefusedError, UnreachableError."""
    import paramiko  # noqa: PLC0415 - see above

    account = f"{place.user}@{place.host}"

    def answer(title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        said = [*title.splitlines(), *instructions.splitlines()]
        shown = [printable(line.strip()) for line in said if line.strip()][:_MOST_LINES]
        return [ask("\n".join([*shown, printable(prompt.strip()) or "Password:"]), seen) for prompt, seen in prompts]

    try:
        kinds = _offered_logins(connection, place)
        for _ in range(_MOST_STEPS):
            if "password" in kinds:
                kinds = connection.auth_password(place.user, ask(f"Password of {account}:", False), fallback=False)
            elif "keyboard-interactive" in kinds:
                kinds = connection.auth_interactive(place.user, answer)
            else:
                break
            if connection.is_authenticated():
                return
    except paramiko.AuthenticationException as error:
        raise LoginRefusedError("login.refused", account=account) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise UnreachableError("login.broke", why=error) from error
    if not connection.is_authenticated():
        raise LoginRefusedError("login.no-password", account=account, kinds=", ".join(kinds) or "nothing")


def _offered_logins(connection: paramiko.Transport, place: Endpoint) -> list[str]:
    import paramiko  # noqa: PLC0415 - see above

    try:
        connection.auth_none(place.user)
    except paramiko.BadAuthenticationType as error:
        return list(error.allowed_types)
    return []


@dataclass(frozen=True)
class RemoteAnswer:
    """What a command over there did."""

    code: int
    out: str
    said: str


def takes_variables(remote: Remote) -> bool:
    """Whether sshd over there hands on variables by which a client chooses what programs run (sshd_config's AcceptEnv,
    as `*`): with these a restricted key has the whole account, before its forced command begins.

    Errors: those of `ask_shell`.
    """
    canaries = " ".join(f"{name}=/dev/null" for name in _CHOOSING)
    answer = ask_shell(remote, f"printenv {' '.join(_CHOOSING)}", "-o", f"SetEnv={canaries}")
    return "/dev/null" in answer.out.split()


def ask_shell(remote: Remote, command: str, *options: str) -> RemoteAnswer:
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
    return RemoteAnswer(done.returncode, done.stdout, done.stderr)
