"""What policies that see come to in half an hour of CPU, beside stable-baselines3's nets for pictures at equal steps.

`python bench/pixels.py [--trainings NAME …] [--seeds 3] [--processes 2]`: ours by the presets `arm-pixels` (PPO) and
`reach-pixels` (DrQ-v2), to their end; `sb3-…` is stable-baselines3's PPO or SAC with its own net for pictures
(`MultiInputPolicy`: NatureCNN), the same cameras and numbers, rollouts, batches and rates, and its critic sees what its
policy sees; its pictures are of 36 pixels for `reach-pixels`, whose 32 are too small for its net. Each training has one
process and one torch thread. Success is of deterministic policies on held-out goals, `GOALS` of each of two seeds that
no training has.

The settings were chosen by short tries with seeds 1000 to 1002, and with seed 0 of `reach-pixels` through other
cameras. Three seeds of it without a penalty on what goes into the actor's tanh had 0.00, 0.85 and 0.45 after 20,000
steps: these are not in the table any more.

Stated before the first whole run: each of three seeds of ours has a success of 0.5 at least, and takes 30 minutes of
CPU at most.

One row a training goes to pixels.csv; trainings that are in it with the very same settings are not made again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, cast

import figures
import gymnasium
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from stable_baselines3 import PPO, SAC  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402

from trainer.config.algorithms import Ppo  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.settings import OffPolicySettings  # noqa: E402
from trainer.config.training import Training, identity  # noqa: E402
from trainer.envs.pictures import ready_to_draw  # noqa: E402
from trainer.envs.spaces import Obs  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef, suite_of  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.evaluation.protocol import Act, evaluate, unseen_seed  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.sharing.policies import Policy, actor_tensors  # noqa: E402
from trainer.training.run import advance, as_begun, drain, learn_the_rest  # noqa: E402

SB3 = "sb3-"
NAMES = ("arm-pixels", "sb3-arm-pixels", "reach-pixels", "sb3-reach-pixels")
GOALS = 50
#: stable-baselines3's net takes pictures from so many pixels on.
SB3_LEAST = 36
HEAD = [
    "training",
    "seed",
    "steps",
    "settings",
    "success on held-out goals",
    "cpu minutes",
    "environment steps/s of CPU",
]
Key = tuple[str, int]


def training_of(name: str, seed: int) -> Training:
    """The preset behind a training's name."""
    training = resolve(TrainingSection(preset=name.removeprefix(SB3), seed=seed, device="cpu"))
    if not name.startswith(SB3) or training.env.image_size >= SB3_LEAST:
        return training
    return training.model_copy(update={"env": training.env.model_copy(update={"image_size": SB3_LEAST})})


def ours(training: Training) -> Act:
    """Our loop, to the end."""
    with VectorEnv(VectorSpec(suite_of(training), training.num_envs, training.seed), 0) as envs:
        run = as_begun(training, torch.device("cpu"), envs)
        while run.step < training.total_steps:
            advance(run)
            drain(run)
        learn_the_rest(run)
        net = run.algorithm.policy
        return Policy(net.spec, actor_tensors(net)).act_deterministic


class Seeing(gymnasium.Env):  # type: ignore[misc]
    """An environment of a training as stable-baselines3 wants it: what the policy sees, by key."""

    def __init__(self, training: Training) -> None:
        self._suite = suite_of(training).open()
        self._env, self._steps = self._suite.make(0), 0
        self._keys = tuple(self._suite.spaces.of_policy.obs)
        self.observation_space = gymnasium.spaces.Dict(
            {
                key: gymnasium.spaces.Box(spec.low, spec.high, spec.shape, np.dtype(spec.dtype).type)
                for key, spec in self._suite.spaces.of_policy.obs.items()
            }
        )
        size = cast("Any", self._suite.spaces.action).size
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (size,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Obs, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        start = int(self.np_random.integers(self._suite.starts or 1))
        self._steps = 0
        return self._seen(self._env.reset(start, int(self.np_random.integers(2**31)))), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Act."""
        outcome = self._env.step(action)
        self._steps += 1
        cut = outcome.truncated or self._steps >= self._suite.spaces.horizon
        return self._seen(outcome.obs), float(outcome.reward), outcome.terminated, cut, {}

    def _seen(self, obs: Obs) -> Obs:
        return {key: obs[key] for key in self._keys}


def stable_baselines3(training: Training) -> Act:
    """SB3's `learn`, to the end."""
    settings = training.algorithm
    envs = make_vec_env(lambda: Seeing(training), training.num_envs, seed=training.seed)
    more: dict[str, Any] = {"device": "cpu", "seed": training.seed, "gamma": settings.gamma}
    if isinstance(settings, Ppo):
        rate = settings.learning_rate
        model: Any = PPO(
            "MultiInputPolicy", envs, n_steps=settings.rollout_steps, batch_size=settings.batch_size,
            n_epochs=settings.epochs, gae_lambda=settings.gae_lambda, learning_rate=lambda left: rate * left, **more,
        )  # fmt: skip
    else:
        off = cast("OffPolicySettings", settings)
        model = SAC(
            "MultiInputPolicy", envs, batch_size=off.batch_size, buffer_size=off.buffer_size,
            learning_starts=off.random_steps, train_freq=1,
            gradient_steps=max(1, round(off.updates_per_step * training.num_envs)), **more,
        )  # fmt: skip
    model.set_logger(configure(None, []))
    model.learn(training.total_steps)
    envs.close()

    def act(obs: Mapping[str, Any], task: Any) -> Any:  # noqa: ARG001 - there is one
        return model.predict({key: obs[key] for key in model.observation_space.spaces}, deterministic=True)[0]

    return act


def success(training: Training, act: Act) -> float:
    """On goals of two seeds that no training has."""
    found = [evaluate(act, SuiteRef(training.env, unseen_seed(number)), GOALS) for number in range(2)]
    return float(np.mean([one.mean_success for one in found if one is not None]))


def trained(name: str, seed: int) -> list[str]:
    """The row of one whole training, in a process of its own."""
    machine.set_deterministic(1)
    training = training_of(name, seed)
    ready_to_draw(training.env)
    began = time.process_time()
    act = (stable_baselines3 if name.startswith(SB3) else ours)(training)
    took = time.process_time() - began
    return [
        name, str(seed), str(training.total_steps), identity(training)[:12], f"{success(training, act):.2f}",
        f"{took / 60:.1f}", f"{training.total_steps / took:.0f}",
    ]  # fmt: skip


def known() -> tuple[dict[Key, list[str]], set[Key]]:
    """(the rows that there are, those among them whose settings are today's: the others are trained anew when they are
    asked for, and stay until then).
    """
    file = figures.newest("pixels")
    rows = {(row[0], int(row[1])): row for row in (figures.read(file)[1:] if file.exists() else []) if row[0] in NAMES}
    return rows, {key for key, row in rows.items() if row[3] == identity(training_of(*key))[:12]}


def main() -> None:
    """Train what is missing, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainings", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    made, todays = known()
    asked = [(name, seed) for seed in range(chosen.seeds) for name in chosen.trainings]
    with ProcessPoolExecutor(chosen.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        under_way = {pool.submit(trained, *key): key for key in asked if key not in todays}
        for done in as_completed(under_way):
            new = {under_way[done]: done.result()}
            made = {**made, **known()[0], **new}  # another run of this may have written meanwhile
            print(", ".join(done.result()), flush=True)
            order = sorted(made, key=lambda key: (NAMES.index(key[0]), key[1]))
            figures.save("pixels", HEAD, [made[key] for key in order])


if __name__ == "__main__":
    main()
