"""A stand-in for launchd and one LaunchAgent that a user wrote: `launchctl load PATH`, `launchctl unload PATH`.

As launchd.plist(5) has it: RunAtLoad, KeepAlive (started again however it ended, no sooner than `throttle_s` after its
last start), the bare environment of a login, SIGTERM at the unload and SIGKILL after 20 s, and SIGKILL to what is left
of the job's process group. Every end is written down, so that a test can count them.
"""

from __future__ import annotations

import contextlib
import json
import os
import plistlib
import signal
import subprocess
import sys
import time
from pathlib import Path

from daemons import PATIENCE_S

#: launchd's own are 10 s and 20 s.
THROTTLE_S, EXIT_TIMEOUT_S = 1.0, 20.0
#: What launchd gives to an agent that names no other. `FAKE_LAUNCHD_PATH` comes before it: the test's own `ssh`.
BARE_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"

LABEL = "com.example.sync"
#: As a user writes it, for a checkout at ~/anchorleg.
PLIST = f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
    <key>Label</key>
    <string>{LABEL}</string>
    <key>ProgramArguments</key>
    <array>
        <string>/bin/bash</string>
        <string>-c</string>
        <string>cd ~/anchorleg &amp;&amp; .venv/bin/syncd pull "" ~/shared_weights 5</string>
    </array>
    <key>RunAtLoad</key>
    <true/>
    <key>KeepAlive</key>
    <true/>
</dict>
</plist>
"""


class Agent:
    """What is known of one loaded plist: `<folder>/<label>.json` (the keeper and its job) and `<label>.ends`."""

    def __init__(self, folder: Path, plist: Path) -> None:
        self.value = plistlib.loads(plist.read_bytes())
        self.state = folder / f"{self.value['Label']}.json"
        self.log = folder / f"{self.value['Label']}.log"
        self.ends = folder / f"{self.value['Label']}.ends"

    def pids(self) -> tuple[int, int]:
        """(the keeper, its job)."""
        found = json.loads(self.state.read_text())
        return found["keeper"], found["job"]

    def codes(self) -> list[int]:
        """How each start has ended."""
        return [int(line) for line in self.ends.read_text().split()] if self.ends.exists() else []

    def keep(self) -> None:
        """Start it, again and again, until SIGTERM."""
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
        path = ":".join(filter(None, [os.environ.get("FAKE_LAUNCHD_PATH"), BARE_PATH]))
        env = {"HOME": os.environ["HOME"], "PATH": path, **self.value.get("EnvironmentVariables", {})}
        while not told:
            began = time.monotonic()
            with open(self.log, "ab") as log:
                job = subprocess.Popen(
                    self.value["ProgramArguments"], cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
            self._write({"keeper": os.getpid(), "job": job.pid})
            while job.poll() is None and not told:
                time.sleep(0.02)
            if job.poll() is None:
                job.terminate()
                try:
                    job.wait(EXIT_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    job.kill()
            code = job.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            with open(self.ends, "a") as ends:
                ends.write(f"{code}\n")
            if not self.value.get("KeepAlive"):
                return
            while not told and time.monotonic() < began + THROTTLE_S:
                time.sleep(0.02)

    def _write(self, value: dict[str, int]) -> None:
        temporary = self.state.with_suffix(".tmp")
        temporary.write_text(json.dumps(value))
        temporary.replace(self.state)

    def load(self) -> None:
        """A keeper in a session of its own."""
        assert self.value.get("RunAtLoad"), "without RunAtLoad nothing would start"
        words = [sys.executable, __file__, "keep", *sys.argv[2:]]
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=2, start_new_session=True)

    def unload(self) -> None:
        """End the keeper, and with it the job; waits for both."""
        keeper, _ = self.pids()
        os.kill(keeper, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while _lives(keeper):
            assert time.monotonic() < deadline, "it does not end"
            time.sleep(0.02)
        self.state.unlink()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def install_launchctl(bin_folder: Path, folder: Path) -> None:
    """Put a `launchctl` into `bin_folder`, which keeps what it knows in `folder`."""
    for place in (bin_folder, folder):
        place.mkdir(parents=True, exist_ok=True)
    program = bin_folder / "launchctl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$1" "{folder}" "$2"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    agent = Agent(Path(sys.argv[2]), Path(sys.argv[3]))
    {"load": agent.load, "unload": agent.unload, "keep": agent.keep}[sys.argv[1]]()
