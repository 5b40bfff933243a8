"""Stepping the arm: how many environment steps a second, beside stable-baselines3's vector and the physics alone.

`python bench/arm_stepping.py [--rounds N] [--envs 8 32]` builds every rival, then measures them in turns, each turn one
episode of 100 steps and one reset of every environment; medians and ranges over the rounds, and medians of the ratios
within a round. The actions are the same random ones. "physics alone" is 5 x mj_step + mj_kinematics in C, without
resets, on arms that are moved natively in between, so that they are where the others' arms are: what no stepper can
beat. All on one thread, by its CPU time, which a busy machine changes little. Writes arm_stepping.csv.
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
DUMMY, PHYSICS = "stable-baselines3 DummyVecEnv", "physics alone"


@dataclass
class Rival:
    """`run` makes one round of HORIZON steps of every environment and returns what it took, in seconds."""

    name: str
    run: Callable[[], float]
    seconds: list[float] = field(default_factory=list)


def timed(step: Callable[[np.ndarray], object], actions: np.ndarray) -> Callable[[], float]:
    def run() -> float:
        began = time.thread_time()
        for action in actions:
            step(action)
        return time.thread_time() - began

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


def ours(spec: VectorSpec, stepper: str, stack: ExitStack) -> Callable[[np.ndarray], object]:
    envs = stack.enter_context(VectorEnv(spec, 0, stepper))
    envs.reset()
    return envs.step


def physics(spec: VectorSpec, actions: np.ndarray, stack: ExitStack) -> Callable[[], float]:
    envs = stack.enter_context(VectorEnv(spec, 0, "native"))
    envs.reset()
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


def measure(count: int, rounds: int) -> list[list[object]]:
    """Rows of the table for `count` environments."""
    spec = VectorSpec(SuiteRef(Arm()), count, seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (HORIZON, count, 7)).astype(np.float32)
    with ExitStack() as stack:
        rivals = [
            Rival("gymnasium, one by one", timed(one_by_one(count, stack), actions)),
            Rival(DUMMY, timed(dummy(count, stack), actions)),
            Rival("ours, Python", timed(ours(spec, "python", stack), actions)),
            Rival("ours, native", timed(ours(spec, "native", stack), actions)),
            Rival(PHYSICS, physics(spec, actions, stack)),
        ]
        for turn in range(rounds + 1):  # the first warms up
            for rival in rivals:
                took = rival.run()
                if turn:
                    rival.seconds.append(took)
    rates = {rival.name: [count * HORIZON / seconds for seconds in rival.seconds] for rival in rivals}
    return [row_of(count, name, rates) for name in rates]


def over(own: list[float], theirs: list[float]) -> float:
    """The median of the ratios within a round."""
    return statistics.median(one / other for one, other in zip(own, theirs, strict=True))


def row_of(count: int, name: str, rates: dict[str, list[float]]) -> list[object]:
    """One line of the table: rate, its range, times DummyVecEnv, part of the physics."""
    own = rates[name]
    middle, times, part = statistics.median(own), over(own, rates[DUMMY]), over(own, rates[PHYSICS])
    print(
        f"{count} environments, {name}: {middle:.0f} steps/s ({min(own):.0f} to {max(own):.0f}), "
        f"{times:.2f} x DummyVecEnv, {part:.2f} of the physics"
    )
    figures_of = [f"{rate:.0f}" for rate in (middle, min(own), max(own))]
    return [count, name, *figures_of, f"{times:.2f}", f"{part:.2f}", len(own)]


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--envs", type=int, nargs="+", default=[8, 32])
    chosen = parser.parse_args()
    rows = [row for count in chosen.envs for row in measure(count, chosen.rounds)]
    head = ["envs", "stepper", "steps_s", "lowest", "highest", "times_dummy", "of_physics", "rounds"]
    figures.save("arm_stepping", head, rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
