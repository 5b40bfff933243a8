"""One SAC update: ours, stable-baselines3's, a plain one in CleanRL's manner, and the matrix products alone.

`python bench/update.py [ROUNDS] [SHAPE]`: MT10's shapes (49 inputs, 4 actions), one thread, all in one process, by
turns; a round is so many updates of one as take about a tenth of a second. Every update draws its batch itself. The
figure is CPU time an update (one thread: the same as wall time on an idle machine), the median over rounds, with the
quarter and three-quarter points; a ratio is the median over rounds of both in the same round, because a neighbour on
the machine slows some rounds down by a third. The floor is the products of one update alone, each at the best rate that
documented settings of torch reach in the same run: that many operations nobody can save. Ours computes its products by
the library that `trainer.machine.products` chooses here, as `trainer train` does; `plain products`: by torch's default,
which the rivals have (they would gain by the same setting). `by torch alone`: ours without the C between the products,
as where there is no compiler. `with the moving average`: ours, and the actor's average after it, as
`training.averaging` has it; its own cost, in the same run, is what is printed last. Writes update.csv.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import figures
import gymnasium as gym
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from learners import fresh, prepared  # noqa: E402
from rivals import sac  # noqa: E402 - beside this file

from trainer.algorithms.common.native.update import NativeUpdates  # noqa: E402
from trainer.buffers.replay import Replay  # noqa: E402
from trainer.buffers.rows import fields_of  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.tasknames import MT10  # noqa: E402
from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces  # noqa: E402
from trainer.machine import device as machine  # noqa: E402
from trainer.machine import products  # noqa: E402
from trainer.nets.average import MovingAverage  # noqa: E402

#: Name → actor, critic, batch.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "256x2, batch 256": ((256, 256), (256, 256), 256),
    "400x3, batch 1280": ((400, 400, 400), (400, 400, 400), 1280),
    "actor 256x2, critic 1024x3, batch 512": ((256, 256), (1024, 1024, 1024), 512),
}
INPUTS, ACTIONS, TASKS, ROWS = 49, 4, 10, 100_000
SPACES = Spaces({STATE: ArraySpec((39,))}, Box(ACTIONS), MT10, 500)
ROUND_S, FLOOR_CALLS = 0.1, 4
OURS, OURS_TORCH, OURS_AVERAGED, OURS_PLAIN, SB3, PLAIN, FLOOR = (
    "ours",
    "ours, by torch alone",
    "ours, with the moving average",
    "ours, plain products",
    "stable-baselines3",
    "plain (CleanRL's manner)",
    "matrix products alone",
)


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


def floor(shape: tuple[tuple[int, ...], tuple[int, ...], int]) -> Callable[[], float]:
    """A round of measuring the products: CPU seconds of an update's, the best route for each."""
    counts: dict[tuple[str, int, int, int], int] = {}
    for product in products_of(*shape):
        counts[product] = counts.get(product, 0) + 1
    calls: dict[tuple[str, int, int, int], Callable[[], torch.Tensor]] = {}
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
                routes.append(timed(call, FLOOR_CALLS))
            took += min(routes) * counts[product]
        products.use(products.PLAIN)
        return took

    return measure


def rows(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Random transitions."""
    return {
        "obs.state": rng.standard_normal((count, 39), np.float32),
        "action": rng.uniform(-1, 1, (count, ACTIONS)).astype(np.float32),
        "reward": rng.random(count, np.float32),
        "next_obs.state": rng.standard_normal((count, 39), np.float32),
        "terminated": np.zeros(count, np.bool_),
    }


def ours(shape: tuple[tuple[int, ...], tuple[int, ...], int], replay: Replay) -> Callable[[], object]:
    """Our update, batch included."""
    actor, critic, batch = shape
    training = resolve(TrainingSection(actor_hidden=actor, critic_hidden=critic, batch_size=batch))
    learner = fresh(training, SPACES)
    rng, updates = np.random.default_rng(0), NativeUpdates(learner)
    return lambda: updates.learn(prepared(learner, replay.pick(replay.deal(batch), rng)))


def ours_by_torch(shape: tuple[tuple[int, ...], tuple[int, ...], int], replay: Replay) -> Callable[[], object]:
    """Our update without C, batch included."""
    actor, critic, batch = shape
    training = resolve(TrainingSection(actor_hidden=actor, critic_hidden=critic, batch_size=batch))
    learner = fresh(training, SPACES)
    rng = np.random.default_rng(0)
    return lambda: learner.update_of(prepared(learner, replay.pick(replay.deal(batch), rng)))


def ours_averaged(shape: tuple[tuple[int, ...], tuple[int, ...], int], replay: Replay) -> Callable[[], object]:
    """Our update, batch included, and the moving average behind it."""
    actor, critic, batch = shape
    training = resolve(TrainingSection(actor_hidden=actor, critic_hidden=critic, batch_size=batch))
    learner = fresh(training, SPACES)
    average = MovingAverage(learner.policy, training.averaging)
    rng, updates = np.random.default_rng(0), NativeUpdates(learner)

    def update() -> None:
        updates.learn(prepared(learner, replay.pick(replay.deal(batch), rng)))
        average.follow()

    return update


def follow_alone(shape: tuple[tuple[int, ...], tuple[int, ...], int]) -> Callable[[], object]:
    """What the moving average does after an update."""
    actor, critic, batch = shape
    training = resolve(TrainingSection(actor_hidden=actor, critic_hidden=critic, batch_size=batch))
    return MovingAverage(fresh(training, SPACES).policy, training.averaging).follow


def plain(shape: tuple[tuple[int, ...], tuple[int, ...], int], replay: Replay) -> Callable[[], object]:
    """The plain update, batch included."""
    actor, critic, batch = shape
    learner = sac.Plain(INPUTS, ACTIONS, actor, critic)
    rng = np.random.default_rng(0)
    return lambda: learner.update(replay.pick(replay.deal(batch), rng))


class Shapes(gym.Env):  # type: ignore[type-arg]
    """Spaces, no world: what SB3 needs to make its nets."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (INPUTS,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (ACTIONS,), np.float32)


def stable_baselines3(shape: tuple[tuple[int, ...], tuple[int, ...], int], values: dict) -> Callable[[], object]:
    """SB3's `train`, batch included."""
    actor, critic, batch = shape
    model = sac.stable_baselines3(Shapes(), actor, critic, batch, ROWS)
    buffer = model.replay_buffer
    one_hot = np.eye(TASKS, dtype=np.float32)[np.arange(ROWS) % TASKS]
    buffer.observations[:, 0], buffer.next_observations[:, 0] = (
        np.concatenate([values[name], one_hot], axis=1) for name in ("obs.state", "next_obs.state")
    )
    buffer.actions[:, 0], buffer.rewards[:, 0], buffer.full = values["action"], values["reward"], True
    return lambda: model.train(gradient_steps=1, batch_size=batch)


def timed(update: Callable[[], object], count: int) -> float:
    """CPU seconds an update."""
    start = time.process_time()
    for _ in range(count):
        update()
    return (time.process_time() - start) / count


def main() -> None:
    """Measure, print, write."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    machine.set_deterministic(1)
    replay = Replay(ROWS, TASKS, fields_of(SPACES))
    values = rows(np.random.default_rng(0), ROWS)
    replay.add(np.arange(ROWS) % TASKS, values)
    lines = []
    for name, shape in SHAPES.items():
        if wanted in name:
            lines += measure(name, shape, replay, values, rounds)
    if not wanted:
        head = ["nets", "update", "ms", "quarter_ms", "three_quarters_ms", "of_the_products", "of_ours"]
        figures.save("update", head, lines)


def measure(name: str, shape: tuple, replay: Replay, values: dict, rounds: int) -> list[list[str]]:
    """The rows of one shape."""
    floor_round = floor(shape)
    route, _ = products.choose_products(max(*shape[0], *shape[1]))
    updates = {
        OURS: ours(shape, replay),
        OURS_TORCH: ours_by_torch(shape, replay),
        OURS_AVERAGED: ours_averaged(shape, replay),
        OURS_PLAIN: ours(shape, replay),
        SB3: stable_baselines3(shape, values),
        PLAIN: plain(shape, replay),
    }
    counts = {who: max(1, int(ROUND_S / timed(update, 2))) for who, update in updates.items()}
    found: dict[str, list[float]] = {who: [] for who in updates}
    found[FLOOR] = []
    for _ in range(rounds):
        for who, update in updates.items():
            products.use(route if who in {OURS, OURS_TORCH, OURS_AVERAGED} else products.PLAIN)
            found[who].append(timed(update, counts[who]))
        found[FLOOR].append(floor_round())
    lines = []
    for who, all_s in found.items():
        low, mid, high = statistics.quantiles(all_s, n=4) if len(all_s) > 1 else 3 * all_s
        numbers = [f"{1e3 * value:.2f}" for value in (mid, low, high)]
        lines.append([name, who, *numbers, *(f"{paired(all_s, found[peer]):.2f}" for peer in (FLOOR, OURS))])
    for line in lines:
        print(", ".join(line), flush=True)
    follow = follow_alone(shape)
    alone = statistics.median(timed(follow, counts[OURS]) for _ in range(rounds))
    of_ours = alone / statistics.median(found[OURS])
    print(f"{name}: the moving average alone: {1e6 * alone:.0f} µs, {of_ours:.2%} of an update", flush=True)
    return lines


def paired(one: list[float], other: list[float]) -> float:
    """How many times as long `one` took as `other`, round by round."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main()
