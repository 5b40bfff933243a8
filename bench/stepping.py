"""Environment steps a second, beside other people's vectors and the physics alone.

`python bench/stepping.py [--rounds N] [--tables stepping mt50_stepping arm_stepping] [--least]` builds every rival of a
table, then measures them in turns, each turn one whole episode and one reset of every environment; medians and ranges
over the rounds, and medians of the ratios within a round. The actions are the same random ones. `--least`: the first
row of sizes of each table alone.

- stepping: MT10 by the clock, beside gymnasium's vectors, with workers and threads. Ours remembers resets; "first
  episodes" has none to remember, the other rows have them all, as a run has after its first 500 episodes.
- mt50_stepping: one environment a task of MT10 and MT50, on one thread, by its CPU time, which a busy machine changes
  little.
- arm_stepping: the arm in the same way, beside stable-baselines3's vector.

"physics alone" is what no stepper can beat: five mj_step and one mj_forward (the arm: mj_kinematics) in C, without
resets; by CPU time on environments that are stepped natively in between, so that they are where the others' are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import figures
import numpy as np

from trainer.config.suites import BENCHMARKS, MT10, Arm, Metaworld
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv

NAME = "trainer.envs.suites.arm.gym:anchorleg/ArmReach-v0"
EPISODE, ARM_EPISODE = 500, 100
ASYNC, DUMMY = "gymnasium AsyncVectorEnv", "stable-baselines3 DummyVecEnv"
PYTHON, NATIVE, FRESH, PHYSICS = "ours, Python", "ours, native", "ours, native, first episodes", "physics alone"
Step = Callable[[np.ndarray], object]
#: (name, threads) → seconds of a round.
Rivals = dict[tuple[str, int], Callable[[], float]]


@dataclass(frozen=True)
class Table:
    """One CSV file. `beside`: columns of ratios, and the rival that each is to; `rivals` builds those of a size, and
    says how many steps a round has.
    """

    head: Sequence[str]
    sizes: Sequence[int | str]
    beside: dict[str, str]
    rivals: Callable[[int | str, ExitStack], tuple[Rivals, int]]
    rounds: int = 5


def timed(step: Step, actions: np.ndarray, clock: Callable[[], float] = time.thread_time) -> Callable[[], float]:
    """A round of these actions."""

    def run() -> float:
        began = clock()
        for action in actions:
            step(action)
        return clock() - began

    return run


def drawn(steps: int, count: int, size: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (steps, count, size)).astype(np.float32)


def metaworld(tasks: Sequence[str], count: int) -> VectorSpec:
    return VectorSpec(SuiteRef(Metaworld(tasks=tuple(tasks), horizon=EPISODE)), count, seed=0)


def ours(spec: VectorSpec, workers: int, stepper: str, stack: ExitStack, *, remembering: bool = False) -> VectorEnv:
    """Ours; `remembering`: after every task has been reset to each of its goals once, as thousands of episodes do."""
    envs = stack.enter_context(VectorEnv(spec, workers, stepper))
    if remembering:
        instances = envs._group._instances  # noqa: SLF001 - made for this
        for task in range(len(envs.spaces.tasks)):
            env = instances.borrow(task)
            for start in range(envs.suite.starts):
                instances.reset(env, task, start)
            instances.give_back(task, env)
    envs.reset()
    return envs


def gymnasium_vector(strategy: str, count: int, stack: ExitStack) -> Step:
    import gymnasium as gym
    import metaworld  # noqa: F401 - registers the names

    settings = {"vector_strategy": strategy, "seed": 1, "reward_function_version": "v2"}
    names = [MT10[i % len(MT10)] for i in range(count)]
    envs = gym.make_vec("Meta-World/custom-mt-envs", envs_list=names, **settings)
    stack.callback(envs.close)
    envs.reset(seed=0)
    return envs.step


def one_by_one(count: int, stack: ExitStack) -> Step:
    """Gymnasium's arms in a loop."""
    import gymnasium as gym

    envs = [gym.make(NAME) for _ in range(count)]
    for number, env in enumerate(envs):
        stack.callback(env.close)
        env.reset(seed=number)

    def step(action: np.ndarray) -> None:
        for env, own in zip(envs, action, strict=True):
            _, _, terminated, truncated, _ = env.step(own)
            if terminated or truncated:
                env.reset()

    return step


def dummy(count: int, stack: ExitStack) -> Step:
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env(NAME, count, seed=1)
    stack.callback(envs.close)
    envs.reset()
    return envs.step


def racing(envs: VectorEnv) -> Callable[[], float]:
    """A round of the physics, every thread for itself, by the clock."""
    envs.step(np.zeros((envs.num_envs, 4), np.float32))
    race = envs._group.stepper.race  # noqa: SLF001 - made for this
    return lambda: figures.timed(lambda: race(EPISODE), clock=time.perf_counter)


def physics(envs: VectorEnv, actions: np.ndarray) -> Callable[[], float]:
    """A round of the physics, where these actions lead to, by CPU time."""
    race = envs._group.stepper.race  # noqa: SLF001 - made for this

    def run() -> float:
        took = 0.0
        for action in actions:
            envs.step(action)
            took += figures.timed(lambda: race(1), clock=time.thread_time)
        return took

    return run


def by_the_clock(count: int, stack: ExitStack) -> tuple[Rivals, int]:
    spec, actions = metaworld(MT10, count), drawn(EPISODE, count, 4)
    steps: dict[tuple[str, int], Step] = {
        ("gymnasium SyncVectorEnv", 1): gymnasium_vector("sync", count, stack),
        (ASYNC, count): gymnasium_vector("async", count, stack),
        (PYTHON, 1): ours(spec, 0, "python", stack).step,
        (f"{PYTHON}, 2 workers", 2): ours(spec, 2, "python", stack).step,
        (NATIVE, 1): ours(spec, 1, "native", stack, remembering=True).step,
        (NATIVE, 2): ours(spec, 2, "native", stack, remembering=True).step,
        (FRESH, 2): ours(spec, 2, "native", stack).step,
    }
    rivals = {key: timed(step, actions, time.perf_counter) for key, step in steps.items()}
    alone = {(PHYSICS, threads): racing(ours(spec, threads, "native", stack)) for threads in (1, 2)}
    return {**rivals, **alone}, count * EPISODE


def of_tasks(benchmark: str, stack: ExitStack) -> tuple[Rivals, int]:
    tasks = BENCHMARKS[benchmark]
    spec, actions = metaworld(tasks, len(tasks)), drawn(EPISODE, len(tasks), 4)
    return {
        (PYTHON, 1): timed(ours(spec, 0, "python", stack).step, actions),
        (NATIVE, 1): timed(ours(spec, 0, "native", stack, remembering=True).step, actions),
        (FRESH, 1): timed(ours(spec, 0, "native", stack).step, actions),
        (PHYSICS, 1): physics(ours(spec, 0, "native", stack), actions),
    }, len(tasks) * EPISODE


def of_arms(count: int, stack: ExitStack) -> tuple[Rivals, int]:
    spec, actions = VectorSpec(SuiteRef(Arm()), count, seed=0), drawn(ARM_EPISODE, count, 7)
    return {
        ("gymnasium, one by one", 1): timed(one_by_one(count, stack), actions),
        (DUMMY, 1): timed(dummy(count, stack), actions),
        (PYTHON, 1): timed(ours(spec, 0, "python", stack).step, actions),
        (NATIVE, 1): timed(ours(spec, 0, "native", stack).step, actions),
        (PHYSICS, 1): physics(ours(spec, 0, "native", stack), actions),
    }, count * ARM_EPISODE


TABLES: dict[str, Table] = {
    "stepping": Table(
        ("envs", "stepper", "threads"), (10, 32), {"times_async": ASYNC, "of_physics": PHYSICS}, by_the_clock
    ),
    "mt50_stepping": Table(
        ("tasks", "stepper"),
        ("MT10", "MT50"),
        {"times_python": PYTHON, "of_native": NATIVE, "of_physics": PHYSICS},
        of_tasks,
    ),
    "arm_stepping": Table(
        ("envs", "stepper"), (8, 32), {"times_dummy": DUMMY, "of_physics": PHYSICS}, of_arms, rounds=21
    ),
}


def measure(table: Table, size: int | str, rounds: int) -> list[list[object]]:
    """Rows of a table: rates, their range, and ratios, those to the physics on as many threads."""
    with ExitStack() as stack:
        rivals, steps = table.rivals(size, stack)
        found = figures.by_turns(rivals, rounds)
    rates = {key: [steps / seconds for seconds in all_s] for key, all_s in found.items()}
    rows = []
    for (name, threads), own in rates.items():
        shown = [f"{rate:.0f}" for rate in (statistics.median(own), min(own), max(own))]
        ratios = []
        for rival in table.beside.values():
            same = [key for key in rates if key[0] == rival and (rival != PHYSICS or key[1] == threads)]
            ratios.append(f"{figures.ratio(own, rates[same[0]]):.2f}" if same else "")
        rows.append([size, name, *[threads] * ("threads" in table.head), *shown, *ratios, len(own)])
        print(*rows[-1], sep=", ", flush=True)
    return rows


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--least", action="store_true")
    chosen = parser.parse_args()
    for name in chosen.tables:
        table = TABLES[name]
        sizes = table.sizes[:1] if chosen.least else table.sizes
        rows = [row for size in sizes for row in measure(table, size, chosen.rounds or table.rounds)]
        if not chosen.least:
            figures.save(name, [*table.head, "steps_s", "lowest", "highest", *table.beside, "rounds"], rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
