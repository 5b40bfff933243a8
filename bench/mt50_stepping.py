"""Stepping MT10 and MT50 on one thread: natively, by Python, with remembered and with first resets, the physics alone.

`python bench/mt50_stepping.py [--rounds N] [--benchmarks MT10 MT50]` has one environment a task and measures the rivals
in turns, each turn one episode of 500 steps and one reset of every environment; medians and ranges over the rounds, and
medians of the ratios within a round. The actions are the same random ones. "first episodes" has no resets to remember,
"native" has them all. "physics alone" is 5 x mj_step + mj_forward in C, without resets, on environments that are
stepped natively in between, so that they are where the others' are. All by the thread's CPU time, which a busy machine
changes little. Writes mt50_stepping.csv.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import figures
import numpy as np
from arm_stepping import Rival, over, timed

from trainer.config.suites import Metaworld
from trainer.config.tasknames import BENCHMARKS
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv

HORIZON = 500
NATIVE, PHYSICS = "ours, native", "physics alone"


def remember(envs: VectorEnv) -> None:
    """Reset every task to each of its goals once: what thousands of episodes would do."""
    instances = envs._group._instances  # noqa: SLF001 - as above
    for task in range(len(envs.spaces.tasks)):
        env = instances.borrow(task)
        for start in range(envs.suite.starts):
            instances.reset(env, task, start)
        instances.give_back(task, env)


def physics(envs: VectorEnv, actions: np.ndarray) -> Callable[[], float]:
    race = envs._group.stepper.race  # noqa: SLF001 - made for this

    def run() -> float:
        took = 0.0
        for action in actions:
            envs.step(action)
            began = time.thread_time()
            race(1)
            took += time.thread_time() - began
        return took

    return run


def measure(benchmark: str, rounds: int) -> list[list[object]]:
    """Rows of the table for the tasks of `benchmark`."""
    tasks = BENCHMARKS[benchmark]
    spec = VectorSpec(SuiteRef(Metaworld(tasks=tasks, horizon=HORIZON)), len(tasks), seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (HORIZON, len(tasks), 4)).astype(np.float32)
    with ExitStack() as stack:
        envs = [stack.enter_context(VectorEnv(spec, 0, stepper)) for stepper in ("python", *["native"] * 3)]
        remember(envs[1])
        for one in envs:
            one.reset()
        rivals = [
            Rival("ours, Python", timed(envs[0].step, actions)),
            Rival(NATIVE, timed(envs[1].step, actions)),
            Rival("ours, native, first episodes", timed(envs[2].step, actions)),
            Rival(PHYSICS, physics(envs[3], actions)),
        ]
        for _ in range(rounds):
            for rival in rivals:
                rival.seconds.append(rival.run())
    rates = {rival.name: [len(tasks) * HORIZON / seconds for seconds in rival.seconds] for rival in rivals}
    return [row_of(benchmark, name, rates) for name in rates]


def row_of(benchmark: str, name: str, rates: dict[str, list[float]]) -> list[object]:
    """One line of the table: rate, its range, times Python's, part of the native one's and of the physics."""
    own = rates[name]
    ratios = [over(own, rates[other]) for other in ("ours, Python", NATIVE, PHYSICS)]
    shown = [f"{rate:.0f}" for rate in (statistics.median(own), min(own), max(own))]
    print(benchmark, name, *shown, *(f"{ratio:.2f}" for ratio in ratios), flush=True)
    return [benchmark, name, *shown, *(f"{ratio:.2f}" for ratio in ratios), len(own)]


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--benchmarks", nargs="+", choices=list(BENCHMARKS), default=["MT10", "MT50"])
    chosen = parser.parse_args()
    rows = [row for benchmark in chosen.benchmarks for row in measure(benchmark, chosen.rounds)]
    head = ["tasks", "stepper", "steps_s", "lowest", "highest", "times_python", "of_native", "of_physics", "rounds"]
    figures.save("mt50_stepping", head, rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
