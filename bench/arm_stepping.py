"""Stepping the arm: how many environment steps a second, beside stable-baselines3's vector and the physics alone.

`python bench/arm_stepping.py [--rounds N] [--envs 8 32]` builds every rival, then measures them in turns, each turn one
episode of 100 steps and one reset of every environment; medians and ranges over the rounds. The actions are the same
random ones. "physics alone" is 5 x mj_step + mj_kinematics in C, every thread for itself, without resets, on arms that
are moved natively in between, so that they are where the others' arms are: what no stepper can beat. One
thread's rates are by its CPU time, which a busy machine changes little; those of two by the clock. Writes
arm_stepping.csv.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import figures
import gymnasium
import numpy as np
from stable_baselines3.common.env_util import make_vec_env

from trainer.config.suites import Arm
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv

NAME = "trainer.envs.suites.arm.gym:anchorleg/ArmReach-v0"
HORIZON = 100


@dataclass
class Rival:
    """`run` makes one round of HORIZON steps of every environment and returns what it took, in seconds."""

    name: str
    threads: int
    run: Callable[[], float]
    seconds: list[float] = field(default_factory=list)


def now(threads: int) -> float:
    return time.thread_time() if threads == 1 else time.perf_counter()


def timed(step: Callable[[np.ndarray], object], actions: np.ndarray, threads: int = 1) -> Callable[[], float]:
    def run() -> float:
        began = now(threads)
        for action in actions:
            step(action)
        return now(threads) - began

    return run


def one_by_one(count: int, stack: ExitStack) -> Callable[[np.ndarray], None]:
    """Gymnasium's environments in a loop."""
    envs = [gymnasium.make(NAME) for _ in range(count)]
    for number, env in enumerate(envs):
        stack.callback(env.close)
        env.reset(seed=number)

    def step(action: np.ndarray) -> None:
        for env, own in zip(envs, action, strict=True):
            _, _, terminated, truncated, _ = env.step(own)
            if terminated or truncated:
                env.reset()

    return step


def dummy(count: int, stack: ExitStack) -> Callable[[np.ndarray], object]:
    envs = make_vec_env(NAME, count, seed=1)
    stack.callback(envs.close)
    envs.reset()
    return envs.step


def ours(spec: VectorSpec, threads: int, stepper: str, stack: ExitStack) -> Callable[[np.ndarray], object]:
    envs = stack.enter_context(VectorEnv(spec, threads, stepper))
    envs.reset()
    return envs.step


def physics(spec: VectorSpec, threads: int, actions: np.ndarray, stack: ExitStack) -> Callable[[], float]:
    envs = stack.enter_context(VectorEnv(spec, threads, "native"))
    envs.reset()
    race = envs._group.stepper.race  # noqa: SLF001 - made for this

    def run() -> float:
        took = 0.0
        for action in actions:
            envs.step(action)
            began = now(threads)
            race(1)
            took += now(threads) - began
        return took

    return run


def measure(count: int, rounds: int) -> list[list[object]]:
    """Rows of the table for `count` environments."""
    spec = VectorSpec(SuiteRef(Arm()), count, seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (HORIZON, count, 7)).astype(np.float32)
    with ExitStack() as stack:
        rivals = [
            Rival("gymnasium, one by one", 1, timed(one_by_one(count, stack), actions)),
            Rival("stable-baselines3 DummyVecEnv", 1, timed(dummy(count, stack), actions)),
            Rival("ours, Python", 1, timed(ours(spec, 0, "python", stack), actions)),
            Rival("ours, native", 1, timed(ours(spec, 1, "native", stack), actions)),
            Rival("ours, native", 2, timed(ours(spec, 2, "native", stack), actions, 2)),
            Rival("physics alone", 1, physics(spec, 1, actions, stack)),
            Rival("physics alone", 2, physics(spec, 2, actions, stack)),
        ]
        for turn in range(rounds + 1):  # the first warms up
            for rival in rivals:
                took = rival.run()
                if turn:
                    rival.seconds.append(took)
    rates = {(rival.name, rival.threads): [count * HORIZON / seconds for seconds in rival.seconds] for rival in rivals}
    return [row_of(count, name, threads, rates) for name, threads in rates]


def row_of(count: int, name: str, threads: int, rates: dict[tuple[str, int], list[float]]) -> list[object]:
    """One line of the table: rate, its range, times DummyVecEnv, part of the physics on as many threads."""
    own = rates[name, threads]
    middle = statistics.median(own)
    times = middle / statistics.median(rates["stable-baselines3 DummyVecEnv", 1])
    part = middle / statistics.median(rates["physics alone", threads])
    print(
        f"{count} environments, {name}, {threads} threads: {middle:.0f} steps/s ({min(own):.0f} to {max(own):.0f}), "
        f"{times:.2f} x DummyVecEnv, {part:.2f} of the physics"
    )
    figures_of = [f"{rate:.0f}" for rate in (middle, min(own), max(own))]
    return [count, name, threads, *figures_of, f"{times:.2f}", f"{part:.2f}", len(own)]


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--envs", type=int, nargs="+", default=[8, 32])
    chosen = parser.parse_args()
    rows = [row for count in chosen.envs for row in measure(count, chosen.rounds)]
    head = ["envs", "stepper", "threads", "steps_s", "lowest", "highest", "times_dummy", "of_physics", "rounds"]
    figures.save("arm_stepping", head, rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
