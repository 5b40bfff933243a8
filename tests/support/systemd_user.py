"""A `systemd --user` of the test's own, in a mount namespace where the system looks booted by systemd. Needs root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from daemons import PATIENCE_S, wait_for

SYSTEMD = Path("/usr/lib/systemd/systemd")
#: It refuses to run where /run/systemd/system is absent (sd_booted(3)); the namespace hides ours behind an empty one.
START = 'mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system && exec "$0" --user'


def missing_systemd_parts() -> list[str]:
    """What a user manager needs and this machine lacks."""
    missing = [name for name in ("unshare", "systemctl", "systemd-analyze") if not shutil.which(name)]
    if not SYSTEMD.exists():
        missing.append("systemd")
    if os.geteuid() != 0:
        missing.append("root")
    return missing


@dataclass(frozen=True)
class SystemdUser:
    """`env` is that of a user whose session it is: an empty home, our commands on PATH."""

    home: Path
    env: dict[str, str]

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", "--user", *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@contextmanager
def user_manager() -> Iterator[SystemdUser]:
    """Starts one, and ends it with all that it runs. Errors: TimeoutError where it does not come up."""
    base = Path(tempfile.mkdtemp(prefix="sd", dir="/tmp"))  # short: a socket's path has 108 characters at most
    home, runtime = base / "home", base / "run"
    home.mkdir()
    runtime.mkdir(mode=0o700)
    env = {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    user = SystemdUser(home, env)
    with open(base / "log", "wb") as log:
        child = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", START, str(SYSTEMD)],
            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(
            lambda: child.poll() is not None or user.systemctl("show", "-p", "Version").returncode == 0,
            "systemd --user",
            PATIENCE_S,
        )
        if child.poll() is not None:
            raise TimeoutError(f"systemd --user ended: {(base / 'log').read_text(errors='replace')[-500:]}")
        yield user
    finally:
        with suppress(subprocess.TimeoutExpired):
            user.systemctl("exit")
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(PATIENCE_S)
        shutil.rmtree(base, ignore_errors=True)
