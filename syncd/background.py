"""The client in the background: a LaunchAgent on macOS, a `systemd --user` unit on Linux, and what both managers say.

Either starts a crashed client again and lets one rest that ended well (`syncd run-agent` ends so where a person must
mend something first). Escaping of the unit follows systemd.syntax(7) and systemd.service(5), "Command lines": double
quotes with C escapes, `%%` for a specifier's per cent, the prefix `:` where a `$` must not be a variable (systemd 244).
"""

from __future__ import annotations

import os
import plistlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from anchorleg.files import write_bytes
from anchorleg.places import base_folder, home_folder
from syncd.errors import ConfigError, ServiceError
from syncd.shared.layout import writing

#: One agent a user: a second `install` replaces the first.
LABEL = "org.anchorleg.syncd"
UNIT = "anchorleg-syncd.service"
#: launchd starts a crashed agent no sooner than this after its last start, and never gives up.
THROTTLE_S = 30
#: The owner's own work comes first.
NICE = 10
#: Of the installing shell's environment: what finds ssh and its helpers, and what finds and overrides our settings.
KEPT_ENVIRONMENT = ("PATH", "XDG_CONFIG_HOME", "SYNC_CLUSTER_USER", "SYNC_CLUSTER_HOST", "SYNC_CLUSTER_PATH")
#: Both managers answer within a second; one that is silent for this long is not going to.
ANSWER_TIMEOUT_S = 30.0
#: launchd gives an agent 20 s (ExitTimeOut) to end, and answers EIO (5), 36 or 37 to a bootstrap before it has ended.
LOAD_TRIES, LOAD_EVERY_S, NOT_YET = 60, 0.5, frozenset({5, 36, 37})


@dataclass(frozen=True)
class Agent:
    """What runs in the background: `watch REMOTE FOLDER` by `python`. Paths are absolute.

    `remote` is "" for the one that `setup` stored. `log` is where a LaunchAgent's output goes; systemd has its journal.
    """

    python: str
    remote: str
    folder: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> list[str]:
        """The command, word by word. `-P`: a folder `syncd` where it happens to start must not be imported."""
        return [self.python, "-P", "-m", "syncd", "run-agent", self.remote, str(self.folder)]

    def check(self) -> None:
        """Errors: ConfigError where a word has a character that no service file can hold."""
        for text in (*self.program, str(self.log), *self.environment.values()):
            if not text.isprintable():
                raise ConfigError("service.bad-character", text=text)


def plist_text(agent: Agent) -> bytes:
    """The property list of `agent`. Without a ProcessType, as Standard and as Background, launchd throttles: a policy
    would come late. Errors: ConfigError.
    """
    agent.check()
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": agent.program,
            "EnvironmentVariables": dict(agent.environment),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": THROTTLE_S,
            "ProcessType": "Adaptive",
            "Nice": NICE,
            "StandardOutPath": str(agent.log),
            "StandardErrorPath": str(agent.log),
        }
    )


def unit_text(agent: Agent) -> bytes:
    """The systemd unit of `agent`. Errors: ConfigError."""
    agent.check()
    without_variables = ":" if any("$" in word for word in agent.program) else ""
    variables = [f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(agent.environment.items())]
    lines = [
        "[Unit]", "Description=Anchorleg: fetch policies, send experience", "StartLimitIntervalSec=120",
        "StartLimitBurst=5", "", "[Service]", f"ExecStart={without_variables}{' '.join(map(_quoted, agent.program))}",
        *variables, "Restart=on-failure", "RestartSec=5", f"Nice={NICE}", "IOSchedulingClass=idle", "", "[Install]",
        "WantedBy=default.target",
    ]  # fmt: skip
    return ("\n".join(lines) + "\n").encode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


class ManagerAnswer(NamedTuple):
    """What a manager's command said: exit code, and its output and errors as one text."""

    code: int
    text: str

    @property
    def line(self) -> str:
        """The first line of it."""
        return self.text.splitlines()[0].rstrip(".") if self.text else "(it said nothing)"


Run = Callable[[Sequence[str]], ManagerAnswer]


@dataclass(frozen=True)
class ServiceState:
    """Where the agent stands. `detail` is the manager's own word, such as "active (running)"; `log`: how to read it."""

    manager: str
    file: Path
    installed: bool
    running: bool
    pid: int | None
    detail: str
    log: str


def run(command: Sequence[str]) -> ManagerAnswer:
    """Ask the manager. Errors: ServiceError where its command is not there, or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise ServiceError("service.no-manager", program=command[0]) from None
    except subprocess.TimeoutExpired:
        raise ServiceError("service.no-answer", command=" ".join(command), seconds=ANSWER_TIMEOUT_S) from None
    return ManagerAnswer(done.returncode, (done.stdout + done.stderr).strip())


class Manager:
    """A user's service manager and its one agent, whose file is `file`. Every call may raise ServiceError; writing,
    StorageError.
    """

    command: tuple[str, ...]

    def __init__(self, file: Path, run: Run = run) -> None:
        self.file, self._run = file, run

    def install(self, agent: Agent) -> None:
        """Write the agent's file, and start it anew. Twice is the same as once."""
        raise NotImplementedError

    def uninstall(self) -> bool:
        """Stop the agent and delete its file; False where there was none."""
        raise NotImplementedError

    def state(self) -> ServiceState:
        """Where it stands."""
        raise NotImplementedError

    def _try(self, *words: str) -> ManagerAnswer:
        return self._run([*self.command, *words])

    def _ask(self, *words: str) -> None:
        if (answer := self._try(*words)).code:
            command = " ".join([*self.command, *words])
            raise ServiceError("service.failed", command=command, code=answer.code, why=answer.line)

    def _write(self, data: bytes) -> None:
        with writing(self.file):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self.file, data, mode=0o644)  # launchd refuses what a group may write

    def _delete(self) -> bool:
        was_there = self.file.exists()
        with writing(self.file):
            self.file.unlink(missing_ok=True)
        return was_there


class Launchd(Manager):
    """The LaunchAgent of one macOS user."""

    command = ("launchctl",)

    def __init__(self, file: Path, log: Path, uid: int, run: Run = run) -> None:
        super().__init__(file, run)
        self._log = log
        self._domain = f"gui/{uid}"
        self._target = f"{self._domain}/{LABEL}"

    def install(self, agent: Agent) -> None:
        """Out with the earlier one, then in as soon as that has ended."""
        answer = self._try("print", self._domain)
        if answer.code:
            raise ServiceError("service.no-screen", domain=self._domain, code=answer.code, why=answer.line)
        data = plist_text(agent)
        self._try("bootout", self._target)
        with writing(agent.log.parent):
            agent.log.parent.mkdir(parents=True, exist_ok=True)
        self._write(data)
        self._ask("enable", self._target)  # a `launchctl disable` of long ago would make bootstrap fail with 5
        words = ("bootstrap", self._domain, str(self.file))
        for _ in range(LOAD_TRIES):
            if (answer := self._try(*words)).code not in NOT_YET:
                break
            time.sleep(LOAD_EVERY_S)
        if answer.code:
            raise ServiceError("service.not-loaded", code=answer.code, why=answer.line)

    def uninstall(self) -> bool:
        """See `Manager`."""
        self._try("bootout", self._target)
        return self._delete()

    def state(self) -> ServiceState:
        """From `launchctl print`."""
        answer = self._try("print", self._target)
        word = re.search(r"^\s*state = (.+)$", answer.text, re.MULTILINE)
        pid = re.search(r"^\s*pid = (\d+)$", answer.text, re.MULTILINE)
        return ServiceState(
            manager="launchd",
            file=self.file,
            installed=self.file.exists(),
            running=pid is not None,
            pid=int(pid[1]) if pid else None,
            detail=(word[1] if word else "loaded") if answer.code == 0 else "not loaded",
            log=str(self._log),
        )


class Systemd(Manager):
    """The user unit of one Linux user."""

    command = ("systemctl", "--user")

    def install(self, agent: Agent) -> None:
        """Write, daemon-reload, enable, restart."""
        self._session()
        self._write(unit_text(agent))
        self._ask("daemon-reload")
        self._try("reset-failed", UNIT)  # the start limit of an earlier installation
        self._ask("enable", UNIT)
        self._ask("restart", UNIT)

    def uninstall(self) -> bool:
        """See `Manager`."""
        self._session()
        if not self.file.exists():
            return False
        self._ask("disable", "--now", UNIT)
        self._delete()
        self._ask("daemon-reload")
        self._try("reset-failed", UNIT)
        return True

    def state(self) -> ServiceState:
        """From `systemctl show`, whose output is meant for programs."""
        self._session()
        answer = self._try("show", UNIT, "-p", "ActiveState,SubState,MainPID")
        values = dict(line.partition("=")[::2] for line in answer.text.splitlines())
        return ServiceState(
            manager="systemd",
            file=self.file,
            installed=self.file.exists(),
            running=values.get("ActiveState") == "active",
            pid=int(values.get("MainPID") or 0) or None,
            detail=f"{values.get('ActiveState', 'unknown')} ({values.get('SubState', '?')})",
            log=f"journalctl --user -u {UNIT}",
        )

    def _session(self) -> None:
        """Errors: ServiceError where nobody would answer (a container, `su`, a cluster's login node)."""
        answer = self._try("show", "-p", "Version")
        if answer.code:
            raise ServiceError("service.no-session", why=answer.line)


def log_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a LaunchAgent's output goes."""
    return home_folder(environ) / "Library" / "Logs" / "anchorleg" / "syncd.log"


def manager(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Manager:
    """This machine's service manager."""
    if platform == "darwin":
        file = home_folder(environ) / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        return Launchd(file, log_file(environ), os.getuid())
    return Systemd(base_folder("config", environ, platform) / "systemd" / "user" / UNIT)
