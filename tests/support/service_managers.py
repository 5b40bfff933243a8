"""Stand-ins for `launchctl` and `systemctl --user` that answer as the real ones do.

launchctl: exit codes and words as `launchctl error <n>` and launchctl(1) have them. systemctl: as recorded from
systemd 252 by hand (`tests/real/test_agents.py` asks the real one the same). State is a JSON file, so that one object
in the test and many calls as programs see the same manager. As programs they really start what they are given.
"""

from __future__ import annotations

import contextlib
import json
import os
import plistlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

NO_SERVICE = 'Could not find service "{}" in domain for user gui: 501'
LAUNCHD = {
    "loaded": None,  # the path of the plist
    "lingers": 0,  # prints for which a booted-out agent is still seen
    "lingering": 0,
    "busy": 0,  # bootstraps that answer EIO although nothing is printed any more
    "bootout_code": 0,
    "disabled": False,
    "at_the_screen": True,
    "pid": None,
    "ending": None,  # the pid of a booted-out agent that has not ended yet
}
SYSTEMD = {"session": True, "reloaded": False, "enabled": False, "running": False, "loaded": False, "pid": None}


class FakeManager:
    """Keeps its state, and what it was asked, in `folder`."""

    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path, *, starts: bool = False, **state: Any) -> None:
        self.folder = folder
        self.starts = starts
        folder.mkdir(parents=True, exist_ok=True)
        if state or not self._file.exists():
            self.save({**self.defaults, **state})

    @property
    def _file(self) -> Path:
        return self.folder / "state.json"

    def load(self) -> dict[str, Any]:
        return json.loads(self._file.read_text())

    def save(self, state: dict[str, Any]) -> None:
        self._file.write_text(json.dumps(state))

    def asked(self) -> list[list[str]]:
        path = self.folder / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def __call__(self, words: Sequence[str]) -> tuple[int, str]:
        """(exit code, text) for the words after the program's name."""
        with open(self.folder / "asked", "a") as file:
            file.write(json.dumps(list(words)) + "\n")
        state = self.load()
        answer = self.answer(list(words), state)
        self.save(state)
        return answer

    def answer(self, words: list[str], state: dict[str, Any]) -> tuple[int, str]:
        raise NotImplementedError

    def start(self, command: list[str], env: dict[str, str], log: Path) -> int | None:
        if not self.starts:
            return 4242
        with open(log, "ab") as out:
            child = subprocess.Popen(
                command, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        return child.pid

    def is_ending(self, state: dict[str, Any]) -> bool:
        """Whether the process that was told to end lives (a zombie does not)."""
        try:
            return (
                self.starts and Path(f"/proc/{state['ending']}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
            )
        except OSError:
            return False

    def stop(self, state: dict[str, Any]) -> None:
        if self.starts and state["pid"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(state["pid"], signal.SIGTERM)
        state["pid"] = None


class FakeLaunchd(FakeManager):
    """`launchctl` for one agent of a user at the screen."""

    defaults = LAUNCHD

    def answer(self, words: list[str], state: dict[str, Any]) -> tuple[int, str]:
        verb, *rest = words
        _, _, label = rest[0].split("/") if rest[0].count("/") == 2 else ("", "", "")
        if not state["at_the_screen"]:
            return (
                (113, "Could not find domain") if verb == "print" else (125, "Domain does not support specified action")
            )
        if verb == "print" and not label:
            return 0, "gui/501 = {\n\ttype = login\n}"
        if verb == "print":
            return self._print(label, state)
        if verb == "bootout":
            if not state["loaded"]:
                return 3, "Boot-out failed: 3: No such process"
            state["ending"] = state["pid"]
            self.stop(state)
            state["loaded"], state["lingering"] = None, state["lingers"]
            code = state["bootout_code"]
            return code, f"Boot-out failed: {code}: Operation now in progress" if code else ""
        if verb == "enable":
            state["disabled"] = False
            return 0, ""
        if verb == "bootstrap":
            return self._bootstrap(Path(rest[1]), state)
        if verb == "kickstart":
            return (0, "") if state["loaded"] else (113, NO_SERVICE.format(label))
        return 64, f'Unrecognized subcommand: "{verb}"'

    def _print(self, label: str, state: dict[str, Any]) -> tuple[int, str]:
        if state["loaded"]:
            return 0, f"gui/501/{label} = {{\n\tactive count = 1\n\tstate = running\n\n\tpid = {state['pid']}\n}}"
        if state["lingering"] or self.is_ending(state):
            state["lingering"] = max(0, state["lingering"] - 1)
            return 0, f"gui/501/{label} = {{\n\tactive count = 0\n\tstate = SIGTERMed\n}}"
        return 113, NO_SERVICE.format(label)

    def _bootstrap(self, path: Path, state: dict[str, Any]) -> tuple[int, str]:
        if state["loaded"] or state["lingering"] or self.is_ending(state) or state["busy"] or state["disabled"]:
            state["busy"] = max(0, state["busy"] - 1)
            return 5, "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors."
        value = plistlib.loads(path.read_bytes())
        env = {"HOME": os.environ.get("HOME", "/"), **value["EnvironmentVariables"]}
        state["loaded"] = str(path)
        state["pid"] = self.start(value["ProgramArguments"], env, Path(value["StandardOutPath"]))
        return 0, ""


class FakeSystemd(FakeManager):
    """`systemctl --user` for one unit."""

    defaults = SYSTEMD

    def answer(self, words: list[str], state: dict[str, Any]) -> tuple[int, str]:
        assert words[0] == "--user"
        verb, *rest = words[1:]
        if not state["session"]:
            return 1, "Failed to connect to bus: No medium found"
        file = Path(os.environ.get("FAKE_UNITS", self.folder / "units"), "anchorleg-syncd.service")
        unit = rest[0] if rest else ""
        if verb == "show" and unit == "-p":
            return 0, "Version=252.38-1~deb12u1"
        if verb == "show":
            active = "active" if state["running"] else "inactive"
            sub = "running" if state["running"] else "dead"
            return 0, f"MainPID={state['pid'] or 0}\nResult=success\nActiveState={active}\nSubState={sub}"
        if verb == "daemon-reload":
            state["loaded"] = file.exists()
            return 0, ""
        if verb == "reset-failed":
            return (
                (0, "")
                if state["running"]
                else (1, f"Failed to reset failed state of unit {unit}: Unit {unit} not loaded.")
            )
        if verb == "stop":
            if not state["loaded"]:
                return 5, f"Failed to stop {unit}: Unit {unit} not loaded."
            self.stop(state)
            state["running"] = False
            return 0, ""
        if verb in {"enable", "disable"}:
            if not file.exists():
                return 1, f"Failed to {verb} unit: Unit file {unit} does not exist."
            state["enabled"] = verb == "enable"
            return 0, ""
        if verb == "restart":
            if not state["loaded"]:
                return 5, f"Failed to restart {unit}: Unit {unit} not found."
            state["running"], state["pid"] = True, 4242
            return 0, ""
        return 1, f"Unknown command verb {verb}."


def install_program(bin_folder: Path, name: str, folder: Path) -> None:
    """Put `name` (launchctl or systemctl) into `bin_folder`, with its state in `folder`."""
    bin_folder.mkdir(parents=True, exist_ok=True)
    program = bin_folder / name
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" {name} "{folder}" "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    kind = {"launchctl": FakeLaunchd, "systemctl": FakeSystemd}[sys.argv[1]]
    code, text = kind(Path(sys.argv[2]), starts=True)(sys.argv[3:])
    print(text, file=sys.stderr if code else sys.stdout)
    sys.exit(code)
