"""Steps a second of whole training loops on MT10: ours, stable-baselines3's, a plain one in CleanRL's manner.

`python bench/training.py [ROUNDS] [SHAPE]`: ten environments, one update every vector step of ten transitions, one
torch thread, equal nets and batch. The loops take turns in blocks of about two seconds, all in one process. Ours is
what `trainer train` does: environments step on threads beside the learner, products by the library that
`trainer.machine.products` chooses (`plain products`: by torch's default, which the rivals have). The rivals step
gymnasium's `Meta-World/MT10` (sync); stable-baselines3 also on our environments, which tells the learner's part from
the simulator's. Wall time is what a user waits for; CPU time, of all threads, is what a busy machine changes least.
Writes training.csv.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from rivals import sac, vectors  # noqa: E402 - beside this file
from update import ACTIONS, INPUTS, SHAPES, TASKS  # noqa: E402

from trainer.buffers.replay import Replay  # noqa: E402
from trainer.buffers.rows import fields_of, rows_of  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.suites import Metaworld  # noqa: E402
from trainer.config.tasknames import MT10  # noqa: E402
from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.training.run import advance, as_begun, drain  # noqa: E402

BLOCK_S, RANDOM_STEPS, ROWS = 2.0, 400, 100_000
Shape = tuple[tuple[int, ...], tuple[int, ...], int]
#: Runs about that many transitions.
Loop = Callable[[int], Any]


#: Meta-World's.
SPACES = Spaces({STATE: ArraySpec((39,))}, Box(ACTIONS), MT10, 500)


def spec() -> VectorSpec:
    """Our environments."""
    return VectorSpec(SuiteRef(Metaworld(tasks=MT10, horizon=500)), TASKS, 0)


def ours(shape: Shape, workers: int, route: str) -> tuple[Loop, Callable[[], None]]:
    """Our loop with products by `route`, and what ends it."""
    actor, critic, batch = shape
    training = resolve(
        TrainingSection(
            actor_hidden=actor, critic_hidden=critic, batch_size=batch, buffer_size=ROWS, random_steps=RANDOM_STEPS
        )
    )
    envs = VectorEnv(spec(), workers)
    state = as_begun(training, torch.device("cpu"), envs)

    def loop(steps: int) -> None:
        end = state.step + steps
        products.use(route)
        while state.step < end:
            advance(state)
        drain(state)
        products.use(products.PLAIN)

    return loop, envs.close


def stable_baselines3(shape: Shape, envs: Any) -> tuple[Loop, Callable[[], None]]:
    """SB3's `learn`."""
    actor, critic, batch = shape
    model = sac.stable_baselines3(
        vectors.for_sb3(envs), actor, critic, batch, ROWS, learning_starts=RANDOM_STEPS, train_freq=1, gradient_steps=1
    )
    return lambda steps: model.learn(steps, reset_num_timesteps=False, log_interval=None), envs.close


def plain(shape: Shape, envs: Any) -> tuple[Loop, Callable[[], None]]:
    """The plain loop."""
    actor, critic, batch = shape
    learner = sac.Plain(INPUTS, ACTIONS, actor, critic)
    replay, rng = Replay(ROWS, TASKS, fields_of(SPACES)), np.random.default_rng(0)
    task = np.arange(TASKS)
    at = {"obs": envs.reset()[0].astype(np.float32), "step": 0}

    def loop(steps: int) -> None:
        end = at["step"] + steps
        while at["step"] < end:
            obs = at["obs"]
            is_random = at["step"] < RANDOM_STEPS
            action = (
                rng.uniform(-1, 1, (TASKS, ACTIONS)).astype(np.float32) if is_random else learner.act(obs[:, :39], task)
            )
            found, reward, terminated, _, infos = envs.step(action)
            found = found.astype(np.float32)
            true_next = found.copy()
            for i in np.flatnonzero(infos["_final_obs"]) if "_final_obs" in infos else ():
                true_next[i] = infos["final_obs"][i]
            rows = {"state": obs[:, :39]}, action, reward.astype(np.float32), {"state": true_next[:, :39]}, terminated
            replay.add(task, rows_of(*rows))
            at["obs"], at["step"] = found, at["step"] + TASKS
            if not is_random:
                learner.update(replay.pick(replay.deal(batch), rng))

    return loop, envs.close


def block(loop: Loop, steps: int) -> tuple[float, float]:
    """(wall, CPU) seconds a transition."""
    wall, cpu = time.perf_counter(), time.process_time()
    loop(steps)
    return (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps


def measure(name: str, shape: Shape, rounds: int) -> list[list[str]]:
    """The rows of one shape."""
    workers = machine.default_workers(None, TASKS)
    route, _ = products.choose_products(max(*shape[0], *shape[1]))
    loops = {
        "ours": ours(shape, workers, route),
        "ours, plain products": ours(shape, workers, products.PLAIN),
        "stable-baselines3": stable_baselines3(shape, vectors.gymnasium_mt10()),
        "stable-baselines3 on our environments": stable_baselines3(shape, vectors.OurVector(spec(), 0)),
        "plain (CleanRL's manner)": plain(shape, vectors.gymnasium_mt10()),
    }
    steps = {}
    for who, (loop, _) in loops.items():
        loop(2 * RANDOM_STEPS)
        steps[who] = max(TASKS, int(BLOCK_S / block(loop, 5 * TASKS)[0]) // TASKS * TASKS)
    found: dict[str, list[tuple[float, float]]] = {who: [] for who in loops}
    for _ in range(rounds):
        for who, (loop, _) in loops.items():
            found[who].append(block(loop, steps[who]))
    for _, close in loops.values():
        close()
    walls = {who: statistics.median(wall for wall, _ in all_s) for who, all_s in found.items()}
    cpus = {who: statistics.median(cpu for _, cpu in all_s) for who, all_s in found.items()}
    lines = []
    for who, all_s in found.items():
        rates = sorted(1 / wall for wall, _ in all_s)
        low, _, high = statistics.quantiles(rates, n=4) if len(rates) > 1 else 3 * rates
        lines.append([
            name, who, f"{1 / walls[who]:.0f}", f"{low:.0f}", f"{high:.0f}", f"{walls['ours'] / walls[who]:.2f}",
            f"{1e3 * cpus[who]:.3f}", f"{cpus[who] / cpus['ours']:.2f}",
        ])  # fmt: skip
        print(", ".join(lines[-1]), flush=True)
    return lines


def main() -> None:
    """Measure, print, write."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    machine.set_deterministic(1)
    lines = []
    for name, shape in SHAPES.items():
        if wanted in name:
            lines += measure(name, shape, rounds)
    if not wanted:
        head = ["nets", "loop", "steps_per_s", "quarter", "three_quarters", "of_ours", "cpu_ms_a_step", "cpu_of_ours"]
        figures.save("training", head, lines)


if __name__ == "__main__":
    main()
