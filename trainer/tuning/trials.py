"""Tries settings of a training on this machine, with the training's own loop, nets and environments."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer.algorithms.base import Algorithm
from trainer.algorithms.common import cuda_graph as recorded
from trainer.buffers.rows import fields_of
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training
from trainer.envs.collector import Collector
from trainer.envs.spaces import Spaces, drawn_actions
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef, suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import ConfigError
from trainer.machine import device as machine
from trainer.machine import products
from trainer.machine.host import Host, read_host
from trainer.machine.shortage import words_of_shortage
from trainer.nets.encoders.base import kept_spaces
from trainer.training import memory
from trainer.training.begin import choose_workers
from trainer.training.run import TrainingRun, advance, as_begun, drain, fresh
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
    """What was measured. `update_s`: an update alone, of which a step brings `updates_per_step`; `collected_per_s`:
    steps without any; all with `own`.

    `products`: see `trainer.machine.products`, "" on a GPU. `stepping`: "native", "python" or "both".
    """

    host: Host
    device: str
    products: str
    stepping: str
    own: Setting
    trials: tuple[Trial, ...]
    update_s: float
    updates_per_step: float
    collected_per_s: float
    memory: Memory
    gpu_bytes: tuple[int, int] | None
    wall_s: float
    gradient_bytes: int = 0
    batch_bytes: int = 0


def try_settings(training: Training, budget_s: float, say: Say, goals_dir: Path) -> Tried:
    """Try settings of `training` within `budget_s`; `say` gets a line for each.

    Errors: ConfigError for a device that is not here, for nets that the memory has no room for and for an algorithm
    that comes to no update in that time; EnvError where its own settings do not work.
    """
    began = time.monotonic()
    host = read_host()
    device = machine.choose_device(training.device)
    small = training
    if training.uses_experience:
        small = training.changed(algorithm={"buffer_size": max(ROWS, len(training.env.tasks) * training.num_envs)})
    memory.check(small, device.type, host.memory_bytes, machine.memory_of(device))  # as it is tried
    machine.set_deterministic(1)
    route = products.choose_products(training.network.widest)[0] if device.type == "cpu" else ""
    suite = suite_of(training, goals_dir)
    opened = suite.open()
    # At its first use on a machine the stepper is compiled and checked: no part of any setting.
    is_native = len(opened.stepped_natively("auto")) == len(training.env.tasks)
    num_workers = choose_workers(training, suite)
    way, refused = find(ALGORITHMS, training.algorithm.name).choose_launch_mode(
        training.changed(cuda_graph=True), opened.spaces, device, None
    )
    if refused is not None and training.cuda_graph:
        say(refused)
    own = Setting(training.num_envs, num_workers, training.threads, training.cuda_graph and way == recorded.GRAPH)
    alone: _Alone | None = None
    dearest_s, reserved = 0.0, 0

    def attempt(setting: Setting) -> float | None:
        nonlocal alone, dearest_s, reserved
        start = time.monotonic()
        needed_s = dearest_s if setting == own else 2 * dearest_s  # `explore` comes back to `own`
        if alone is not None and start - began + needed_s > budget_s:
            return None
        _emptied(device)
        try:
            rate, found = _rate(training, setting, device, suite, budget_s, is_first=alone is None)
        except (EnvError, RuntimeError) as error:
            if alone is None or not (isinstance(error, EnvError) or words_of_shortage(error)):
                raise
            say(f"{words(setting)}: does not work here ({error})")
            return None
        if device.type == "cuda":
            reserved = max(reserved, torch.cuda.max_memory_reserved(device))
        alone = alone or found
        dearest_s = max(dearest_s, time.monotonic() - start)
        say(f"{words(setting)}: {rate:,.0f} steps/s")
        return rate

    counts = worker_counts(host.cores, is_native=is_native), thread_counts(host.cores, is_cpu=device.type == "cpu")
    # The number of environments is part of what PPO and A2C learn from at a time: it stays as it is.
    tasks = len(training.env.tasks) if training.uses_experience else 0
    trials = explore(own, tasks, *counts, attempt, graph=way == recorded.GRAPH)
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
        updates_per_step=alone.updates_per_step,
        collected_per_s=alone.collected_per_s,
        memory=_memory(training, device, alone.rss_bytes, host),
        gpu_bytes=_gpu_bytes(training, device, reserved),
        wall_s=time.monotonic() - began,
        gradient_bytes=_gradient_bytes(training, opened.spaces),
        batch_bytes=_batch_bytes(training, opened.spaces),
    )


def _gradient_bytes(training: Training, spaces: Spaces) -> int:
    """Of one update."""
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    return 4 * sum(net.parameters for net in algorithm.sizes(training, spaces))


def _batch_bytes(training: Training, spaces: Spaces) -> int:
    """Of the batch of one update that rank 0 draws for all; 0 where each rank has its own."""
    if not training.uses_experience:
        return 0
    fields = fields_of(kept_spaces(spaces, training.network)).values()
    return training.off_policy.batch_size * sum(math.prod(shape) * kind.itemsize for shape, kind in fields)


def words(setting: Setting) -> str:
    """One setting as a line begins with it."""
    graph = ", cuda_graph" * setting.cuda_graph
    return f"num_envs {setting.num_envs}, num_workers {setting.workers}, threads {setting.threads}{graph}"


@dataclass(frozen=True)
class _Alone:
    """What only the first trial looks at."""

    stepping: str
    update_s: float
    updates_per_step: float
    collected_per_s: float
    rss_bytes: int


def _rate(
    training: Training, setting: Setting, device: torch.device, suite: SuiteRef, budget_s: float, *, is_first: bool
) -> tuple[float, _Alone | None]:
    """Steps a second of the whole loop, and on the first time its parts. Errors: EnvError; ConfigError where
    `budget_s` pass without an update.
    """
    machine.set_deterministic(setting.threads)
    values: dict[str, Any] = {"num_envs": setting.num_envs, "threads": setting.threads}
    if training.uses_experience:
        rows = max(ROWS, len(training.env.tasks) * setting.num_envs)
        values["algorithm"] = {"random_steps": 2 * setting.num_envs, "buffer_size": rows}
    small = training.changed(**values)
    spec = VectorSpec(suite, setting.num_envs, training.seed)
    with VectorEnv(spec, setting.workers) as envs:
        if device.type == "cpu":
            state = as_begun(small, device, envs)
        else:
            state = fresh(small, device, envs, recorded.GRAPH if setting.cuda_graph else recorded.KERNELS)
        _steps_in(state, WARM_UP_S, 1, budget_s)
        rate, updates_per_step = _steps_in(state, MEASURE_S, MIN_UPDATES, budget_s)
        if not is_first:
            return rate, None
        rss = sum(map(_rss, [os.getpid(), *envs.worker_pids]))
        update_s = _update_s(state, budget_s)
        collected = _collected_in(state.collector, ALONE_S)
        kinds = set(envs.stepping.values())
        stepping = kinds.pop() if len(kinds) == 1 else "both"
        return rate, _Alone(stepping, update_s, updates_per_step, collected, rss)


def _steps_in(state: TrainingRun, seconds: float, updates: int, budget_s: float) -> tuple[float, float]:
    """(steps a second, updates a step) over so many seconds and updates at least; where rollouts are learned from, over
    whole ones. Errors: ConfigError where none is whole within `budget_s`.
    """
    start, step, made = time.monotonic(), state.step, state.updates
    is_over = is_settled = False
    while not is_over:
        learns = state.algorithm.must_learn
        advance(state)
        passed = time.monotonic() - start
        is_whole = state.training.uses_experience or (learns and not state.algorithm.must_learn)
        is_over = is_whole and passed >= seconds
        is_over &= state.updates - made >= updates or passed >= PATIENCE * seconds
        is_settled |= is_whole
        if not is_settled:
            _must_go_on(state, passed, budget_s)
    drain(state)  # a GPU has finished when its numbers are here
    steps = state.step - step
    return steps / (time.monotonic() - start), (state.updates - made) / max(steps, 1)


def _collected_in(collector: Collector, seconds: float) -> float:
    """Steps a second with random actions and without any update."""
    rng = np.random.default_rng(0)
    start, steps = time.monotonic(), 0
    while (passed := time.monotonic() - start) < seconds:
        collector.step(drawn_actions(rng, collector.envs.spaces.action, collector.num_envs))
        steps += collector.num_envs
    return steps / passed


def _must_go_on(state: TrainingRun, passed: float, budget_s: float) -> None:
    """Without a replay, a rollout that is never whole would be waited for without end. Errors: ConfigError."""
    if passed >= budget_s:
        raise ConfigError("autotune.too-short", algorithm=state.training.algorithm.name, budget_s=budget_s)


def _update_s(state: TrainingRun, budget_s: float) -> float:
    """Seconds of one; the steps between the updates of two rollouts do not count. Errors: as `_steps_in`."""
    algorithm, spent, count = state.algorithm, 0.0, 0
    while spent < ALONE_S or count < 2:
        began = time.monotonic()
        while not (state.training.uses_experience or algorithm.must_learn):
            advance(state)
            _must_go_on(state, time.monotonic() - began, budget_s)
        start = time.monotonic()
        for _ in range(MIN_UPDATES):
            if state.training.uses_experience or algorithm.must_learn:
                measured = algorithm.update()
                count += 1
        measured.tolist()
        spent += time.monotonic() - start
    return spent / count


def _memory(training: Training, device: torch.device, rss_bytes: int, host: Host) -> Memory:
    """The replay takes memory as rows come, so what was measured has as good as nothing of it."""
    rows = 0 if memory.is_on_gpu(training, device.type) else memory.rows_kept(training)
    row = memory.row_bytes(training)
    return Memory(rss_bytes, rows * row, row, memory.evaluation_bytes(training), host.memory_bytes)


def _rss(pid: int) -> int:
    """Resident bytes of a process; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _emptied(device: torch.device) -> None:
    """Take from the GPU what the trial before has left: a run refers to itself, so only the collector finds it."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _gpu_bytes(training: Training, device: torch.device, reserved: int) -> tuple[int, int] | None:
    """(the most that a trial had `reserved`, with a replay of all its rows where that lies there; all there is) of the
    GPU.
    """
    if device.type != "cuda":
        return None
    missing = training.off_policy.buffer_size - ROWS if memory.is_on_gpu(training, device.type) else 0
    used = reserved + max(0, missing) * memory.row_bytes(training)
    return used, torch.cuda.get_device_properties(device).total_memory
