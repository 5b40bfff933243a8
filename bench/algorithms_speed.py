"""Steps a second of whole trainings by PPO, A2C and SAC: ours, stable-baselines3's, and one loop in CleanRL's manner.

`python bench/algorithms_speed.py [--rounds N] [--threads N] [--algorithms ppo a2c sac] [--envs arm Hopper-v5
CartPole-v1]`: on the arm and on Gymnasium's Hopper-v5 and CartPole-v1 (SAC: not there), with equal settings: those of
the preset where there is one for both, else the algorithm's defaults. Rivals have Gymnasium's environments, in
stable-baselines3's DummyVecEnv (with VecNormalize where ours normalises) or gymnasium's SyncVectorEnv. Ours is what
`trainer train` does, with the workers that it takes by itself (threads on the arm, else processes), and once more with
none: all in one process, as the rivals are. MTSAC is SAC with one task; its derivatives are written out.

The loops take turns in one process, a turn some whole rollouts with their updates; the first turn warms up. Wall time
is what a user waits for: it counts only once what workers do at the same time. CPU time is of this process, all its
threads and its workers. `of_env`: the part of the wall time that the same environments take by themselves, with random
actions, measured in the same rounds. Medians and ranges over rounds; ratios are taken within a round. Writes
algorithms_speed.csv.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import figures
import numpy as np
import psutil
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from rivals import cleanrl_ppo, equal  # noqa: E402 - beside this file

from trainer.config.algorithms import Mtsac  # noqa: E402 - beside this file
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.settings import OnPolicySettings  # noqa: E402
from trainer.config.training import Training  # noqa: E402
from trainer.envs.spaces import Box, Spaces  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import spaces_of, suite_of  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.training.begin import choose_workers  # noqa: E402
from trainer.training.run import advance, as_begun, drain  # noqa: E402

SB3, CLEANRL = "stable-baselines3", "CleanRL's manner"
OURS, ALONE, MTSAC, MTSAC_ALONE = "ours", "ours, one process", "ours, mtsac", "ours, mtsac, one process"
#: Environment → what it is in our section, and the preset of an algorithm where there is one for it.
ENVS = {
    "arm": ("arm", "arm-{}"),
    "Hopper-v5": ({"name": "gymnasium", "id": "Hopper-v5"}, ""),
    "CartPole-v1": ({"name": "gymnasium", "id": "CartPole-v1", "horizon": 500}, "cartpole-{}"),
}
#: Steps of a turn, about, and how many are made before: SAC has then begun to learn.
TURN = {"ppo": 4_096, "a2c": 4_096, "sac": 160}
BEFORE = {"ppo": 1, "a2c": 1, "sac": 1_200}
#: Steps of the environments alone in a turn.
ENV_STEPS = 4_000
#: Of SAC's replay.
ROWS = 100_000
#: stable-baselines3's SAC has no actions that are one of several.
NOBODY = ("sac", "CartPole-v1")
HEAD = [
    *("algorithm", "env", "loop", "threads", "steps_s", "lowest", "highest", "times_sb3", "times_lowest"),
    *("times_highest", "cpu_ms_a_step", "cpu_times_sb3", "of_env", "rounds"),
]


@dataclass
class Turn:
    """Seconds a step, of one turn: of the wall, of CPUs, and of the environments alone."""

    wall: float
    cpu: float
    env: float


@dataclass
class Loop:
    """`train(steps)` trains on by so many, `play(steps)` steps environments of the same kind at random."""

    name: str
    train: Callable[[int], None]
    play: Callable[[int], None]
    turns: list[Turn] = field(default_factory=list)


def training_of(algorithm: str, env: str) -> Training:
    """The settings that all have; a falling step size would end before the last turn, so it stays where it is."""
    section, preset = ENVS[env]
    if preset:
        found = resolve(TrainingSection(preset=preset.format(algorithm), device="cpu"))
    else:
        rows = {"buffer_size": ROWS} if algorithm == "sac" else {}
        found = resolve(TrainingSection(env=section, algorithm=algorithm, num_envs=8, device="cpu", **rows))
    return found.changed(learning_rate_steps=0) if isinstance(found.algorithm, OnPolicySettings) else found


def as_mtsac(training: Training) -> Training:
    """The same training by MTSAC."""
    settings, network = training.off_policy.model_dump(), training.network.model_dump()
    more = {name: value for name, value in settings.items() if name in Mtsac.model_fields} | {"name": "mtsac"}
    fields = {"num_envs": training.num_envs, "env": training.env.model_dump(), "network": network}
    return resolve(TrainingSection(algorithm=more, device="cpu", **fields))


def ours(name: str, training: Training, workers: int | None, stack: ExitStack) -> Loop:
    """Our loop."""
    workers = choose_workers(training, suite_of(training)) if workers is None else workers
    spec = VectorSpec(suite_of(training), training.num_envs, training.seed)
    envs, others = (stack.enter_context(VectorEnv(spec, workers)) for _ in range(2))
    state = as_begun(training, torch.device("cpu"), envs)
    route, _ = products.choose_products(training.network.widest)
    products.use(products.PLAIN)
    others.reset()

    def train(steps: int) -> None:
        end = state.step + steps
        products.use(route)
        while state.step < end or state.algorithm.must_learn:
            advance(state)
        drain(state)
        products.use(products.PLAIN)

    return Loop(name, train, played(others.step, spaces_of(training), training.num_envs))


def stable_baselines3(training: Training, stack: ExitStack) -> Loop:
    """SB3's `learn`."""
    model, others = equal.stable_baselines3(training, 1), equal.vector(training)
    stack.callback(model.env.close)
    stack.callback(others.close)
    others.reset()

    def train(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False, log_interval=None)

    return Loop(SB3, train, played(others.step, spaces_of(training), training.num_envs))


def cleanrl(training: Training, stack: ExitStack) -> Loop:
    """The loop in one file."""
    name = equal.env_id(training)
    steps_of, others = cleanrl_ppo.training_of(training, name), cleanrl_ppo.plain_envs(name, training.num_envs)
    stack.callback(steps_of.close)
    stack.callback(others.close)
    others.reset()
    at = {"step": next(steps_of)}

    def train(steps: int) -> None:
        end = at["step"] + steps
        while at["step"] < end:
            at["step"] = next(steps_of)

    return Loop(CLEANRL, train, played(others.step, spaces_of(training), training.num_envs))


def played(step: Callable[[np.ndarray], object], spaces: Spaces, count: int) -> Callable[[int], None]:
    """Steps `count` environments by the same random actions."""
    rng, action = np.random.default_rng(0), spaces.action
    length = ENV_STEPS // count
    if isinstance(action, Box):
        actions = rng.uniform(-1, 1, (length, count, *action.shape)).astype(np.float32)
    else:
        actions = rng.integers(action.n, size=(length, count))

    def play(steps: int) -> None:
        for row in actions[: steps // count]:
            step(row)

    return play


def loops_of(algorithm: str, training: Training, stack: ExitStack) -> list[Loop]:
    """The rivals, ours first."""
    found = [ours(OURS, training, None, stack), ours(ALONE, training, 0, stack)]
    if isinstance(training.algorithm, OnPolicySettings):
        return [*found, stable_baselines3(training, stack), cleanrl(training, stack)]
    assert algorithm == "sac"
    faster = as_mtsac(training)
    found += [ours(MTSAC, faster, None, stack), ours(MTSAC_ALONE, faster, 0, stack)]
    return [*found, stable_baselines3(training, stack)]


def cpu_s(own: psutil.Process) -> float:
    """CPU seconds of this process and of its workers, which all live."""
    workers = (child.cpu_times() for child in own.children(recursive=True))
    return time.process_time() + sum(times.user + times.system for times in workers)


def turn(loop: Loop, steps: int, own: psutil.Process) -> Turn:
    """One turn of it."""
    cpu, wall = cpu_s(own), time.perf_counter()
    loop.train(steps)
    trained, used = time.perf_counter(), cpu_s(own)
    loop.play(ENV_STEPS)
    env = time.perf_counter() - trained
    return Turn((trained - wall) / steps, (used - cpu) / steps, env / ENV_STEPS)


def turn_steps(algorithm: str, training: Training) -> int:
    """Whole rollouts of about `TURN` steps."""
    settings = training.algorithm
    unit = training.num_envs * (settings.rollout_steps if isinstance(settings, OnPolicySettings) else 1)
    return max(1, round(TURN[algorithm] / unit)) * unit


def measure(algorithm: str, env: str, rounds: int, threads: int) -> list[list[object]]:
    """The rows of an algorithm on an environment."""
    training, own = training_of(algorithm, env), psutil.Process()
    steps = turn_steps(algorithm, training)
    with ExitStack() as stack:
        loops = loops_of(algorithm, training, stack)
        for loop in loops:
            loop.train(max(steps, -(-BEFORE[algorithm] // training.num_envs) * training.num_envs))
            loop.play(ENV_STEPS)
        for _ in range(rounds):
            for loop in loops:
                loop.turns.append(turn(loop, steps, own))
    theirs = next(loop for loop in loops if loop.name == SB3)
    return [row_of([algorithm, env], loop, theirs, threads) for loop in loops]


def row_of(what: list[str], loop: Loop, theirs: Loop, threads: int) -> list[object]:
    """One line of the table; ratios within a round, above 1 where `loop` is better than `theirs`."""
    pairs = list(zip(loop.turns, theirs.turns, strict=True))
    rates = [1 / one.wall for one in loop.turns]
    times, cpus = [other.wall / one.wall for one, other in pairs], [other.cpu / one.cpu for one, other in pairs]
    rate, ratio, cpu = (statistics.median(values) for values in (rates, times, cpus))
    cpu_ms = 1e3 * statistics.median(one.cpu for one in loop.turns)
    of_env = statistics.median(one.env / one.wall for one in loop.turns)
    print(
        f"{' on '.join(what)}, {loop.name}: {rate:.0f} steps/s ({min(rates):.0f} to {max(rates):.0f}), {ratio:.2f} x "
        f"SB3 ({min(times):.2f} to {max(times):.2f}), {cpu_ms:.3f} ms of CPU a step ({cpu:.2f} x), "
        f"{100 * of_env:.0f} % in environments",
        flush=True,
    )
    speed = [f"{value:.0f}" for value in (rate, min(rates), max(rates))]
    more = [f"{value:.2f}" for value in (ratio, min(times), max(times))]
    return [*what, loop.name, threads, *speed, *more, f"{cpu_ms:.3f}", f"{cpu:.2f}", f"{of_env:.2f}", len(rates)]


def main() -> None:
    """Measure, print, write; a part of the table is only printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="of torch, for all loops")
    parser.add_argument("--algorithms", nargs="+", choices=TURN, default=list(TURN))
    parser.add_argument("--envs", nargs="+", choices=ENVS, default=list(ENVS))
    chosen = parser.parse_args()
    machine.set_deterministic(chosen.threads)
    rows = [
        row
        for algorithm in chosen.algorithms
        for env in chosen.envs
        if (algorithm, env) != NOBODY
        for row in measure(algorithm, env, chosen.rounds, chosen.threads)
    ]
    if (chosen.algorithms, chosen.envs) == (list(TURN), list(ENVS)):
        figures.save("algorithms_speed", HEAD, rows)


if __name__ == "__main__":
    main()
