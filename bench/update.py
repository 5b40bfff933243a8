"""One update of multi-task SAC: beside stable-baselines3's and the matrix products alone, by two threads, in shards.

`python bench/update.py [--rounds N] [--tables update second_thread shards] [--shape NAME]`: MT10's shapes (49 inputs, 4
actions), in one process, by turns; a round is so many updates of one as take about a tenth of a second. Every update
draws its batch itself. Figures are medians over rounds, with the quarter and three-quarter points, and ratios are
medians over rounds of both in the same round, because a neighbour on the machine slows some rounds down by a third.

- update: CPU time on one thread (the same as wall time on an idle machine). The floor is the products of one update
  alone, each at the best rate that documented settings of torch reach in the same run: that many operations nobody can
  save. Ours computes its products by the library that `trainer.machine.products` chooses here, as `trainer train` does;
  `plain products`: by torch's default, which the rival has (it would gain by the same setting). `by torch alone`: ours
  without the C between the products, as where there is no compiler. `with the moving average`: ours, and the actor's
  average after it, as `training.averaging` has it.
- second_thread: by two threads and by one, by the clock: without environments that are stepped beside it, for a machine
  with something else to do tells nothing. Both leave the same bits (tests/unit/trainer/test_native_update.py).
  `trainer.algorithms.common.native.library` has two threads from where they are worth it here.
- shards: CPU time of an update that is cut into shards, for ranks to share. `straight`: the same gradients and steps
  called one after the other, without samples, generators and groups. `times straight`: the mean of the ratios, and its
  standard error. What several ranks save, and what their exchange costs, only several GPUs can say.

`--shape`: tables that have one of that name, for it alone; nothing is written then.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import figures
import gymnasium as gym
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from learners import fresh, learn, prepared  # noqa: E402 - beside this file
from rivals import equal  # noqa: E402

from trainer.algorithms.base import Context  # noqa: E402
from trainer.algorithms.common.native.library import ThreadPair  # noqa: E402
from trainer.algorithms.common.native.update import NativeUpdates  # noqa: E402
from trainer.algorithms.mtsac import MTSAC  # noqa: E402
from trainer.buffers.experience import Experience  # noqa: E402
from trainer.buffers.replay import Replay  # noqa: E402
from trainer.buffers.rows import Batch, fields_of  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.suites import MT10  # noqa: E402
from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.nets.average import MovingAverage  # noqa: E402
from trainer.nets.mlp import with_task  # noqa: E402

#: Actor, critic, batch.
Shape = tuple[tuple[int, ...], tuple[int, ...], int]
Call = Callable[[], object]
SHAPES: dict[str, Shape] = {
    "256x2, batch 256": ((256, 256), (256, 256), 256),
    "400x3, batch 1280": ((400, 400, 400), (400, 400, 400), 1280),
    "actor 256x2, critic 1024x3, batch 512": ((256, 256), (1024, 1024, 1024), 512),
}
#: Widths of all nets → rows of a batch, of the second thread.
THREADED: dict[tuple[int, ...], tuple[int, ...]] = {
    (128, 128): (128, 512, 1280),
    (256, 256): (128, 256, 512, 1280),
    (400, 400, 400): (128, 512, 1280),
}
INPUTS, ACTIONS, TASKS, ROWS = 49, 4, 10, 100_000
SPACES = Spaces({STATE: ArraySpec((39,))}, Box(ACTIONS), MT10, 500)
ROUND_S, FLOOR_CALLS = 0.1, 4
OURS, OURS_TORCH, OURS_AVERAGED, OURS_PLAIN, SB3, FLOOR = (
    "ours",
    "ours, by torch alone",
    "ours, with the moving average",
    "ours, plain products",
    "stable-baselines3",
    "matrix products alone",
)
STRAIGHT = "straight"


def products_of(actor: tuple[int, ...], critic: tuple[int, ...], batch: int) -> list[tuple[str, int, int, int]]:
    """(kind, rows, inputs, outputs) of every product that one update needs.

    Forward: the actor on s and s', critics and targets twice each but for the targets' second time. Backward: weights
    of actor and critics, inputs of all layers but the first. In the actor's step each row goes back through one critic,
    its smaller one, to the very action: one critic's worth of inputs.
    """
    pi = list(pairwise([INPUTS, *actor, 2 * ACTIONS]))
    q = list(pairwise([INPUTS + ACTIONS, *critic, 1]))
    found = [("forward", batch, *shape) for shape in 2 * pi + 6 * q]
    found += [("weights", batch, *shape) for shape in pi + 2 * q]
    return found + [("inputs", batch, *shape) for shape in pi[1:] + 2 * q[1:] + q]


def floor(shape: Shape) -> Callable[[], float]:
    """A round of measuring the products: CPU seconds of an update's, the best route for each."""
    counts = Counter(products_of(*shape))
    calls: dict[tuple[str, int, int, int], Call] = {}
    for kind, rows, inputs, outputs in counts:
        x, g, w = torch.randn(rows, inputs), torch.randn(rows, outputs), torch.randn(outputs, inputs)
        calls[kind, rows, inputs, outputs] = {
            "forward": lambda x=x, w=w: torch.nn.functional.linear(x, w),
            "weights": lambda x=x, g=g: g.t() @ x,
            "inputs": lambda g=g, w=w: g @ w,
        }[kind]

    def measure() -> float:
        took = 0.0
        for product, call in calls.items():
            routes = []
            for route in (products.PLAIN, products.ONEDNN):
                products.use(route)
                call()
                routes.append(figures.timed(call, FLOOR_CALLS))
            took += min(routes) * counts[product]
        products.use(products.PLAIN)
        return took

    return measure


def transitions(count: int) -> dict[str, np.ndarray]:
    """Random ones."""
    rng = np.random.default_rng(0)
    return {
        "obs.state": rng.standard_normal((count, 39), np.float32),
        "action": rng.uniform(-1, 1, (count, ACTIONS)).astype(np.float32),
        "reward": rng.random(count, np.float32),
        "next_obs.state": rng.standard_normal((count, 39), np.float32),
        "terminated": np.zeros(count, np.bool_),
    }


def ours(shape: Shape, replay: Replay, threads: int = 1, *, by_torch: bool = False, averaging: bool = False) -> Call:
    """Our update, batch included."""
    actor, critic, batch = shape
    training = resolve(TrainingSection(actor_hidden=actor, critic_hidden=critic, batch_size=batch))
    learner, rng = fresh(training, SPACES), np.random.default_rng(0)
    if by_torch:
        return lambda: learner.update_of(prepared(learner, replay.pick(replay.deal(batch), rng)))
    updates = NativeUpdates(learner, ThreadPair(threads))
    average = MovingAverage(learner.policy, training.averaging) if averaging else None

    def update() -> None:
        updates.learn(prepared(learner, replay.pick(replay.deal(batch), rng)))
        if average is not None:
            average.follow()

    return update


class Shapes(gym.Env):  # type: ignore[type-arg]
    """Spaces, no world: what SB3 needs to make its nets."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (INPUTS,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (ACTIONS,), np.float32)


def stable_baselines3(shape: Shape, values: Mapping[str, np.ndarray]) -> Call:
    """SB3's `train`, batch included."""
    actor, critic, batch = shape
    model = equal.sac_of(Shapes(), actor, critic, batch, ROWS)
    buffer = model.replay_buffer
    one_hot = np.eye(TASKS, dtype=np.float32)[np.arange(ROWS) % TASKS]
    buffer.observations[:, 0], buffer.next_observations[:, 0] = (
        np.concatenate([values[name], one_hot], axis=1) for name in ("obs.state", "next_obs.state")
    )
    buffer.actions[:, 0], buffer.rewards[:, 0], buffer.full = values["action"], values["reward"], True
    return lambda: model.train(gradient_steps=1, batch_size=batch)


def rounds_of(calls: Mapping[str, Call], clock: Callable[[], float] = time.process_time) -> dict[str, Any]:
    """For each the same, so often that it takes `ROUND_S`: seconds a call."""

    def of(call: Call) -> Callable[[], float]:
        count = max(1, int(ROUND_S / figures.timed(call, 3, clock)))
        return lambda: figures.timed(call, count, clock)

    return {who: of(call) for who, call in calls.items()}


def beside_others(name: str, shape: Shape, replay: Replay, rounds: int) -> list[list[str]]:
    """Rows of update.csv."""
    route, _ = products.choose_products(max(*shape[0], *shape[1]))
    calls = rounds_of({
        OURS: ours(shape, replay),
        OURS_TORCH: ours(shape, replay, by_torch=True),
        OURS_AVERAGED: ours(shape, replay, averaging=True),
        OURS_PLAIN: ours(shape, replay),
        SB3: stable_baselines3(shape, transitions(ROWS)),
    })  # fmt: skip

    def routed(who: str) -> float:
        products.use(route if who in {OURS, OURS_TORCH, OURS_AVERAGED} else products.PLAIN)
        took: float = calls[who]()
        return took

    ways = {who: lambda who=who: routed(who) for who in calls} | {FLOOR: floor(shape)}
    found = figures.by_turns(ways, rounds)
    lines = []
    for who, all_s in found.items():
        low, middle, high = figures.quartiles(all_s)
        shown = [f"{1e3 * value:.2f}" for value in (middle, low, high)]
        lines.append([name, who, *shown, *(f"{figures.ratio(all_s, found[peer]):.2f}" for peer in (FLOOR, OURS))])
    return lines


def by_two_threads(nets: tuple[int, ...], batch: int, replay: Replay, rounds: int) -> list[str]:
    """A row of second_thread.csv."""
    products.choose_products(max(nets))
    calls = {str(threads): ours((nets, nets, batch), replay, threads) for threads in (1, 2)}
    found = figures.by_turns(rounds_of(calls, time.perf_counter), rounds)
    low, ratio, high = figures.quartiles([one / two for one, two in zip(*found.values(), strict=True)])
    milliseconds = (f"{1000 * statistics.median(times):.2f}" for times in found.values())
    return [f"{nets[0]}x{len(nets)}", str(batch), *milliseconds, f"{ratio:.2f}", f"{low:.2f}", f"{high:.2f}"]


@torch.no_grad()
def straight(learner: MTSAC, batch: Batch) -> torch.Tensor:
    """One update of plain critics, as one would write it for one process."""
    inputs = prepared(learner, batch)
    task = inputs.task
    x, next_x = (with_task(seen, task, learner.num_tasks) for seen in (inputs.obs, inputs.next_obs))
    temperature = learner.log_temperature.detach().exp()[task]
    target = learner.target(inputs, next_x, temperature, learner.largest_reward)
    _, critic_loss, q = learner.critic_gradient(x, inputs.action, target)
    learner.optimizers["critics"].step()
    _, actor_loss, log_prob = learner.actor_gradient(x, temperature, inputs.current_noise)
    learner.optimizers["actor"].step()
    (learner.log_temperature.grad,), temperature_loss = learner.temperature_gradient(task, log_prob)
    learner.optimizers["temperature"].step()
    measured = critic_loss, actor_loss, temperature_loss, q, -log_prob.mean()
    return learner.move_targets(dict(zip(learner.METRICS, measured, strict=True)))


def sharded(shape: Shape, shards: int, *, by_hand: bool = False) -> Call:
    """An update of the algorithm itself, or `straight`, batch included."""
    actor, critic, batch = shape
    settings = {"name": "mtsac", "batch_size": batch, "buffer_size": ROWS, "shards": shards}
    network = {"actor_hidden": actor, "critic_hidden": critic}
    training = resolve(TrainingSection(algorithm=settings, network=network))
    experience = Experience(training, SPACES)
    experience.add(np.arange(ROWS) % len(MT10), transitions(ROWS))
    algorithm = MTSAC(Context(training, SPACES, 1, torch.device("cpu"), experience))
    if by_hand:
        return lambda: straight(algorithm, experience.sample(batch))
    return lambda: learn(algorithm, experience.sample(batch))


def in_shards(name: str, shape: Shape, rounds: int) -> list[list[str]]:
    """Rows of shards.csv."""
    ways = {STRAIGHT: sharded(shape, 1, by_hand=True), "1 shard": sharded(shape, 1)}
    ways |= {f"{shards} shards": sharded(shape, shards) for shards in (2, 4)}
    found = figures.by_turns(rounds_of(ways), rounds)
    lines = []
    for way, all_s in found.items():
        mean, error = figures.with_error([mine / base for mine, base in zip(all_s, found[STRAIGHT], strict=True)])
        lines.append([name, way, f"{1e3 * statistics.median(all_s):.2f}", f"{mean:.3f}", f"{error:.3f}"])
    return lines


HEADS = {
    "update": ["nets", "update", "ms", "quarter_ms", "three_quarters_ms", "of_the_products", "of_ours"],
    "second_thread": ["nets", "batch", "one thread ms", "two threads ms", "ratio", "quarter", "three quarters"],
    "shards": ["nets", "way", "ms an update", "times straight", "standard error"],
}
ROUNDS = {"update": 50, "second_thread": 20, "shards": 21}


def rows_of(table: str, shape: str, rounds: int, replay: Replay) -> list[list[str]]:
    """All rows of a table, those of the shape `shape` alone where there is one."""
    shapes = {name: each for name, each in SHAPES.items() if shape in name}
    if table == "update":
        return [row for name, each in shapes.items() for row in beside_others(name, each, replay, rounds)]
    if table == "shards":
        plain = {name: each for name, each in shapes.items() if each[0] == each[1]}
        return [row for name, each in plain.items() for row in in_shards(name, each, rounds)]
    return [by_two_threads(nets, batch, replay, rounds) for nets, batches in THREADED.items() for batch in batches]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--tables", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--shape", default="")
    chosen = parser.parse_args()
    machine.set_deterministic(1)
    replay = Replay(ROWS, TASKS, fields_of(SPACES))
    replay.add(np.arange(ROWS) % TASKS, transitions(ROWS))
    for table in chosen.tables:
        rows = rows_of(table, chosen.shape, chosen.rounds or ROUNDS[table], replay)
        for row in rows:
            print(", ".join(row), flush=True)
        if not chosen.shape:
            figures.save(table, HEADS[table], rows)


if __name__ == "__main__":
    main()
