"""Runs the program that kills controllers at every call (integration/programs/every_call.py)."""

from __future__ import annotations

import json
import subprocess
import sys

from daemons import WORK_S
from relay import PROGRAMS, SUPPORT, Relay


def killed_at(relay: Relay, share: int, of: int, again: int = 0) -> list[str]:
    """Where the controllers of every `of`-th call from `share` on were killed; what was left was checked each time.

    `again`: the controller after each is killed too, so many calls later. Errors: AssertionError.
    """
    lines = _killed(relay, str(share), str(of), str(again))
    assert lines[-1] == []  # the last run needed no more calls: there was nothing left to try
    assert all(lines[:-1])
    return [place for places in lines for place in places]


def killed_first_at(relay: Relay, place: str) -> None:
    """Kill at the first call that begins with `place`: no two runs make the same calls, and a number may miss one."""
    [places] = _killed(relay, "at", place)
    assert len(places) == 1, places


def _killed(relay: Relay, *words: str) -> list[list[str]]:
    env = {**relay.env, "PYTHONPATH": f"{relay.env['PYTHONPATH']}:{SUPPORT}"}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "every_call.py"), *words],
        cwd=relay.folder, env=env, capture_output=True, text=True, check=False, timeout=WORK_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [places for _, places in map(json.loads, done.stdout.splitlines())]
