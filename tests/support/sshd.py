"""A real sshd on loopback: unprivileged port, throw-away host key, own authorized keys; logins as one account.

Its sessions carry `ANCHORLEG_TEST_SSHD=<token>`, so that what a killed sshd leaves behind is found and swept.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accounts import REPOSITORY, Account
from daemons import PATIENCE_S, Daemons, _pids, _stat, processes_with, started_at, sweep, wait_for
from ports import free_ports, listens

from syncd.remote import Remote

MARK = "ANCHORLEG_TEST_SSHD"


def sshd_program() -> str | None:
    """The absolute path of sshd (it insists on being started by one)."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")


def missing_sshd_parts() -> list[str]:
    """What is not installed."""
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    return missing if sshd_program() else [*missing, "sshd"]


def make_key(path: Path, comment: str) -> str:
    """An ed25519 key without a passphrase at `path`; returns the line of `path`.pub."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    return path.with_name(path.name + ".pub").read_text().strip()


@dataclass(frozen=True)
class Laptop:
    """Somebody's machine: own home, key, known_hosts, and an ssh config that knows the server as `cluster`.

    ssh finds its files by the password database, not by `$HOME`: pass `-F config` or the files by name.
    """

    name: str
    home: Path
    key: Path
    public_key: str
    known_hosts: Path
    config: Path

    def env(self) -> dict[str, str]:
        """The environment of this laptop's programs: own home, own state, nobody's agent."""
        kept = {name: value for name, value in os.environ.items() if name not in {"SSH_AUTH_SOCK", "SSH_ASKPASS"}}
        dropped = {"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"}
        dropped |= {"SYNC_CLUSTER_USER", "SYNC_CLUSTER_HOST", "SYNC_CLUSTER_PATH"}
        return {name: value for name, value in kept.items() if name not in dropped} | {"HOME": str(self.home)}


class Sshd:
    """One server. `port` and the host key stay the same over `stop` and `start`.

    `folder`: its files; `log` is what it said (LogLevel VERBOSE). Logins are the current user's, or `account`'s, who
    must be able to read `authorized_keys`, and has its own state folder.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, account: Account | None = None) -> None:
        self.folder = folder
        self.token = secrets.token_hex(8)
        self.port = free_ports(1)[0]
        self.user = account.opened() if account else getpass.getuser()
        self.authorized_keys = (account.home.parent / f"keys-{self.token}") if account else folder / "authorized_keys"
        self._state = "" if account else f" XDG_STATE_HOME={folder}/state"
        self.log = folder / "log" / "sshd.out"
        self._config = folder / "sshd_config"
        self._paused: list[int] = []
        (folder / "log").mkdir()
        self.authorized_keys.touch(mode=0o644)
        self.host_key = make_key(folder / "host_key", "test host")
        self._daemons = Daemons(folder, {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"})
        self._write_config(settings or {})

    def _write_config(self, settings: Mapping[str, str]) -> None:
        lines = {
            "ListenAddress": "127.0.0.1",
            "Port": str(self.port),
            "HostKey": str(self.folder / "host_key"),
            "PidFile": "none",
            "AuthorizedKeysFile": str(self.authorized_keys),
            "StrictModes": "no",  # the folder lies below a world-writable /tmp
            "UsePAM": "no",
            "UseDNS": "no",
            "PermitRootLogin": "prohibit-password",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PrintMotd": "no",
            "LogLevel": "VERBOSE",
            "MaxStartups": "100",
            "Subsystem": "sftp internal-sftp",
            # PYTHONPATH: what runs over there is this tree.
            # SHLVL: bash then leaves the developer's ~/.bashrc alone; killed in the middle of it, pyenv's lock remains.
            "SetEnv": f"{MARK}={self.token} SHLVL=2 PYTHONPATH={REPOSITORY}{self._state}",
            **settings,
        }
        self._config.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))

    @property
    def host_key_line(self) -> str:
        """The line that belongs into a known_hosts file."""
        kind, key = self.host_key.split()[:2]
        return f"[127.0.0.1]:{self.port} {kind} {key}"

    def fingerprint(self) -> str:
        """`SHA256:…` as ssh-keygen prints it."""
        digest = hashlib.sha256(base64.b64decode(self.host_key.split()[1])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def add_key(self, public_key: str, options: str = "") -> None:
        """Authorise a key, with the options of authorized_keys(5) before it."""
        with open(self.authorized_keys, "a", encoding="utf-8") as file:
            file.write(f"{options} {public_key}".strip() + "\n")

    def new_client(self, name: str, *, options: str | None = "") -> Laptop:
        """A laptop whose key this server takes, with these options; None: it does not take it."""
        home = self.folder / "laptops" / name
        ssh = home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        key = ssh / "id_ed25519"
        public_key = make_key(key, name)
        known_hosts = ssh / "known_hosts"
        known_hosts.write_text(self.host_key_line + "\n")
        config = ssh / "config"
        config.write_text(
            f"Host cluster\n  HostName 127.0.0.1\n  Port {self.port}\n  User {self.user}\n  IdentityFile {key}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {known_hosts}\n  StrictHostKeyChecking yes\n"
        )
        if options is not None:
            self.add_key(public_key, options)
        return Laptop(name, home, key, public_key, known_hosts, config)

    def remote(self, laptop: Laptop, path: Path | str, **changes: object) -> Remote:
        """How this laptop's `syncd` reaches the folder `path`, and the `syncd` of this environment."""
        told = {
            "path": str(path), "user": self.user, "host": "127.0.0.1", "port": self.port, "key": laptop.key,
            "known_hosts": laptop.known_hosts, "ssh_config": laptop.config,
            "command": str(Path(sys.executable).parent / "syncd"),
        }  # fmt: skip
        return Remote.model_validate({**told, **changes})

    def start(self) -> None:
        """Start it (again), and wait until it listens. Errors: RuntimeError with its own words."""
        program = sshd_program()
        assert program is not None, "sshd is not there"
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # sshd started by root refuses to run without
        self._daemons.start("sshd", [program, "-D", "-e", "-f", str(self._config)])
        try:
            wait_for(lambda: listens(self.port) or self.pid is None, "sshd to listen", PATIENCE_S)
        except TimeoutError:
            self.stop()
            raise
        if self.pid is None:
            raise RuntimeError(f"sshd does not start: {self._daemons.output('sshd')}")

    def change(self, **settings: str) -> None:
        """Have these settings for the logins that come; the sessions that are there go on."""
        self._write_config(settings)
        assert self.pid is not None, "sshd is dead"
        os.kill(self.pid, signal.SIGHUP)

    @property
    def pid(self) -> int | None:
        """The listening process, None where it is dead."""
        return self._daemons.pid("sshd")

    def stop(self) -> None:
        """Kill it and every session of it, as a machine that is gone."""
        sessions = self.processes()
        self._daemons.end("sshd", signal.SIGKILL)
        for pid in sessions:
            _send(pid, signal.SIGKILL)
        self._paused = []
        sweep(MARK, self.token)
        wait_for(lambda: not any(map(started_at, sessions)), "the death of the sessions")

    def pause(self) -> None:
        """SIGSTOP the listener and its sessions: a machine that hangs, whose connections stay open."""
        for _ in range(2):  # the second round finds what was forked during the first
            for pid in [*([self.pid] if self.pid else []), *self.processes()]:
                if pid not in self._paused:
                    _send(pid, signal.SIGSTOP)
                    self._paused.append(pid)

    def resume(self) -> None:
        """SIGCONT what `pause` stopped."""
        for pid in self._paused:
            _send(pid, signal.SIGCONT)
        self._paused = []

    def processes(self, *words: str) -> list[int]:
        """The living processes of its sessions, whose command line holds all `words`: `processes("syncd", "serve")`."""
        found = processes_with(MARK, self.token) | (_descendants(self.pid) if self.pid else set())
        return sorted(pid for pid in found if all(word in _command(pid) for word in words))

    def logins(self) -> int:
        """How many logins it accepted."""
        return len(re.findall(r"^Accepted \w+ for ", self._said(), re.MULTILINE))

    def refusals(self) -> int:
        """How many keys and passwords it refused."""
        return len(re.findall(r"^Failed \w+ for ", self._said(), re.MULTILINE))

    def _said(self) -> str:
        return self.log.read_text(errors="replace").replace("\r", "") if self.log.exists() else ""


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _descendants(root: int) -> set[int]:
    parents = {pid: int(fields[1]) for pid in _pids() if (fields := _stat(pid)) is not None and fields[0] != "Z"}
    found: set[int] = set()
    grown = {root}
    while grown:
        grown = {pid for pid, parent in parents.items() if parent in grown} - found
        found |= grown
    return found


@contextmanager
def throw_away_sshd(settings: Mapping[str, str] | None = None, account: Account | None = None) -> Iterator[Sshd]:
    """A started server in a short temporary folder; everything of it ends and goes with the block.

    `settings`: more lines of sshd_config, or other values: `{"PasswordAuthentication": "yes"}`. `account`: whose
    logins they are; the current user's where None.
    """
    folder = Path(tempfile.mkdtemp(prefix="sshd-"))
    server = Sshd(folder, settings, account)
    try:
        server.start()
        yield server
    finally:
        server.resume()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
