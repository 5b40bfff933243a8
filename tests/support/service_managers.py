"""A stand-in for `launchctl` that answers as the real one does, for one agent of a user at the screen.

Exit codes and words as `launchctl error <n>` and launchctl(1) have them. State is a JSON file, so that one object in
the test and many calls as programs see the same manager. As a program it really starts what it is given.
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
from typing import Any

LAUNCHD = {
    "loaded": None,  # the path of the plist
    "busy": 0,  # bootstraps that answer EIO although nothing is printed any more
    "bootout_code": 0,
    "disabled": False,
    "at_the_screen": True,
    "pid": None,
    "ending": None,  # the pid of a booted-out agent that has not ended yet
}


class FakeLaunchd:
    """Keeps its state in `folder`."""

    def __init__(self, folder: Path, *, starts: bool = False, **state: Any) -> None:
        self._file = folder / "state.json"
        self.starts = starts
        folder.mkdir(parents=True, exist_ok=True)
        if state or not self._file.exists():
            self.save({**LAUNCHD, **state})

    def load(self) -> dict[str, Any]:
        return json.loads(self._file.read_text())

    def save(self, state: dict[str, Any]) -> None:
        self._file.write_text(json.dumps(state))

    def __call__(self, words: Sequence[str]) -> tuple[int, str]:
        """(exit code, text) for the words after the program's name."""
        state = self.load()
        answer = self._answer(list(words), state)
        self.save(state)
        return answer

    def _answer(self, words: list[str], state: dict[str, Any]) -> tuple[int, str]:
        verb, *rest = words
        if not state["at_the_screen"]:
            return (
                (113, "Could not find domain") if verb == "print" else (125, "Domain does not support specified action")
            )
        if verb == "print":
            return self._print(rest[0], state) if rest[0].count("/") == 2 else (0, "gui/501 = {\n\ttype = login\n}")
        if verb == "bootout":
            if not state["loaded"]:
                return 3, "Boot-out failed: 3: No such process"
            state["ending"] = state["pid"]
            if self.starts and state["pid"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(state["pid"], signal.SIGTERM)
            state["pid"] = state["loaded"] = None
            code = state["bootout_code"]
            return code, f"Boot-out failed: {code}: Operation now in progress" if code else ""
        if verb == "enable":
            state["disabled"] = False
            return 0, ""
        if verb == "bootstrap":
            return self._bootstrap(Path(rest[1]), state)
        return 64, f'Unrecognized subcommand: "{verb}"'

    def _print(self, target: str, state: dict[str, Any]) -> tuple[int, str]:
        if state["loaded"]:
            return 0, f"{target} = {{\n\tactive count = 1\n\tstate = running\n\n\tpid = {state['pid']}\n}}"
        if self._is_ending(state):
            return 0, f"{target} = {{\n\tactive count = 0\n\tstate = SIGTERMed\n}}"
        return 113, f'Could not find service "{target}" in domain for user gui: 501'

    def _bootstrap(self, path: Path, state: dict[str, Any]) -> tuple[int, str]:
        if state["loaded"] or self._is_ending(state) or state["busy"] or state["disabled"]:
            state["busy"] = max(0, state["busy"] - 1)
            return 5, "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors."
        state["loaded"], state["pid"] = str(path), 4242
        if self.starts:
            state["pid"] = started(path, os.environ.get("HOME", "/")).pid
        return 0, ""

    def _is_ending(self, state: dict[str, Any]) -> bool:
        """Whether the process that was told to end lives (a zombie does not)."""
        try:
            stat = Path(f"/proc/{state['ending']}/stat").read_text()
        except OSError:
            return False
        return self.starts and stat.rpartition(")")[2].split()[0] != "Z"


def started(plist: Path, home: str) -> subprocess.Popen[bytes]:
    """What the property list says, as written."""
    value = plistlib.loads(plist.read_bytes())
    env = {"HOME": home, **value["EnvironmentVariables"]}
    with open(value["StandardOutPath"], "ab") as log:
        return subprocess.Popen(
            value["ProgramArguments"], cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip


def install_program(bin_folder: Path, folder: Path) -> None:
    """Put `launchctl` into `bin_folder`, with its state in `folder`."""
    bin_folder.mkdir(parents=True, exist_ok=True)
    program = bin_folder / "launchctl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "{folder}" "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    code, text = FakeLaunchd(Path(sys.argv[1]), starts=True)(sys.argv[2:])
    print(text, file=sys.stderr if code else sys.stdout)
    sys.exit(code)
