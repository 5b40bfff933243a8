"""Processes of this machine: a pid is reused, a pid with its start time and the boot id is not."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: `ps` and `sysctl` answer in milliseconds; a machine that needs this long is not answering.
COMMAND_TIMEOUT_S = 5.0
#: Where the system does not tell. Two machines may say so, so it names none.
UNKNOWN_BOOT = "unknown"


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for another one."""

    host: str
    boot_id: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _answer(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    return done.stdout.strip()


@cache
def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


@cache
def boot_id() -> str:
    """A name for this boot of this machine, and for the namespace of its pids: a container has others than outside."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # "pid:[4026531836]"; a container on the same machine has the same boot and other pids.
        return f"{boot}+{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        match = re.search(r"sec = (\d+)", _answer(["sysctl", "-n", "kern.boottime"]))
        return match[1] if match else UNKNOWN_BOOT


def start_time(pid: int) -> str | None:
    """When `pid` started, in the system's own unit; None if there is no such process or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        state, _, started = _answer(["ps", "-o", "stat=,lstart=", "-p", str(pid)]).partition(" ")
        return None if not state or state.startswith("Z") else started.strip()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def myself() -> ProcessId:
    """The calling process."""
    return ProcessId(host=host_name(), boot_id=boot_id(), pid=os.getpid(), started=start_time(os.getpid()) or "")


def is_alive(process: ProcessId) -> bool | None:
    """Whether it lives; None where it cannot be told from here (another machine, or another user's hidden process). The
    boot names the machine, not its name: a renamed machine knows its processes again.
    """
    if process.host != host_name() and UNKNOWN_BOOT in {process.boot_id, boot_id()}:
        return None
    if process.boot_id != boot_id():
        same_boot = process.boot_id.partition("+")[0] == boot_id().partition("+")[0]
        # Of our name and of another boot: it was here and is gone. Of our boot and other pids: a container.
        return False if process.host == host_name() and not same_boot else None
    started = start_time(process.pid)
    if started is None:
        try:
            os.kill(process.pid, 0)
        except PermissionError:
            return None  # it is there and hidden from us (mount option hidepid of /proc)
        except ProcessLookupError:
            pass
    return started == process.started


def send_signal(process: ProcessId, number: signal.Signals) -> bool:
    """Signal it if it is alive and the same. True: sent."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True
