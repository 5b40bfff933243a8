"""Foreground daemons in their own sessions, remembered by pid and start time, and the sweep of what they left.

Linux only (`/proc`), standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
#: The deadline of everything that a test waits for: it is there for what hangs, and must never be met by a machine that
#: is slow, or busy elsewhere. Below the tests' own limit (`timeout` in pyproject.toml), so that it is this one that
#: says what was waited for.
PATIENCE_S = 480.0
#: The same for a program that does the work of a whole test, a training for instance.
WORK_S = 3 * PATIENCE_S
#: The same in tests that are marked `long`: `make test-long` gives them more time.
LONG_S = 2 * WORK_S
#: A waiting test looks this often: short beside what is waited for (a job starts in 0.15 s at best).
LOOK_EVERY_S = 0.02
#: Each round of a sweep may miss what was forked during it. It waits so long for those that it has killed.
SWEEP_ROUNDS = 20
ROUND_S = PATIENCE_S / SWEEP_ROUNDS


def wait_for(
    condition: Callable[[], T], what: str, timeout_s: float = PATIENCE_S, said: Callable[[], str] | None = None
) -> T:
    """What `condition()` is once it is true. Errors: TimeoutError that names `what`, with what was `said` meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}" + (f"; said was:\n{said()}" if said else ""))
        time.sleep(LOOK_EVERY_S)
    return found


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Nobody else of this user has `what` meanwhile, whichever checkout's tests he runs: others wait here."""
    with open(Path(tempfile.gettempdir()) / f"anchorleg-tests-{what}-{os.getuid()}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def started_at(pid: int) -> int | None:
    """When `pid` started (clock ticks since boot; a pid comes again, the pair does not); None: dead or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the third on: [0] state, [1] parent's pid, [19] start time (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None


class Daemons:
    """The named daemons of one folder. `<folder>/pids.json` lets another process stop them.

    Args: `folder` (exists), `env` of the daemons. Their output goes to `<folder>/log/<name>.out`.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = dict(env)
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def names(self) -> list[str]:
        """Every daemon started and not removed, in the order of their start."""
        return list(self._table())

    def pid(self, name: str) -> int | None:
        """The pid of a daemon that lives."""
        entry = self._table().get(name)
        if entry is None:
            return None
        pid, ticks = entry
        if pid in self._children:
            self._children[pid].poll()  # reaps
        return pid if started_at(pid) == ticks else None

    def start(self, name: str, command: Sequence[str], extra_env: Mapping[str, str] | None = None) -> None:
        """Start one. Errors: RuntimeError where it lives already; OSError."""
        if self.pid(name) is not None:
            raise RuntimeError(f"{name} runs already")
        with open(self.folder / "log" / f"{name}.out", "ab") as log:
            child = subprocess.Popen(
                command,
                cwd="/",
                env={**self.env, **(extra_env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[child.pid] = child
        ticks = started_at(child.pid)
        self._save({**self._table(), name: (child.pid, -1 if ticks is None else ticks)})

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal. Errors: ProcessLookupError where the daemon is dead."""
        pid = self.pid(name)
        if pid is None:
            raise ProcessLookupError(f"{name} does not run")
        os.kill(pid, number)

    def end(self, name: str, number: signal.Signals = signal.SIGKILL, grace_s: float = PATIENCE_S) -> None:
        """End one and wait for its death: `number`, then SIGKILL after `grace_s`. A dead one is no error."""
        pid = self.pid(name)
        if pid is None:
            return
        os.kill(pid, number)
        try:
            wait_for(lambda: self.pid(name) is None, f"the end of {name}", grace_s)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: self.pid(name) is None, f"the death of {name}")

    def kill_all(self) -> None:
        """SIGKILL every daemon, all at once, then wait. Stopped (SIGSTOP) ones die too."""
        for name in self.names():
            if (pid := self.pid(name)) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(self.pid, self.names())), "the death of all daemons")

    def output(self, name: str, lines: int = 8) -> str:
        """The end of what a daemon printed."""
        try:
            text = (self.folder / "log" / f"{name}.out").read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _table(self) -> dict[str, tuple[int, int]]:
        try:
            value = json.loads((self.folder / "pids.json").read_bytes())
        except FileNotFoundError:
            return {}
        return {name: (entry[0], entry[1]) for name, entry in value.items()}

    def _save(self, table: Mapping[str, tuple[int, int]]) -> None:
        temporary = self.folder / f"pids.json.{os.getpid()}"
        temporary.write_text(json.dumps(table))
        os.replace(temporary, self.folder / "pids.json")


def processes_with(variable: str, value: str, folder: Path | None = None) -> set[int]:
    """The living processes that were started with `variable=value` in their environment, and their descendants; also
    those that have a file open below `folder`, for slurmstepd blanks its environment from Slurm 24.11 on.

    Never this process or one that it descends from, nor one in another root, where the same path is another file.
    Processes of other users that we may not read are not seen.
    """
    wanted = f"{variable}={value}".encode()
    parents = _parents()
    marked = {pid for pid in parents if wanted in _environment(pid) or (folder and _has_open(pid, folder))}
    found = _with_descendants({pid for pid in marked if _is_in_our_root(pid)}, parents)
    pid = os.getpid()
    while pid > 1:
        found.discard(pid)
        pid = parents.get(pid, 0)
    return found


def family_of(pid: int) -> set[int]:
    """A process and all that descend from it."""
    return _with_descendants({pid}, _parents())


def _parents() -> dict[int, int]:
    """Of each living process its parent."""
    stats = {pid: fields for pid in _pids() if (fields := _stat(pid)) is not None and fields[0] != "Z"}
    return {pid: int(fields[1]) for pid, fields in stats.items()}


def _with_descendants(found: set[int], parents: Mapping[int, int]) -> set[int]:
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found = found | more
    return found


def sweep(variable: str, value: str, folder: Path | None = None) -> int:
    """SIGKILL what `processes_with` finds until nothing is found. Returns how many were killed.

    Errors: TimeoutError where some survive, with their pids.
    """
    killed: set[int] = set()
    for _ in range(SWEEP_ROUNDS):
        found = processes_with(variable, value, folder)
        if not found:
            return len(killed)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # all stand still first: no parent writes down a child's death
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        killed |= found
        with contextlib.suppress(TimeoutError):
            _wait_for_death(found)
    raise TimeoutError(f"processes with {variable}={value} survive SIGKILL: {sorted(found)}")


def _wait_for_death(pids: set[int]) -> None:
    wait_for(lambda: not any(map(started_at, pids)), "the death of the swept", ROUND_S)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _has_open(pid: int, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith(f"{folder}/"):
                    return True
    return False


def _is_in_our_root(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(f"/proc/{pid}/root", "/")
    return False


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
