"""Tries settings of a training on this machine, with the training's own loop, nets and environments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from trainer.algorithms.common import cuda_graph as recorded
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training
from trainer.envs.collector import Collector
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef, suite_of
from trainer.envs.vector import VectorEnv
from trainer.machine import device as machine
from trainer.machine import products
from trainer.machine.host import Host, read_host
from trainer.training import memory
from trainer.training.run import TrainingRun, advance, drain, fresh
from trainer.tuning.training import Memory, Setting, Trial, explore, thread_counts, worker_counts

#: Rates settle within a few updates; the first steps of an environment and the first calls of a kernel are slower.
WARM_UP_S, MEASURE_S, ALONE_S = 0.7, 2.5, 1.0
#: Of a slow update so many at least, unless they take four times as long as was meant.
MIN_UPDATES, PATIENCE = 4, 4.0
#: Rows of the replay while trying: drawing from few is as slow as from many.
ROWS = 20_000

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


def try_settings(training: Training, budget_s: float, say: Say, goals_dir: Path) -> Tried:
    """Try settings of `training` within `budget_s`; `say` gets a line for each.

    Errors: ConfigError for a device that is not here and for nets that the memory has no room for; EnvError where its
    own settings do not work.
    """
    began = time.monotonic()
    host = read_host()
    device = machine.choose_device(training.device)
    small = training.changed(buffer_size=ROWS, num_envs=1) if training.uses_experience else training
    memory.check(small, device.type, host.memory_bytes)  # as it is tried
    machine.set_deterministic(1)
    route = products.choose_products(training.network.widest)[0] if device.type == "cpu" else ""
    suite = suite_of(training, goals_dir)
    opened = suite.open()
    # At its first use on a machine the stepper is compiled and checked: no part of any setting.
    is_native = len(opened.stepped_natively("auto")) == len(training.env.tasks)
    num_workers = machine.default_workers(training.num_workers, training.num_envs)
    way, refused = find(ALGORITHMS, training.algorithm.name).choose_launch_mode(
        training.changed(cuda_graph=True), opened.spaces, device
    )
    if refused is not None:
        say(refused)
    own = Setting(training.num_envs, num_workers, training.threads, training.cuda_graph and way == recorded.GRAPH)
    alone: _Alone | None = None
    dearest_s = 0.0

    def attempt(setting: Setting) -> float | None:
        nonlocal alone, dearest_s
        start = time.monotonic()
        needed_s = dearest_s if setting == own else 2 * dearest_s  # `explore` comes back to `own`
        if alone is not None and start - began + needed_s > budget_s:
            return None
        try:
            rate, found = _rate(training, setting, device, suite, is_first=alone is None)
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
    trials = explore(own, len(training.env.tasks), *counts, attempt, graph=way == recorded.GRAPH)
    if alone is None:
        raise AssertionError("the first attempt measures it or raises")
    return Tried(
        host=host,
        device=device.type,
        products=route,
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
    training: Training, setting: Setting, device: torch.device, suite: SuiteRef, *, is_first: bool
) -> tuple[float, _Alone | None]:
    """Steps a second of the whole loop, and on the first time its parts. Errors: EnvError."""
    machine.set_deterministic(setting.threads)
    values = {"num_envs": setting.num_envs, "threads": setting.threads}
    if training.uses_experience:
        rows = max(ROWS, len(training.env.tasks) * setting.num_envs)
        values |= {"random_steps": 2 * setting.num_envs, "buffer_size": rows}
    small = training.changed(**values)
    spec = VectorSpec(suite, setting.num_envs, training.seed)
    with VectorEnv(spec, setting.workers) as envs:
        state = fresh(small, device, envs, recorded.GRAPH if setting.cuda_graph else recorded.KERNELS)
        _steps_in(state, WARM_UP_S, 1)
        rate = _steps_in(state, MEASURE_S, MIN_UPDATES)
        if not is_first:
            return rate, None
        rss = sum(map(_rss, [os.getpid(), *envs.worker_pids]))
        update_s = _update_s(state)
        collected = _collected_in(state.collector, ALONE_S)
        kinds = set(envs.stepping.values())
        return rate, _Alone(kinds.pop() if len(kinds) == 1 else "both", update_s, collected, rss)


def _steps_in(state: TrainingRun, seconds: float, updates: int) -> float:
    """Steps a second over so many seconds and updates at least."""
    start, before, done = time.monotonic(), state.step, 0
    while (passed := time.monotonic() - start) < seconds or (done < updates and passed < PATIENCE * seconds):
        done += state.algorithm.owed  # what `advance` makes at once
        advance(state)
    drain(state)  # a GPU has finished when its numbers are here
    return (state.step - before) / (time.monotonic() - start)


def _collected_in(collector: Collector, seconds: float) -> float:
    """Steps a second with random actions and without any update."""
    shape, rng = (collector.num_envs, *collector.envs.spaces.action.shape), np.random.default_rng(0)
    start, steps = time.monotonic(), 0
    while (passed := time.monotonic() - start) < seconds:
        collector.step(rng.uniform(-1, 1, shape).astype(np.float32))
        steps += collector.num_envs
    return steps / passed


def _update_s(state: TrainingRun) -> float:
    start, count = time.monotonic(), 0
    while (time.monotonic() - start) < ALONE_S or count < 2:
        measured = state.algorithm.update()
        count += 1
    measured.tolist()
    return (time.monotonic() - start) / count


def _memory(training: Training, rss_bytes: int, host: Host) -> Memory:
    """The replay takes memory as rows come, so what was measured has as good as nothing of it."""
    rows = memory.rows_kept(training)
    row = memory.row_bytes(training)
    return Memory(rss_bytes, rows * row, row, memory.evaluation_bytes(training), host.memory_bytes)


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
