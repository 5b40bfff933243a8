"""Run folders as jobs leave them, for the tests of W&B; and commands, run to their end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from daemons import PATIENCE_S, started_at
from wandb_server import Server, serving

from anchorleg.files import write_json


def a_row(first, last, at):
    return {
        "from": first,
        "to": last,
        "updates": 10,
        "q": last / 7,
        "tasks": {"reach-v3": {"episodes": 2, "temperature": 0.1, "success": 0.5, "return": 3.25}},
        "at": at,
    }


def an_evaluation(step, at):
    return {
        "step": step,
        "success": {"reach-v3": 0.75},
        "returns": {"reach-v3": 12.5},
        "steps_to_success": {"reach-v3": 40.0},
        "mean_success": 0.75,
        "iqm_success": 0.75,
        "goals_per_task": 4,
        "at": at,
    }


class Run:
    """A run folder as its jobs leave it, or as one that still runs fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slot = folder / "slots" / "0"
        folder.mkdir(parents=True)
        write_json(folder / "run.json", {"run_id": "mt10-0123abcd"})

    def attempt(self, number, parent, rows, evaluations=()):
        """`parent`: (attempt, step), None from scratch."""
        folder = self.slot / "attempts" / str(number)
        folder.mkdir(parents=True)
        attempt, step = parent or (None, 0)
        write_json(
            folder / "parent.json",
            {"attempt": attempt, "step": step, "checkpoint": str(step) if parent else None},
        )
        write_json(self.slot / "config.json", {"preset": "tiny", "tasks": ["reach-v3"], "batch_size": 64})
        self.add(number, "metrics", *rows)
        self.add(number, "evaluations", *evaluations)

    def add(self, number, name, *values):
        """Lines at the end of one of the attempt's journals."""
        with open(self.slot / "attempts" / str(number) / f"{name}.jsonl", "a") as file:
            file.writelines(json.dumps(value) + "\n" for value in values)


def processes_of(server):
    """The pids that live and were started with this server's address: who sends there, and wandb's service."""
    mark = f"WANDB_BASE_URL={server.url}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return [pid for pid in found if started_at(pid) is not None]


@contextlib.contextmanager
def serving_alone() -> Iterator[Server]:
    """A server; what was told its address ends with it, also where a test failed."""
    with serving() as server:
        try:
            yield server
        finally:
            for pid in processes_of(server):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def run_command(cwd, env, *words):
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
