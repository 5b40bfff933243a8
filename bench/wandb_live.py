"""What W&B live costs a training: without it, with a server that works, and with one that hangs, in turns.

`python bench/wandb_live.py [TIMES]`: preset `tiny` on MT10, TIMES rounds (five) of one job of `STEPS` steps each way.

- Steps a second: between the first and the last row of metrics with updates, by the rows' own clock.
- CPU time of the learner, and of all that runs beside it for W&B, from their start to their end. They say what the
  sending takes also on a machine with other work, where steps a second jump.
- Seconds from the last row to the exit of `trainer train`.

The servers are the tests' own, on this machine. Writes wandb_live.csv.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from wandb_server import Server, serving  # noqa: E402 - it is the tests'

from trainer.history.read import read  # noqa: E402 - as above

WAYS = ("without", "good server", "hung server")
STEPS = 2_000
LIMIT_S = 900.0
LOOK_S = 0.2


@contextlib.contextmanager
def server_of(way: str) -> Iterator[Server | None]:
    """The server that `way` needs."""
    if way == "without":
        yield None
        return
    with serving() as server:
        if way == "hung server":
            server.hang()
        yield server


class Beside(threading.Thread):
    """Adds up the CPU time of the learner, and of the other processes that were started with the server's address."""

    def __init__(self, server: Server | None, learner: int) -> None:
        super().__init__(daemon=True)
        self._mark = f"WANDB_BASE_URL={server.url if server else 'nobody'}".encode()
        self._learner = learner
        self._ticks: dict[int, int] = {}
        self.enough = threading.Event()

    def cpu_s(self, *, of_learner: bool) -> float:
        """Until now."""
        ticks = [count for pid, count in self._ticks.items() if (pid == self._learner) == of_learner]
        return sum(ticks) / os.sysconf("SC_CLK_TCK")

    def run(self) -> None:
        """Look again and again: what a dead process took is known from the look before."""
        while not self.enough.wait(LOOK_S):
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if int(folder.name) == self._learner or self._mark in (folder / "environ").read_bytes():
                        fields = (folder / "stat").read_text().rpartition(")")[2].split()
                        self._ticks[int(folder.name)] = int(fields[11]) + int(fields[12])


def job(way: str, folder: Path) -> tuple[float, float, float, float]:
    """One training: (steps a second, its CPU seconds, those beside it, seconds from its last row to its exit)."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    settings = {
        "benchmark": "MT10",
        "total_steps": STEPS,
        "metrics_interval": STEPS // 20,
        "random_steps": STEPS // 10,
        "evaluation_goals": 0,
        "device": "cpu",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "trainer", "train", "--preset", "tiny", "--run-dir", str(folder), *words]
    with server_of(way) as server:
        more = {"WANDB_MODE": "online", **server.env()} if server else {}
        learner = subprocess.Popen(command, cwd=ROOT, env={**environ, **more}, stdout=subprocess.DEVNULL)
        beside = Beside(server, learner.pid)
        beside.start()
        if learner.wait(LIMIT_S) != 0:
            raise SystemExit(f"{' '.join(command)} ended with {learner.returncode}")
        ended = time.time()
        beside.enough.set()
        beside.join()
    rows: list[dict[str, Any]] = [row for row in read(folder / "slots" / "0") if row["updates"]]
    first, last = rows[0], rows[-1]
    rate = (last["to"] - first["to"]) / (last["at"] - first["at"])
    return rate, beside.cpu_s(of_learner=True), beside.cpu_s(of_learner=False), ended - last["at"]


def main() -> None:
    """In turns, so that a slow minute of the machine is everybody's."""
    found: dict[str, list[tuple[float, float, float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as base:
        for n in range(figures.number(1, 5)):
            for way in WAYS:
                found[way].append(job(way, Path(base) / f"{way.replace(' ', '-')}-{n}"))
                rate, cpu_s, beside_s, exit_s = found[way][-1]
                print(
                    f"{n} {way}: {rate:.1f} steps/s, {cpu_s:.1f} + {beside_s:.1f} CPU s, exit {exit_s:.1f} s",
                    flush=True,
                )
    rows = [
        (way, len(measured), *(f"{statistics.median(values):.1f}" for values in zip(*measured, strict=True)))
        for way, measured in found.items()
    ]
    figures.save("wandb_live", ("way", "jobs", "steps_per_s", "learner_cpu_s", "beside_cpu_s", "exit_s"), rows)


if __name__ == "__main__":
    main()
