"""What random actions do to the arm: how often they end at the goal, come within 5 cm of it and within 15 cm.

`python bench/arm_random.py [--episodes N]` plays so many episodes of 100 steps for each kind of goals, with uniform
actions, 1,000 by default, and writes arm_random.csv: what any training must be better than.
"""

from __future__ import annotations

import argparse

import figures
import numpy as np

from trainer.config.suites import Arm
from trainer.envs.spaces import STATE
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv

ENVS = 25
#: Columns of an observation: goal - hand.
WAY = slice(20, 23)
HEAD = ("goals", "episodes", "m_at_start", "m_at_most", "ended_within_5_cm", "ever_within_5_cm", "ever_within_15_cm")


def played(goals: str, episodes: int) -> list[object]:
    """A row of the table."""
    settings = Arm(goals=goals)
    rng = np.random.default_rng(0)
    starts, success, measures = [], [], []
    with VectorEnv(VectorSpec(SuiteRef(settings), ENVS, seed=0)) as envs:
        obs = envs.reset().obs[STATE]
        for number in range(episodes // ENVS * settings.horizon):
            if number % settings.horizon == 0:
                starts += np.linalg.norm(obs[:, WAY], axis=1).tolist()
            step = envs.step(rng.uniform(-1, 1, (ENVS, 7)).astype(np.float32))
            obs = step.obs[STATE]
            success += step.episode_success[step.finished].tolist()
            measures += step.episode_measures[step.finished].tolist()
    reached, triggered = np.array(measures)[:, :2].mean(axis=0)
    rates = [f"{rate:.3f}" for rate in (np.mean(success), reached, triggered)]
    return [goals, len(success), f"{np.mean(starts):.2f}", f"{max(starts):.2f}", *rates]


def main() -> None:
    """Play and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000)
    asked = parser.parse_args()
    rows = [played(goals, asked.episodes) for goals in ("workspace", "box", "fixed")]
    for row in rows:
        print(", ".join(f"{name} {value}" for name, value in zip(HEAD, row, strict=True)))
    figures.save("arm_random", HEAD, rows)


if __name__ == "__main__":
    main()
