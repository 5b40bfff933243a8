"""The user's service manager: launchd on macOS, `systemd --user` on Linux. The only module that speaks to them.

Exit codes of launchctl are its own error numbers (`launchctl error <n>` prints each): 3 no such process, 5 input/output
error, 36 operation now in progress, 37 operation already in progress, 112 no such domain, 113 no such service,
119 service is disabled, 125 domain does not support the action. systemctl's are LSB's (systemctl(1), "Exit status"):
3 not active, 4 no such unit; 5 is "unit not loaded", 1 everything else, also "no bus".
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from anchorleg.files import write_bytes
from anchorleg.places import base_folder, home_folder
from syncd.background.agent import LABEL, UNIT, Agent, plist_text, unit_text
from syncd.errors import ServiceError, StorageError
from syncd.shared.disk import writing

#: Both managers answer within a second; one that is silent for this long is not going to.
ANSWER_TIMEOUT_S = 30.0
#: A booted-out agent gets 20 s (launchd's ExitTimeOut) to end before it is killed; a few more for the manager.
GONE_TIMEOUT_S = 30.0
#: Between two looks at whether it is gone, and between two tries to load it.
LOOK_S = 0.25
#: launchd may still be tidying up a label that it no longer prints, and answers EIO for a second or two.
LOAD_TRIES = 20

NOT_LOADED = frozenset({3, 113})
IN_PROGRESS = frozenset({36, 37})
NO_DOMAIN = frozenset({112, 125})
EIO = 5
SYSTEMD_NOT_LOADED = 5

#: Folders that macOS opens to no background agent without a person's consent (TCC).
_TCC_FOLDERS = ("Documents", "Desktop", "Downloads")
#: Of an editable installation it lies in the checkout.
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class ManagerAnswer:
    """What a manager's command said: exit code, and its output and errors as one text."""

    code: int
    text: str


Run = Callable[[Sequence[str]], ManagerAnswer]


@dataclass(frozen=True)
class ServiceState:
    """Where the agent stands. `detail` is the manager's own word, such as "active (running)"."""

    manager: Literal["launchd", "systemd"]
    file: Path
    installed: bool
    running: bool
    pid: int | None
    detail: str


class Manager(Protocol):
    """A service manager and its one agent. Every call may raise `ServiceError`."""

    def install(self, agent: Agent) -> list[str]:
        """Write the agent's file, and start it anew. Twice is the same as once. Returns hints for the user."""
        ...

    def uninstall(self) -> bool:
        """Stop the agent and delete its file; False where there was none."""
        ...

    def state(self) -> ServiceState:
        """Where it stands."""
        ...


def run(command: Sequence[str]) -> ManagerAnswer:
    """Ask the manager. Errors: ServiceError where its command is not there, or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise ServiceError("service.no-manager", program=command[0]) from None
    except subprocess.TimeoutExpired:
        raise ServiceError("service.no-answer", command=" ".join(command), seconds=ANSWER_TIMEOUT_S) from None
    return ManagerAnswer(done.returncode, (done.stdout + done.stderr).strip())


def manager(
    environ: Mapping[str, str] = os.environ, platform: str = sys.platform, *, uid: int | None = None, run: Run = run
) -> Launchd | Systemd:
    """This machine's service manager."""
    if platform == "darwin":
        return Launchd(home_folder(environ), os.getuid() if uid is None else uid, run)
    return Systemd(base_folder("config", environ, platform) / "systemd" / "user", environ.get("USER", ""), run)


def log_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a LaunchAgent's output goes."""
    return home_folder(environ) / "Library" / "Logs" / "anchorleg" / "syncd.log"


class Launchd:
    """The LaunchAgent of one macOS user."""

    def __init__(self, home: Path, uid: int, run: Run = run, sleep: Callable[[float], None] = time.sleep) -> None:
        self._home, self._sleep = home, sleep
        self._file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{uid}"
        self._target = f"{self._domain}/{LABEL}"
        self._run = run

    def install(self, agent: Agent) -> list[str]:
        """Bootout → wait until it is gone → bootstrap → kickstart: the order that leaves no half-loaded label."""
        self._session()
        self._unload()
        _write(self._file, plist_text(agent), also=agent.log.parent)
        self._ask("enable", self._target)  # a `launchctl disable` of long ago would make bootstrap fail with 5
        self._load()
        self._ask("kickstart", self._target, fine=IN_PROGRESS)
        return list(self._hints(agent))

    def _hints(self, agent: Agent) -> Iterator[str]:
        if self._is_kept_out_of(agent.folder):
            yield f"macOS keeps background agents out of {agent.folder}: choose a folder elsewhere, if it stays empty"
        ours = next(filter(self._is_kept_out_of, (Path(agent.python), PACKAGE)), None)
        if ours is not None:
            yield (
                f"macOS keeps background agents out of {ours}, which syncd runs from: if it does not start, install "
                f"Anchorleg outside {', '.join(_TCC_FOLDERS[:-1])} and {_TCC_FOLDERS[-1]}"
            )

    def _is_kept_out_of(self, path: Path) -> bool:
        return any(self._home / name in (path, *path.parents) for name in _TCC_FOLDERS)

    def uninstall(self) -> bool:
        """As `Manager` says."""
        there = self._unload() or self._file.exists()
        _delete(self._file)
        return there

    def state(self) -> ServiceState:
        """From `launchctl print`, which is for people to read: only its state and pid are looked for."""
        answer = self._ask("print", self._target, fine=NOT_LOADED | NO_DOMAIN)
        word = re.search(r"^\s*state = (.+)$", answer.text, re.MULTILINE)
        pid = re.search(r"^\s*pid = (\d+)$", answer.text, re.MULTILINE)
        detail = (word[1] if word else "loaded") if answer.code == 0 else "not loaded"
        return ServiceState(
            "launchd", self._file, self._file.exists(), pid is not None, int(pid[1]) if pid else None, detail
        )

    def _ask(self, *words: str, fine: frozenset[int] = frozenset()) -> ManagerAnswer:
        answer = self._run(["launchctl", *words])
        if answer.code == 0 or answer.code in fine:
            return answer
        raise _failed(["launchctl", *words], answer)

    def _unload(self) -> bool:
        """Whether it was loaded. bootout returns before the process has ended."""
        answer = self._ask("bootout", self._target, fine=NOT_LOADED | NO_DOMAIN | IN_PROGRESS | {EIO})
        if answer.code in NOT_LOADED | NO_DOMAIN:
            return False
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while self._ask("print", self._target, fine=NOT_LOADED).code not in NOT_LOADED:
            if time.monotonic() > deadline:
                raise ServiceError("service.never-ends", label=LABEL, target=self._target)
            self._sleep(LOOK_S)
        return answer.code != EIO

    def _session(self) -> None:
        """Errors: ServiceError where nobody is logged in at the screen, whose agents a LaunchAgent is one of."""
        answer = self._run(["launchctl", "print", self._domain])
        if answer.code != 0:
            raise ServiceError("service.no-screen", domain=self._domain, code=answer.code, why=_line(answer.text))

    def _load(self) -> None:
        words = ("bootstrap", self._domain, str(self._file))
        for _ in range(LOAD_TRIES):
            answer = self._ask(*words, fine=IN_PROGRESS | {EIO})
            if answer.code == 0:
                return
            self._sleep(LOOK_S)
        raise ServiceError("service.not-loaded", why=_failed(["launchctl", *words], answer), tries=LOAD_TRIES)


class Systemd:
    """The user unit of one Linux user."""

    def __init__(self, units: Path, user: str, run: Run = run) -> None:
        self._file = units / UNIT
        self._user = user
        self._run = run

    def install(self, agent: Agent) -> list[str]:
        """Write, daemon-reload, enable, restart."""
        self._session()
        _write(self._file, unit_text(agent))
        self._ask("daemon-reload")
        self._ask("reset-failed", UNIT, fine=frozenset({1}))  # the start limit of an earlier installation
        self._ask("enable", UNIT)
        self._ask("restart", UNIT)
        if self._user and not Path("/var/lib/systemd/linger", self._user).exists():
            return ["it ends when you log out, and starts when you log in; to keep it: loginctl enable-linger"]
        return []

    def uninstall(self) -> bool:
        """As `Manager` says."""
        self._session()
        stopped = self._ask("stop", UNIT, fine=frozenset({SYSTEMD_NOT_LOADED}))
        there = self._file.exists()
        if there:
            self._ask("disable", UNIT)
            _delete(self._file)
            self._ask("daemon-reload")
        self._ask("reset-failed", UNIT, fine=frozenset({1}))
        return there or stopped.code == 0

    def state(self) -> ServiceState:
        """From `systemctl show`, whose output is meant for programs."""
        self._session()
        names = "ActiveState,SubState,MainPID,Result"
        answer = self._ask("show", UNIT, "-p", names)
        values = dict(line.partition("=")[::2] for line in answer.text.splitlines())
        running = values.get("ActiveState") == "active"
        pid = int(values.get("MainPID") or 0) or None
        detail = f"{values.get('ActiveState', 'unknown')} ({values.get('SubState', '?')})"
        if values.get("Result") not in {None, "", "success"}:
            detail += f", {values['Result']}"
        return ServiceState("systemd", self._file, self._file.exists(), running, pid, detail)

    def _ask(self, *words: str, fine: frozenset[int] = frozenset()) -> ManagerAnswer:
        answer = self._run(["systemctl", "--user", *words])
        if answer.code == 0 or answer.code in fine:
            return answer
        raise _failed(["systemctl", "--user", *words], answer)

    def _session(self) -> None:
        """Errors: ServiceError where nobody would answer (a container, `su`, a cluster's login node)."""
        answer = self._run(["systemctl", "--user", "show", "-p", "Version"])
        if answer.code != 0:
            raise ServiceError("service.no-session", why=_line(answer.text))


def _failed(command: Sequence[str], answer: ManagerAnswer) -> ServiceError:
    return ServiceError("service.failed", command=" ".join(command), code=answer.code, why=_line(answer.text))


def _line(text: str) -> str:
    return text.splitlines()[0].rstrip(".") if text else "(it said nothing)"


def _write(path: Path, text: str, *, also: Path | None = None) -> None:
    with writing(path):
        for folder in (path.parent, also):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, text.encode(), mode=0o644)  # launchd refuses what a group may write


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError("storage.undeletable", path=path, why=error.strerror) from None
