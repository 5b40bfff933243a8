"""Accounts that a test makes on this machine, with a Python that they can run, and programs that run as them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemons import PATIENCE_S, alone, started_at, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ("useradd", "userdel", "usermod", "chpasswd", "groupadd", "groupdel", "runuser")
#: The name of each folder with homes of accounts begins so. Its maker holds a lock on it as long as he lives.
FOLDERS = "al-class-"
#: The packages of this Python are for its own version only.
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass
class Account:
    """One account. `env`: of everything that it runs; its `home` is a folder of the test."""

    name: str
    home: Path
    python: Path
    env: dict[str, str]
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def uid(self) -> int:
        """Its number; the account must be there."""
        return pwd.getpwnam(self.name).pw_uid

    def opened(self) -> str:
        """Let a login by key in (sshd takes an account without any password for a locked one). Returns its name."""
        _do("usermod", "-p", "*", self.name)
        return self.name

    def password(self) -> str:
        """Give it a password, each time another one: a killed test leaves an account that anybody may log in at."""
        password = secrets.token_urlsafe()
        command, line = ["chpasswd"], f"{self.name}:{password}"
        subprocess.run(command, input=line, text=True, check=True, capture_output=True, timeout=PATIENCE_S)
        return password

    def syncd(self) -> Path:
        """Its `syncd`, as a program that a login can call."""
        return self.python.with_name("syncd")

    def run(self, *command: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """A program as this account, in its home, to its end."""
        return subprocess.run(
            self._words(*command), cwd=self.home, env=self.env, capture_output=True, text=True, timeout=timeout_s,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def orchestrator(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`orchestrator WORDS`, to its end."""
        return self.run(str(self.python), "-m", "orchestrator", *words)

    def start(self, **config: Any) -> subprocess.Popen[str]:
        """Write the config of a run and `orchestrator start` it in the background."""
        path = self.home / "cluster_config.json"
        path.write_text(json.dumps(config))
        with open(self.home / "output.txt", "w") as out:
            child = subprocess.Popen(
                self._words(str(self.python), "-m", "orchestrator", "start"), cwd=self.home, env=self.env, stdout=out,
                stderr=out, text=True, start_new_session=True,
            )  # fmt: skip
        self.children.append(child)
        return child

    def said(self) -> str:
        """What the background command has printed."""
        return (self.home / "output.txt").read_text(errors="replace")

    def end(self) -> None:
        """End its background programs; `runuser` passes signals on."""
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(PATIENCE_S)

    def _words(self, *command: str) -> list[str]:
        return ["runuser", "-u", self.name, "--", *command]


def missing_account_parts() -> list[str]:
    """What is not here: root, the tools, a checkout and a Python that other accounts can read."""
    missing = [] if os.geteuid() == 0 else ["root"]
    missing += [name for name in TOOLS if shutil.which(name) is None]
    packages = Path(sysconfig.get_path("purelib"))
    missing += [f"{path} that others can read: {why}" for path in (REPOSITORY, packages) if (why := _closed(path))]
    if _interpreter() is None:
        missing.append(f"a {VERSION} that others can run: {_closed(Path(sys.executable).resolve())}")
    return missing


def _closed(path: Path) -> str:
    """What on the way to `path` keeps others out, and how; empty: nothing."""
    modes = {place: stat.S_IMODE(place.stat().st_mode) for place in (*reversed(path.parents), path)}
    return next((f"{place} has mode {mode:04o}" for place, mode in modes.items() if not mode & 0o001), "")


def _interpreter() -> Path | None:
    """This Python where others may run it, else the system's of the same version."""
    mine, systems = Path(sys.executable).resolve(), shutil.which(VERSION, path="/usr/bin:/usr/local/bin")
    if not _closed(mine):
        return mine
    return Path(systems) if systems else None


def _python_in(folder: Path) -> Path:
    """An environment in `folder` that sees the packages of this one, and has a `syncd` of its own."""
    made = [str(_interpreter()), "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(made, check=True, capture_output=True, timeout=PATIENCE_S)
    packages = sysconfig.get_path("purelib")
    own = folder / "lib" / VERSION / "site-packages"
    (own / "ours.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    python, syncd = folder / "bin" / "python", folder / "bin" / "syncd"
    syncd.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {python} -m syncd "$@"\n')
    syncd.chmod(0o755)
    return python


@contextlib.contextmanager
def throw_away_accounts(*names: str, env: Mapping[str, str]) -> Iterator[tuple[str, list[Account]]]:
    """(their common group, an account for each of `names`); all of it is gone at the end. Root is needed.

    What a killed test left of its own goes first.
    """
    _sweep()
    mark = secrets.token_hex(3)
    group = _group(mark)
    folder = Path(tempfile.mkdtemp(prefix=FOLDERS))
    folder.chmod(0o755)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    accounts = []
    try:
        _do("groupadd", group)
        python = _python_in(folder / "python")
        for name in names:
            account, home = f"{name}{mark}", folder / name
            _do("useradd", "--create-home", "--home-dir", str(home), "--groups", group, account)
            home.chmod(0o711)
            own = {"HOME": str(home), "USER": account, "LOGNAME": account, "PYTHONPATH": str(REPOSITORY)}
            kept = {name: value for name, value in env.items() if not name.startswith(("XDG_", "TMP"))}
            accounts.append(Account(account, home, python, {**kept, **own, "OMP_NUM_THREADS": "1"}))
        yield group, accounts
    finally:
        for made in accounts:
            made.end()
            _remove(made.name)
        _remove_what_they_shared(group, folder)
        os.close(held)


def _group(mark: str) -> str:
    return f"al{mark}"


def _sweep() -> None:
    """Remove the accounts whose makers are dead, as SIGKILL leaves them, with their groups and folders."""
    with alone("accounts"):
        for entry in pwd.getpwall():
            home, mark = Path(entry.pw_dir), entry.pw_name[-6:]
            if home.parent.name.startswith(FOLDERS) and entry.pw_name == home.name + mark and not _is_held(home.parent):
                with contextlib.suppress(KeyError):  # its maker was just at it
                    _remove(entry.pw_name)
                _remove_what_they_shared(_group(mark), home.parent)


def _is_held(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _remove(name: str) -> None:
    """End what an account runs, and the account. Errors: KeyError where there is none."""
    uid = pwd.getpwnam(name).pw_uid
    wait_for(lambda: not _killed(uid), f"the end of what {name} runs")
    subprocess.run(["userdel", "--force", name], check=False, capture_output=True, timeout=PATIENCE_S)


def _remove_what_they_shared(group: str, folder: Path) -> None:
    subprocess.run(["groupdel", group], check=False, capture_output=True, timeout=PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


def _killed(uid: int) -> list[int]:
    """SIGKILL what runs as `uid`; userdel refuses an account that runs something. Returns what was there."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and path.stat().st_uid == uid and started_at(int(path.name)) is not None:
                found.append(int(path.name))
                os.kill(found[-1], signal.SIGKILL)
    return found


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
