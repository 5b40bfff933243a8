"""Stepping MT10: how many environment steps a second, beside gymnasium's vectors, EnvPool and the physics alone.

`python bench/stepping.py [--rounds N] [--envs 10 32] [--envpool PYTHON]` builds every rival, then measures them in
turns, each turn one episode of 500 steps and one reset of every environment; medians and ranges over the rounds. The
actions are the same random ones. "physics alone" is 5 x mj_step + mj_forward in C, every thread for itself, without
resets: what no stepper can beat. Ours remembers resets; "first episodes" has none to remember, the other rows have
them all, as a run has after its first 500 episodes. `--envpool` names a Python that has EnvPool's Meta-World.
Writes stepping.csv.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import figures
import numpy as np

from trainer.config.suites import Metaworld
from trainer.config.tasknames import MT10
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv

ROOT = Path(__file__).resolve().parents[1]
HORIZON = 500
#: Run by another interpreter: prints the seconds of each round.
ENVPOOL = """
import sys, time
import envpool, numpy as np
count, rounds = int(sys.argv[1]), int(sys.argv[2])
tasks = sys.argv[3].split(",")
pools = [envpool.make_gymnasium(f"MetaWorld/{task}", num_envs=-(-count // len(tasks)), num_threads=2, seed=0)
         for task in tasks]
for pool in pools:
    pool.reset()
actions = np.random.default_rng(0).uniform(-1, 1, (500, -(-count // len(tasks)), 4)).astype(np.float32)
for _ in range(rounds):
    began = time.perf_counter()
    for action in actions:
        for pool in pools:
            pool.step(action)
    print(time.perf_counter() - began, flush=True)
"""


@dataclass
class Rival:
    """`run` makes one round of HORIZON steps of every environment; `seconds` collects what the rounds took."""

    name: str
    threads: int
    run: Callable[[], object]
    fresh: bool = False
    seconds: list[float] = field(default_factory=list)


def gymnasium_vector(strategy: str, count: int, actions: np.ndarray, stack: ExitStack) -> Callable[[], None]:
    import gymnasium as gym  # noqa: PLC0415 - takes its time
    import metaworld  # noqa: F401, PLC0415 - registers the names

    settings = {"vector_strategy": strategy, "seed": 1, "reward_function_version": "v2"}
    if count == len(MT10):
        envs = gym.make_vec("Meta-World/MT10", **settings)
    else:
        names = [MT10[i % len(MT10)] for i in range(count)]
        envs = gym.make_vec("Meta-World/custom-mt-envs", envs_list=names, **settings)
    stack.callback(envs.close)
    envs.reset(seed=0)

    def run() -> None:
        for action in actions:
            envs.step(action)

    return run


def ours(spec: VectorSpec, workers: int, stepper: str, actions: np.ndarray, stack: ExitStack) -> Callable[[], None]:
    envs = stack.enter_context(VectorEnv(spec, workers, stepper))
    envs.reset()

    def run() -> None:
        for action in actions:
            envs.step(action)

    return run


def remembering(spec: VectorSpec, threads: int, actions: np.ndarray, stack: ExitStack) -> Callable[[], None]:
    """Ours natively, after every task has been reset to each of its goals once."""
    envs = stack.enter_context(VectorEnv(spec, threads, "native"))
    instances = envs._group._instances  # noqa: SLF001 - five hundred whole episodes would do the same
    for task in range(len(envs.spaces.tasks)):
        env = instances.borrow(task)
        for start in range(envs.suite.starts):
            instances.reset(env, task, start)
        instances.give_back(task, env)
    envs.reset()

    def run() -> None:
        for action in actions:
            envs.step(action)

    return run


def physics(spec: VectorSpec, threads: int, stack: ExitStack) -> Callable[[], None]:
    envs = stack.enter_context(VectorEnv(spec, threads, "native"))
    envs.reset()
    envs.step(np.zeros((spec.num_envs, 4), np.float32))
    return lambda: envs._group.stepper.race(HORIZON)  # noqa: SLF001 - made for this


def envpool_rates(python: str | None, count: int, rounds: int) -> list[float]:
    """Steps a second of each round; none where it is not available."""
    if python is None:
        return []
    names = ",".join("".join(word.capitalize() for word in task.split("-")[:-1]) + "-v3" for task in MT10)
    command = [python, "-c", ENVPOOL, str(count), str(rounds), names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"EnvPool: {done.stderr.strip().splitlines()[-1]}")
        return []
    made = -(-count // len(MT10)) * len(MT10)
    return [made * HORIZON / float(line) for line in done.stdout.split()]


def measure(count: int, rounds: int, envpool: str | None) -> list[list[object]]:
    """Rows of the table for `count` environments."""
    spec = VectorSpec(SuiteRef(Metaworld(tasks=MT10, horizon=HORIZON)), count, seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (HORIZON, count, 4)).astype(np.float32)
    with ExitStack() as stack:
        rivals = [
            Rival("gymnasium SyncVectorEnv", 1, gymnasium_vector("sync", count, actions, stack)),
            Rival("gymnasium AsyncVectorEnv", count, gymnasium_vector("async", count, actions, stack)),
            Rival("ours, Python", 1, ours(spec, 0, "python", actions, stack)),
            Rival("ours, Python, 2 workers", 2, ours(spec, 2, "python", actions, stack)),
            Rival("ours, native", 1, remembering(spec, 1, actions, stack)),
            Rival("ours, native", 2, remembering(spec, 2, actions, stack)),
            Rival("ours, native, first episodes", 2, ours(spec, 2, "native", actions, stack), fresh=True),
            Rival("physics alone", 1, physics(spec, 1, stack)),
            Rival("physics alone", 2, physics(spec, 2, stack)),
        ]
        for turn in range(rounds + 1):  # the first warms up
            for rival in rivals:
                began = time.perf_counter()
                rival.run()
                if turn or rival.fresh:
                    rival.seconds.append(time.perf_counter() - began)
    rates = {(rival.name, rival.threads): [count * HORIZON / seconds for seconds in rival.seconds] for rival in rivals}
    rates["EnvPool", 2] = envpool_rates(envpool, count, rounds)
    return [row_of(count, name, threads, rates) for name, threads in rates]


def row_of(count: int, name: str, threads: int, rates: dict[tuple[str, int], list[float]]) -> list[object]:
    """One line of the table: rate, its range, times AsyncVectorEnv, part of the physics on as many threads."""
    own = rates[name, threads]
    if not own:
        print(f"{count} environments, {name}: not available")
        return [count, name, threads, "not available", "", "", "", "", ""]
    middle = statistics.median(own)
    rival = statistics.median(rates["gymnasium AsyncVectorEnv", count])
    alone = rates.get(("physics alone", threads))
    part = f"{middle / statistics.median(alone):.2f}" if alone else ""
    print(
        f"{count} environments, {name}, {threads} threads: {middle:.0f} steps/s ({min(own):.0f} to {max(own):.0f}), "
        f"{middle / rival:.2f} x AsyncVectorEnv, {part or '-'} of the physics"
    )
    return [
        count,
        name,
        threads,
        *(f"{x:.0f}" for x in (middle, min(own), max(own))),
        f"{middle / rival:.2f}",
        part,
        len(own),
    ]


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--envs", type=int, nargs="+", default=[10, 32])
    parser.add_argument("--envpool", metavar="PYTHON")
    chosen = parser.parse_args()
    rows = [row for count in chosen.envs for row in measure(count, chosen.rounds, chosen.envpool)]
    head = ["envs", "stepper", "threads", "steps_s", "lowest", "highest", "times_async", "of_physics", "rounds"]
    figures.save("stepping", head, rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
