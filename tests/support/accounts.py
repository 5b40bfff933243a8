"""Accounts that a test makes on this machine, with a Python that they can run, and programs that run as them."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemons import PATIENCE_S, started_at, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ("useradd", "userdel", "usermod", "groupadd", "groupdel", "runuser")
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
    missing += [f"{path} that others can read" for path in (REPOSITORY, packages) if not _is_open(path)]
    if _interpreter() is None:
        missing.append(f"a {VERSION} that others can run")
    return missing


def _is_open(path: Path) -> bool:
    return all(above.stat().st_mode & 0o001 for above in (path, *path.parents))


def _interpreter() -> Path | None:
    """This Python where others may run it, else the system's of the same version."""
    mine, systems = Path(sys.executable).resolve(), shutil.which(VERSION, path="/usr/bin:/usr/local/bin")
    if _is_open(mine):
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
    """(their common group, an account for each of `names`); all of it is gone at the end. Root is needed."""
    mark = secrets.token_hex(3)
    group = f"al{mark}"
    folder = Path(tempfile.mkdtemp(prefix="al-class-"))
    folder.chmod(0o755)
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
        for account in accounts:
            account.end()
            wait_for(lambda uid=account.uid: not _killed(uid), f"the end of what {account.name} runs")  # type: ignore[misc]
            subprocess.run(["userdel", "--force", account.name], check=False, capture_output=True, timeout=PATIENCE_S)
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
