"""Tries settings of a training on this machine, with the training's own loop, nets and environments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.algorithms import recorded as updates
from trainer.config import Training
from trainer.envs.step import F64, EnvError, VectorSpec
from trainer.envs.suites.metaworld.goals import goal_tables
from trainer.envs.suites.metaworld.native.plan import native_tasks
from trainer.envs.vector import VectorEnv
from trainer.machine import device as machine
from trainer.machine import products as matmul
from trainer.machine.host import Host, look
from trainer.training import memory
from trainer.training.run import RunState, advance, drain, draw, fresh
from trainer.tuning.training import Memory, Setting, Trial, explore, thread_counts, worker_counts

#: Rates settle within a few updates; the first steps of an environment and the first calls of a kernel are slower.
WARM_UP_S, MEASURE_S, ALONE_S = 0.7, 2.5, 1.0
#: Of a slow update so many at least, unless they take four times as long as was meant.
MIN_UPDATES, PATIENCE = 4, 4.0
#: Rows of the replay while trying: drawing from few is as slow as from many.
ROWS = 20_000
#: Far beyond any step of a trial: actions are random, and nothing is learned.
_NEVER = 2**40

Say = Callable[[str], None]


@dataclass(frozen=True)
class Tried:
    """What was measured. `update_s`: an update alone, `collected_per_s`: steps without any, both with `own`.

    `products`: see `trainer.machine.products`, "" on a GPU. `stepping`: "native", "python" or "both".
    """

    host: Host
    device: str
    products: str
    stepping: str
    own: Setting
    trials: tuple[Trial, ...]
    update_s: float
    collected_per_s: float
    memory: Memory
    gpu_bytes: tuple[int, int] | None
    wall_s: float


def measure(training: Training, budget_s: float, say: Say, goals_dir: Path) -> Tried:
    """Try settings of `training` within `budget_s`; `say` gets a line for each.

    Errors: ConfigError for a device that is not here and for nets that the memory has no room for; EnvError where its
    own settings do not work.
    """
    began = time.monotonic()
    host = look()
    device = machine.choose(training.device)
    memory.check(training.model_copy(update={"buffer_size": ROWS}), device.type, host.memory_bytes)  # as it is tried
    machine.settle(1)
    widest = max(*training.actor_hidden, *training.critic_hidden)
    products = matmul.settle(widest)[0] if device.type == "cpu" else ""
    goals = goal_tables(training.tasks, training.seed, goals_dir)
    # At its first use on a machine the stepper is compiled and checked: no part of any setting.
    is_native = native_tasks(training.tasks).issuperset(training.tasks)
    num_workers = machine.workers(training.num_workers, training.num_envs)
    way, refused = updates.choose(training.model_copy(update={"cuda_graph": True}), device)
    if refused is not None:
        say(refused)
    own = Setting(training.num_envs, num_workers, training.threads, training.cuda_graph and way == updates.GRAPH)
    alone: _Alone | None = None
    dearest_s = 0.0

    def attempt(setting: Setting) -> float | None:
        nonlocal alone, dearest_s
        start = time.monotonic()
        needed_s = dearest_s if setting == own else 2 * dearest_s  # `explore` comes back to `own`
        if alone is not None and start - began + needed_s > budget_s:
            return None
        try:
            rate, found = _rate(training, setting, device, goals, is_first=alone is None)
        except EnvError as error:
            if alone is None:
                raise
            say(f"{words(setting)}: does not work here ({error})")
            return None
        alone = alone or found
        dearest_s = max(dearest_s, time.monotonic() - start)
        say(f"{words(setting)}: {rate:,.0f} steps/s")
        return rate

    counts = worker_counts(host.cores, is_native=is_native), thread_counts(host.cores, is_cpu=device.type == "cpu")
    trials = explore(own, len(training.tasks), *counts, attempt, graph=way == updates.GRAPH)
    if alone is None:
        raise AssertionError("the first attempt measures it or raises")
    return Tried(
        host=host,
        device=device.type,
        products=products,
        stepping=alone.stepping,
        own=own,
        trials=tuple(trials),
        update_s=alone.update_s,
        collected_per_s=alone.collected_per_s,
        memory=_memory(training, alone.rss_bytes, host),
        gpu_bytes=_gpu_bytes(device),
        wall_s=time.monotonic() - began,
    )


def words(setting: Setting) -> str:
    """One setting as a line begins with it."""
    graph = ", cuda_graph" * setting.cuda_graph
    return f"num_envs {setting.num_envs}, num_workers {setting.workers}, threads {setting.threads}{graph}"


@dataclass(frozen=True)
class _Alone:
    """What only the first trial looks at."""

    stepping: str
    update_s: float
    collected_per_s: float
    rss_bytes: int


def _rate(
    training: Training, setting: Setting, device: torch.device, goals: Sequence[F64], *, is_first: bool
) -> tuple[float, _Alone | None]:
    """Steps a second of the whole loop, and on the first time its parts. Errors: EnvError."""
    machine.settle(setting.threads)
    values = {"num_envs": setting.num_envs, "threads": setting.threads, "random_steps": 2 * setting.num_envs}
    small = training.model_copy(update={**values, "buffer_size": max(ROWS, len(goals) * setting.num_envs)})
    spec = VectorSpec(
        tasks=training.tasks,
        goals=tuple(goals),
        num_envs=setting.num_envs,
        seed=training.seed,
        horizon=training.horizon,
    )
    with VectorEnv(spec, setting.workers) as envs:
        state = fresh(small, device, envs, updates.GRAPH if setting.cuda_graph else updates.KERNELS)
        _steps_in(state, WARM_UP_S, 1)
        rate = _steps_in(state, MEASURE_S, MIN_UPDATES)
        if not is_first:
            return rate, None
        rss = sum(map(_rss, [os.getpid(), *envs.worker_pids]))
        update_s = _update_s(state)
        state.training = small.model_copy(update={"random_steps": _NEVER})
        collected = _steps_in(state, ALONE_S, 0)
        kinds = set(envs.stepping.values())
        return rate, _Alone(kinds.pop() if len(kinds) == 1 else "both", update_s, collected, rss)


def _steps_in(state: RunState, seconds: float, updates: int) -> float:
    """Steps a second over so many seconds and updates at least."""
    start, before, done = time.monotonic(), state.step, 0
    while (passed := time.monotonic() - start) < seconds or (done < updates and passed < PATIENCE * seconds):
        done += int(state.owed)  # what `advance` makes at once
        advance(state)
    drain(state)  # a GPU has finished when its numbers are here
    return (state.step - before) / (time.monotonic() - start)


def _update_s(state: RunState) -> float:
    start, count = time.monotonic(), 0
    while (time.monotonic() - start) < ALONE_S or count < 2:
        measured = state.updater.update(draw(state))
        count += 1
    measured.tolist()
    return (time.monotonic() - start) / count


def _memory(training: Training, rss_bytes: int, host: Host) -> Memory:
    """The replay takes memory as rows come, so what was measured has as good as nothing of it."""
    rows = min(training.buffer_size, training.total_steps)
    replay, row = rows * memory.ROW_BYTES, memory.ROW_BYTES
    return Memory(rss_bytes, replay, row, memory.evaluation_bytes(training), host.memory_bytes)


def _rss(pid: int) -> int:
    """Resident bytes of a process; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _gpu_bytes(device: torch.device) -> tuple[int, int] | None:
    """(the most that was used, all there is) of the GPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.max_memory_reserved(device), torch.cuda.get_device_properties(device).total_memory
