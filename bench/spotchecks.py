"""What doing others' segments again costs the learner: rows a second, and the part of a core at 20 segments a second.

`python bench/spotchecks.py [MINUTES]` (20): whole episodes of 500 random steps of MT10 are checked as the ingester
does it, 20 of them in each second of an invented clock, after a first minute that is not counted (in which each
contributor's first ones are all checked). The budget: 2 % of a core. Beside it the same physics without anything
else (`race`), which nobody steps faster than. Writes spotchecks.csv.
"""

from __future__ import annotations

import sys
import time
from itertools import cycle, islice
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from segments_of import honest  # noqa: E402

from trainer.config.suites import BENCHMARKS, Metaworld  # noqa: E402
from trainer.envs.shared import SharedBuffers  # noqa: E402
from trainer.envs.suite import EpisodeStats, SuiteRef  # noqa: E402
from trainer.envs.suites.metaworld.env import MetaworldEnv, TaskEnv  # noqa: E402
from trainer.envs.suites.metaworld.native.library import load  # noqa: E402
from trainer.envs.suites.metaworld.native.rows import NativeRows  # noqa: E402
from trainer.envs.suites.metaworld.suite import Suite  # noqa: E402
from trainer.sharing.spotcheck import Resimulator, SpotChecks  # noqa: E402

A_SECOND, HORIZON, RACED = 20, 500, 2_000
TASKS = BENCHMARKS["MT10"]


def physics_alone() -> float:
    """Steps a second of the simulator alone, the mean over the tasks."""
    suite = Suite(Metaworld(tasks=TASKS, horizon=HORIZON), 42)
    seconds = 0.0
    for task, table in zip(TASKS, suite.goals, strict=True):
        buffers, env = SharedBuffers(suite.spaces, 1), TaskEnv(task)
        rows = NativeRows(load(), 1, buffers.fields, 1, HORIZON)
        env.reset(table[0])
        rows.bind(0, 0).take(MetaworldEnv(env, table), 0, EpisodeStats())
        before = time.process_time()
        rows.race(RACED)
        seconds += time.process_time() - before
        rows.close()
        buffers.close()
        env.close()
    return RACED * len(TASKS) / seconds


def main() -> None:
    """Measure and print."""
    minutes = figures.number(1, 20)
    segments = honest(2 * len(TASKS), tasks=TASKS, horizon=HORIZON, num_envs=len(TASKS))
    referee = Resimulator(SuiteRef(Metaworld(tasks=TASKS, horizon=HORIZON), 42))
    for one in segments:  # builds the environments and finds the goals
        referee.redo(one)
    counted, checked, cpu = 0, 0, 0.0
    checks = SpotChecks(lambda: referee, 0.1)
    for number, one in enumerate(islice(cycle(segments), A_SECOND * 60 * (minutes + 1))):
        before = time.process_time()
        done = checks.check("friend", one, in_doubt=False)
        if number >= 60 * A_SECOND:
            cpu += time.process_time() - before
            counted += 1
            checked += done is not None
    rows = [
        ("segments a second", A_SECOND),
        ("checked, % of them", f"{100 * checked / counted:.1f}"),
        ("of a core, %", f"{100 * cpu / (60 * minutes):.2f}"),
        ("rows a CPU second", f"{checked * HORIZON / cpu:.0f}"),
        ("steps a CPU second, physics alone", f"{physics_alone():.0f}"),
    ]
    for name, value in rows:
        print(f"{name}: {value}")
    figures.save("spotchecks", ["what", "value"], rows)


if __name__ == "__main__":
    main()
