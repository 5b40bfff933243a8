"""What PPO, A2C and SAC come to on the arm in 100,000 steps, beside stable-baselines3's with equal settings.

`python bench/algorithms_learning.py [--algorithms NAME …] [--seeds 5] [--steps 100000] [--processes 2]`: ours by the
presets `arm-ppo`, `arm-a2c`, `arm-sac`, `cartpole-ppo` and `cartpole-a2c`, stable-baselines3's PPO by the settings of
arm-ppo (its A2C and SAC too, where they are asked for: `sb3-arm-a2c`, `sb3-arm-sac`). Each training has one process,
one torch thread and all its environments in it. The policies are played deterministically by
`trainer.evaluation.protocol` every `EVERY` steps, all of them from the same starts and goals, which no training is told
of; on the arm the last evaluation has twice as many, 100. Both sides are looked at after the very same number of steps
and updates.

One row a training and evaluation goes to algorithms_learning_runs.csv when a training is complete; trainings that are
in it (at first: in the committed one), made with the very same settings, are not made again. algorithms_learning.csv is
made from those of 100,000 steps: inter-quartile means over seeds with 95 % intervals as `trainer compare` has them.
`policy_kb`: ours as published, stable-baselines3's as `save` leaves it, with the pickled VecNormalize. `parameters`: of
all nets that learn (ours read the number of the task too). `cpu_s`: of the training alone, not of its evaluations.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from rivals import equal  # noqa: E402 - beside this file
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402

from syncd.shared.codec import encode, rounded  # noqa: E402
from trainer.config.find import ALGORITHMS, find  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.training import Training, identity  # noqa: E402
from trainer.envs.spaces import STATE, Obs  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef, spaces_of, suite_of  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.evaluation.protocol import Act, Evaluation, evaluate, unseen_seed  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.sharing.policies import Policy, actor_tensors  # noqa: E402
from trainer.showing.comparetable import scored  # noqa: E402
from trainer.showing.comparison import THRESHOLDS, Contender, Seeded  # noqa: E402
from trainer.showing.learning import Evaluated  # noqa: E402
from trainer.training.run import advance, as_begun, crossed, drain  # noqa: E402

SEEDS, STEPS, EVERY, PROCESSES = 5, 100_000, 5_000, 2
#: What stands before a preset's name where stable-baselines3 trains by its settings.
SB3 = "sb3-"
USUAL = ("arm-ppo", "arm-a2c", "arm-sac", "sb3-arm-ppo", "cartpole-ppo", "cartpole-a2c")
#: Too dear to be made each time.
ASKED_FOR = ("sb3-arm-a2c", "sb3-arm-sac")
NAMES = (*USUAL, *ASKED_FOR)
#: The seeds of the goals: a second set is played at the end where success is told.
GOAL_SEEDS = (unseen_seed(0), unseen_seed(1))
HEAD = [
    *("training", "seed", "of_steps", "step", "settings", "goals", "success", "reached", "triggered", "distance_m"),
    *("return", "cpu_s", "policy_kb", "parameters"),
]
SUMMARY = [
    *("training", "seeds", "IQM at the end", "worst seed", "ever within 15 cm", "cm at the end"),
    *(f"steps to {100 * part:.0f} %" for part in THRESHOLDS),
    *("cpu minutes", "policy kb", "parameters"),
]


@dataclass(frozen=True)
class Seen:
    """A policy at an evaluation: how it acts, and the bytes that keep it."""

    act: Act
    size: Callable[[], int]
    parameters: int


#: (training, seed, its steps)
Key = tuple[str, int, int]
#: Is shown the policy at each multiple of `EVERY` steps.
Look = Callable[[int, Seen], None]


def training_of(name: str, seed: int, steps: int) -> Training:
    """The preset behind a training's name."""
    preset = name.removeprefix(SB3)
    return resolve(TrainingSection(preset=preset, seed=seed, total_steps=steps, device="cpu"))


def ours(training: Training, look: Look) -> None:
    """Our loop."""
    products.choose_products(training.network.widest)
    sizes = find(ALGORITHMS, training.algorithm.name).sizes(training, spaces_of(training))
    parameters = sum(size.parameters for size in sizes)
    with VectorEnv(VectorSpec(suite_of(training), training.num_envs, training.seed), 0) as envs:
        run = as_begun(training, torch.device("cpu"), envs)
        while run.step < training.total_steps:
            before = run.step
            advance(run)
            if crossed(before, run.step, EVERY):
                drain(run)
                net = run.algorithm.policy
                weights = rounded(actor_tensors(net))
                act = Policy(net.spec, weights).act_deterministic
                look(run.step, Seen(act, partial(published, weights), parameters))


def published(weights: Mapping[str, Any]) -> int:
    """The bytes of a policy on its way to a laptop."""
    return len(encode(weights))


def stable_baselines3(training: Training, look: Look) -> None:
    """SB3's `learn`, ended at the very step, with a rollout that is not yet whole."""
    products.use(products.PLAIN)
    model = equal.stable_baselines3(training, training.total_steps)
    scale = model.get_vec_normalize_env()
    parameters = sum(
        values.numel() for name, values in model.policy.named_parameters() if not name.startswith("critic_target")
    )

    def act(obs: Obs, task: Any) -> Any:  # noqa: ARG001 - there is one
        seen = obs[STATE] if scale is None else scale.normalize_obs(obs[STATE])
        return model.predict(seen, deterministic=True)[0]

    def size() -> int:
        saved = io.BytesIO()
        model.save(saved)
        return saved.getbuffer().nbytes + (0 if scale is None else len(pickle.dumps(scale)))

    class Looks(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps % EVERY < training.num_envs:
                look(self.num_timesteps, Seen(act, size, parameters))
            return self.num_timesteps < training.total_steps

    model.learn(training.total_steps, callback=Looks(), log_interval=None)
    model.env.close()


def trained(name: str, seed: int, steps: int) -> list[list[str]]:
    """The rows of one whole training, in a process of its own."""
    machine.set_deterministic(1)
    training = training_of(name, seed, steps)
    lines: list[list[str]] = []
    looked, began = 0.0, time.process_time()

    def look(step: int, seen: Seen) -> None:
        nonlocal looked
        now = time.process_time()
        tells, last = bool(training.env.MEASURES), step >= steps
        found = [one_of(training, seen.act, goal_seed) for goal_seed in GOAL_SEEDS[: 1 + (tells and last)]]
        measured = [mean(found, key) for key in ("success", "reached", "triggered", "distance")] if tells else [""] * 4
        goals, settings = len(found) * training.evaluation_goals, identity(training)[:12]
        lines.append([
            name, str(seed), str(steps), str(step), settings, str(goals), *measured, mean(found, "return"),
            f"{now - began - looked:.1f}", f"{seen.size() / 1000:.1f}", str(seen.parameters),
        ])  # fmt: skip
        print(", ".join(lines[-1]), flush=True)
        looked += time.process_time() - now

    (stable_baselines3 if name.startswith(SB3) else ours)(training, look)
    return lines


def one_of(training: Training, act: Act, goal_seed: int) -> Evaluation:
    """One evaluation."""
    found = evaluate(act, SuiteRef(training.env, goal_seed), training.evaluation_goals)
    assert found is not None
    return found


def mean(found: Sequence[Evaluation], key: str) -> str:
    """Over evaluations and their episodes."""
    known = {"success": [one.success for one in found], "return": [one.returns for one in found]}
    values = known[key] if key in known else [one.measures[key] for one in found]
    return f"{np.mean([list(value.values()) for value in values]):.4f}"


def summary(name: str, lines: list[list[str]], steps: int) -> list[object]:
    """One line of the table, from the rows of a training's seeds."""
    rows = [dict(zip(HEAD, line, strict=True)) for line in lines]
    seeds = sorted({int(row["seed"]) for row in rows})
    one = Contender(name, tuple(seeded([row for row in rows if int(row["seed"]) == seed]) for seed in seeds))
    last = [row for row in rows if int(row["step"]) == steps]

    def middle(key: str, scale: float = 1.0) -> str:
        return f"{scale * statistics.median(float(row[key]) for row in last):.1f}" if last[0][key] else ""

    worst = f"{100 * one.worst:.0f} %" if one.tells_success else f"{one.worst:.4g}"
    soon = [one.steps_to(part) for part in THRESHOLDS] if one.tells_success else [""] * len(THRESHOLDS)
    return [
        name, len(seeds), scored(one, one.final), worst, share(last, "triggered"),
        middle("distance_m", 100), *("-" if value is None else value and f"{value:.0f}" for value in soon),
        middle("cpu_s", 1 / 60), middle("policy_kb"), last[0]["parameters"],
    ]  # fmt: skip


def share(rows: Sequence[dict[str, str]], key: str) -> str:
    """The mean over seeds, in per cent."""
    return f"{100 * statistics.mean(float(row[key]) for row in rows):.0f} %" if rows[0][key] else ""


def seeded(rows: Sequence[dict[str, str]]) -> Seeded:
    """A training as `trainer compare` has it."""
    evaluations = tuple(
        Evaluated(
            int(row["step"]), {"all": float(row["success"] or 0)}, int(row["goals"]),
            None if row["success"] else float(row["return"]),
        )
        for row in rows
    )  # fmt: skip
    returns, last = tuple(float(row["return"]) for row in rows), rows[-1]
    return Seeded(
        int(last["seed"]), evaluations, returns, int(last["step"]), float(last["cpu_s"]), int(last["parameters"])
    )


def known() -> tuple[dict[Key, list[list[str]]], set[Key]]:
    """(the rows that there are, by training; those trainings whose settings are today's: the others are made anew when
    asked for, stay until then, and count only where an algorithm has no others).
    """
    file = figures.newest("algorithms_learning_runs")
    found: dict[Key, list[list[str]]] = {}
    todays: set[Key] = set()
    for line in figures.read(file)[1:] if file.exists() else ():
        key = line[0], int(line[1]), int(line[2])
        if key[0] in NAMES:
            found.setdefault(key, []).append(line)
            if line[4] == identity(training_of(*key))[:12]:
                todays.add(key)
    return found, todays


def main() -> None:
    """Train what is missing, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithms", nargs="+", choices=NAMES, default=list(USUAL))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    chosen = parser.parse_args()
    made, todays = known()
    asked = [(name, seed, chosen.steps) for seed in range(chosen.seeds) for name in chosen.algorithms]
    with ProcessPoolExecutor(chosen.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        under_way = {pool.submit(trained, *key): key for key in asked if key not in todays}
        for done in as_completed(under_way):
            made[under_way[done]] = done.result()
            todays.add(under_way[done])
            figures.save("algorithms_learning_runs", HEAD, [line for key in sorted(made) for line in made[key]])
    rows = []
    for name in NAMES:
        keys = [key for key in sorted(made) if (key[0], key[2]) == (name, chosen.steps)]
        lines = [line for key in [key for key in keys if key in todays] or keys for line in made[key]]
        if lines:
            rows.append(summary(name, lines, chosen.steps))
            print(", ".join(map(str, rows[-1])))
    if chosen.steps == STEPS:  # fewer are for looking, not for the page
        figures.save("algorithms_learning", SUMMARY, rows)


if __name__ == "__main__":
    main()
