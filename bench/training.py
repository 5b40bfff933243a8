"""Steps a second of whole trainings: ours and stable-baselines3's, by turns in one process.

`python bench/training.py [--rounds N] [--tables training algorithms_speed] [--only WORD]`: with equal settings and one
torch thread.

- training: MT10 by MTSAC, ten environments, one update every vector step of ten transitions, equal nets and batch. Ours
  is what `trainer train` does: environments step on threads beside the learner, products by the library that
  `trainer.machine.products` chooses (`plain products`: by torch's default, which the rival has). The rival steps
  gymnasium's `Meta-World/MT10` (sync), and our environments, which tells the learner's part from the simulator's.
- algorithms_speed: PPO, A2C and SAC on the arm, Hopper-v5 and CartPole-v1 (SAC: not there), by the preset where there
  is one for both, else the algorithm's defaults. The rival has Gymnasium's environments in its DummyVecEnv (with
  VecNormalize where ours normalises). Ours is what `trainer train` does, with the workers that it takes by itself
  (threads on the arm, else processes), and once more with none: all in one process, as the rival is. MTSAC is SAC with
  one task. `of_env`: the part of the wall time that the same environments take by themselves, with random actions,
  measured in the same rounds.

A turn is some whole rollouts with their updates, or two seconds; the first warms up. Wall time is what a user waits
for: it counts only once what workers do at the same time. CPU time is of this process, all its threads and its workers,
and is what a busy machine changes least. Medians and ranges over rounds; ratios are taken within a round. `--only`: the
rows in whose first columns it is; nothing is written then.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import numpy as np
import psutil
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from rivals import equal, vectors  # noqa: E402 - beside this file
from update import SHAPES, TASKS, Shape  # noqa: E402

from trainer.config.algorithms import Mtsac  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.settings import OnPolicySettings  # noqa: E402
from trainer.config.suites import MT10, Metaworld  # noqa: E402
from trainer.config.training import Training  # noqa: E402
from trainer.envs.spaces import Box, Spaces  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef, spaces_of, suite_of  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.training.begin import choose_workers  # noqa: E402
from trainer.training.run import advance, as_begun, drain  # noqa: E402

SB3, OURS, PLAIN = "stable-baselines3", "ours", "ours, plain products"
#: Of MT10: seconds of a turn, steps before the first update, rows of the replays.
BLOCK_S, RANDOM_STEPS, ROWS = 2.0, 400, 100_000
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
#: stable-baselines3's SAC has no actions that are one of several.
NOBODY = ("sac", "CartPole-v1")
HEADS = {
    "training": ["nets", "loop", "steps_per_s", "quarter", "three_quarters", "of_ours", "cpu_ms_a_step", "cpu_of_ours"],
    "algorithms_speed": [
        *("algorithm", "env", "loop", "threads", "steps_s", "lowest", "highest", "times_sb3", "times_lowest"),
        *("times_highest", "cpu_ms_a_step", "cpu_times_sb3", "of_env", "rounds"),
    ],
}
#: Trains on by so many steps.
Train = Callable[[int], object]


@dataclass
class Turn:
    """Seconds a step, of one turn: of the wall, of CPUs, and of the environments alone."""

    wall: float
    cpu: float
    env: float = 0.0


@dataclass
class Loop:
    """`train(steps)` trains on by so many, `play(steps)` steps environments of the same kind at random."""

    train: Train
    play: Callable[[int], None]


def ours(training: Training, workers: int, stack: ExitStack, route: str = "", spec: VectorSpec | None = None) -> Train:
    """Our loop, with products by `route`, or by the one that is chosen here."""
    spec = spec or VectorSpec(suite_of(training), training.num_envs, training.seed)
    state = as_begun(training, torch.device("cpu"), stack.enter_context(VectorEnv(spec, workers)))
    route = route or products.choose_products(training.network.widest)[0]
    products.use(products.PLAIN)

    def train(steps: int) -> None:
        end = state.step + steps
        products.use(route)
        while state.step < end or state.algorithm.must_learn:
            advance(state)
        drain(state)
        products.use(products.PLAIN)

    return train


def learning(model: Any) -> Train:
    """SB3's `learn`."""
    return lambda steps: model.learn(steps, reset_num_timesteps=False, log_interval=None)


def cpu_s(own: psutil.Process) -> float:
    """CPU seconds of this process and of its workers, which all live."""
    workers = (child.cpu_times() for child in own.children(recursive=True))
    return time.process_time() + sum(times.user + times.system for times in workers)


def turn(train: Train, steps: int) -> Turn:
    """One turn of it."""
    own = psutil.Process()
    cpu, wall = cpu_s(own), time.perf_counter()
    train(steps)
    return Turn((time.perf_counter() - wall) / steps, (cpu_s(own) - cpu) / steps)


# --- MT10 ------------------------------------------------------------------------------------------------------------


def of_mt10(name: str, shape: Shape, rounds: int) -> list[list[object]]:
    """The rows of one shape."""
    actor, critic, batch = shape
    nets = {"actor_hidden": actor, "critic_hidden": critic, "batch_size": batch}
    training = resolve(TrainingSection(**nets, buffer_size=ROWS, random_steps=RANDOM_STEPS))
    spec = VectorSpec(SuiteRef(Metaworld(tasks=MT10, horizon=500)), TASKS, 0)
    workers = machine.default_workers(None, TASKS)

    def rival(envs: Any) -> Train:
        stack.callback(envs.close)
        more = {"learning_starts": RANDOM_STEPS, "train_freq": 1, "gradient_steps": 1}
        return learning(equal.sac_of(vectors.for_sb3(envs), actor, critic, batch, ROWS, **more))

    with ExitStack() as stack:
        loops = {
            OURS: ours(training, workers, stack, spec=spec),
            PLAIN: ours(training, workers, stack, products.PLAIN, spec),
            SB3: rival(vectors.gymnasium_mt10()),
            f"{SB3} on our environments": rival(vectors.OurVector(spec, 0)),
        }
        ways = {}
        for who, train in loops.items():
            train(2 * RANDOM_STEPS)
            steps = max(TASKS, int(BLOCK_S / turn(train, 5 * TASKS).wall) // TASKS * TASKS)
            ways[who] = lambda train=train, steps=steps: turn(train, steps)
        found = figures.by_turns(ways, rounds, warm=0)
    walls, cpus = ({who: statistics.median(of(one) for one in all_s) for who, all_s in found.items()}
                   for of in (lambda one: one.wall, lambda one: one.cpu))  # fmt: skip
    rows: list[list[object]] = []
    for who, all_s in found.items():
        low, _, high = figures.quartiles([1 / one.wall for one in all_s])
        rates = [f"{rate:.0f}" for rate in (1 / walls[who], low, high)]
        of_ours = f"{walls[OURS] / walls[who]:.2f}"
        rows.append([name, who, *rates, of_ours, f"{1e3 * cpus[who]:.3f}", f"{cpus[who] / cpus[OURS]:.2f}"])
    return rows


# --- each algorithm --------------------------------------------------------------------------------------------------


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


def loops_of(training: Training, stack: ExitStack) -> dict[str, Loop]:
    """The rivals, ours first."""
    count, spaces = training.num_envs, spaces_of(training)

    def our_loop(training: Training, workers: int | None) -> Loop:
        chosen = choose_workers(training, suite_of(training)) if workers is None else workers
        spec = VectorSpec(suite_of(training), count, training.seed)
        others = stack.enter_context(VectorEnv(spec, chosen))
        others.reset()
        return Loop(ours(training, chosen, stack), played(others.step, spaces, count))

    found = {OURS: our_loop(training, None), "ours, one process": our_loop(training, 0)}
    if not isinstance(training.algorithm, OnPolicySettings):
        faster = as_mtsac(training)
        found |= {"ours, mtsac": our_loop(faster, None), "ours, mtsac, one process": our_loop(faster, 0)}
    model, others = equal.stable_baselines3(training, 1), equal.vector(training)
    stack.callback(model.env.close)
    stack.callback(others.close)
    others.reset()
    return {**found, SB3: Loop(learning(model), played(others.step, spaces, count))}


def turn_steps(algorithm: str, training: Training) -> int:
    """Whole rollouts of about `TURN` steps."""
    settings = training.algorithm
    unit = training.num_envs * (settings.rollout_steps if isinstance(settings, OnPolicySettings) else 1)
    return max(1, round(TURN[algorithm] / unit)) * unit


def of_algorithm(algorithm: str, env: str, rounds: int) -> list[list[object]]:
    """The rows of an algorithm on an environment."""
    training = training_of(algorithm, env)
    steps = turn_steps(algorithm, training)

    def whole_turn(loop: Loop) -> Turn:
        found = turn(loop.train, steps)
        found.env = figures.timed(lambda: loop.play(ENV_STEPS), clock=time.perf_counter) / ENV_STEPS
        return found

    with ExitStack() as stack:
        loops = loops_of(training, stack)
        for loop in loops.values():
            loop.train(max(steps, -(-BEFORE[algorithm] // training.num_envs) * training.num_envs))
            loop.play(ENV_STEPS)
        found = figures.by_turns({name: lambda loop=loop: whole_turn(loop) for name, loop in loops.items()}, rounds, 0)
    return [row_of([algorithm, env, name], turns, found[SB3]) for name, turns in found.items()]


def row_of(what: list[str], turns: list[Turn], theirs: list[Turn]) -> list[object]:
    """One line of the table; ratios within a round, above 1 where a loop is better than `theirs`."""
    rates = [1 / one.wall for one in turns]
    times = [other.wall / one.wall for one, other in zip(turns, theirs, strict=True)]
    speed = [f"{value:.0f}" for value in (statistics.median(rates), min(rates), max(rates))]
    more = [f"{value:.2f}" for value in (statistics.median(times), min(times), max(times))]
    cpu_ms = f"{1e3 * statistics.median(one.cpu for one in turns):.3f}"
    cpu = f"{figures.ratio([one.cpu for one in theirs], [one.cpu for one in turns]):.2f}"
    of_env = f"{figures.ratio([one.env for one in turns], [one.wall for one in turns]):.2f}"
    return [*what, torch.get_num_threads(), *speed, *more, cpu_ms, cpu, of_env, len(rates)]


def main() -> None:
    """Measure, print, write; a part of a table is only printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tables", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    machine.set_deterministic(1)
    for table in chosen.tables:
        if table == "training":
            cases = [(of_mt10, (name, shape)) for name, shape in SHAPES.items()]
        else:
            pairs = [(algorithm, env) for algorithm in TURN for env in ENVS if (algorithm, env) != NOBODY]
            cases = [(of_algorithm, pair) for pair in pairs]
        rows = []
        for measure, case in cases:
            if chosen.only in " ".join(each for each in case if isinstance(each, str)):
                found = measure(*case, chosen.rounds)
                print(*(", ".join(map(str, row)) for row in found), sep="\n", flush=True)
                rows += found
        if not chosen.only:
            figures.save(table, HEADS[table], rows)


if __name__ == "__main__":
    main()
