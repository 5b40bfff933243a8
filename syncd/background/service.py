"""The client in the background: as text (a LaunchAgent's plist, a systemd user unit), and the user's service manager,
launchd on macOS, `systemd --user` on Linux. The only module that speaks to them.

Escaping follows the two formats' own rules, so that any path that a person may have works: XML for the plist
(plist(5)); for the unit systemd.syntax(7) and systemd.service(5), "Command lines": double quotes with C escapes, `%%`
for a specifier's per cent, and the prefix `:` where a `$` must not be a variable (systemd 244).

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
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol
from xml.sax.saxutils import escape

from anchorleg.files import write_bytes
from anchorleg.places import base_folder, home_folder
from syncd.errors import ConfigError, ServiceError, StorageError
from syncd.shared.disk import writing

#: One agent a user: a second `install` replaces the first.
LABEL = "org.anchorleg.syncd"
UNIT = "anchorleg-syncd.service"
#: launchd starts a crashed agent no sooner than this after its last start; its default of 10 s makes loops costly.
THROTTLE_S = 30
#: The owner's own work comes first.
NICE = 10
#: Of the installing shell's environment: what finds ssh and its helpers, and what finds and overrides our settings.
KEPT_ENVIRONMENT = ("PATH", "XDG_CONFIG_HOME", "SYNC_CLUSTER_USER", "SYNC_CLUSTER_HOST", "SYNC_CLUSTER_PATH")

_BY_SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')
_PLACEHOLDER = re.compile(r"@\{([^{}]*)\}")
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


def plist_text(agent: Agent) -> str:
    """The property list of `agent`. Errors: ConfigError for a text that no property list can hold."""
    arguments = [f"        <string>{_xml(word)}</string>" for word in agent.program]
    variables = [
        f"        <key>{_xml(name)}</key>\n        <string>{_xml(value)}</string>"
        for name, value in sorted(agent.environment.items())
    ]
    return _render(
        "syncd.plist",
        {
            "label": LABEL,
            "program_arguments": "\n".join(arguments),
            "environment": "\n".join(variables),
            "throttle_s": str(THROTTLE_S),
            "nice": str(NICE),
            "log": _xml(str(agent.log)),
        },
    )


def unit_text(agent: Agent) -> str:
    """The systemd unit of `agent`. Errors: ConfigError for a text that no unit can hold."""
    # systemd (252: string_is_safe) takes no program whose path has quotes or backslashes; a shell's `exec` does.
    words = [*_BY_SHELL, *agent.program] if set(agent.python) & set("\"'\\") else agent.program
    # In the program's own path `$$` would stay as it is, so variables are turned off instead of escaped.
    without_variables = ":" if any("$" in word for word in words) else ""
    variables = [f"Environment={_quoted(f'{name}={value}')}" for name, value in sorted(agent.environment.items())]
    return _render(
        "syncd.service",
        {
            "exec_start": without_variables + " ".join(map(_quoted, words)),
            "environment": "\n".join(variables),
            "nice": str(NICE),
        },
    )


def _render(name: str, values: Mapping[str, str]) -> str:
    template = _template(name)
    used = set(_PLACEHOLDER.findall(template))
    if used != set(values):
        raise ValueError(f"{name}: placeholders and values differ: {', '.join(sorted(used ^ set(values)))}")
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def _template(name: str) -> str:
    """A template that comes with the package: beside it in a wheel, in `templates/` of the tree otherwise."""
    package = Path(__file__).parents[1]
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise ConfigError("service.no-template", name=name)


def _writable(text: str) -> str:
    """`text` if both formats can hold it: no control characters, no bytes that are not UTF-8, no non-characters."""
    for char in text:
        if unicodedata.category(char) in {"Cc", "Cs"} or ord(char) & 0xFFFE == 0xFFFE:
            raise ConfigError("service.bad-character", text=text, character=char)
    return text


def _xml(text: str) -> str:
    return escape(_writable(text))


def _quoted(text: str) -> str:
    escaped = _writable(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


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
