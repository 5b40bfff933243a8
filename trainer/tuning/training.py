"""Which settings train fastest on a machine: the training's own loop, nets and environments, for a moment each.

Only what changes no trained number by itself is chosen: environments stepped together and their workers. What belongs
to a run's identity stays, and so do the learner's threads: more than one costs the exact resume.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trainer.algorithms.common import cuda_graph as recorded
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef, suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import ConfigError
from trainer.machine import device as machine
from trainer.machine import products
from trainer.machine.host import Host, read_host
from trainer.machine.shortage import words_of_shortage
from trainer.training import memory
from trainer.training.begin import choose_workers
from trainer.training.run import TrainingRun, advance, as_begun, drain, fresh
from trainer.tuning.autotune import NEAR, Say

#: Below this gain the settings stay as they are: a busy machine makes as much of nothing.
WORTH_CHANGING = 1.1
#: So many environments a task at most: more only makes the policy that acts older.
_ENVS_A_TASK = (1, 2, 4)
#: Rates settle within a few updates; the first steps of an environment and the first calls of a kernel are slower.
WARM_UP_S, MEASURE_S = 0.7, 2.5
#: Of a slow update so many at least, unless they take four times as long as was meant.
MIN_UPDATES, PATIENCE = 4, 4.0
#: Rows of the replay while trying: drawing from few is as slow as from many.
ROWS = 20_000


@dataclass(frozen=True)
class Setting:
    """`workers`: processes, or threads of the trainer where all tasks are stepped natively; 0: neither."""

    num_envs: int
    workers: int
    cuda_graph: bool = False

    def words(self) -> str:
        """As a line begins with it."""
        return f"num_envs {self.num_envs}, num_workers {self.workers}{', cuda_graph' * self.cuda_graph}"


#: The training's own loop made so many steps a second with a setting.
Rates = Mapping[Setting, float]
#: Steps a second of a setting; None: there is no time for it, or it does not work here.
Attempt = Callable[[Setting], float | None]


@dataclass(frozen=True)
class Tried:
    """What was measured; the settings as they are (`own`) are among the `rates`."""

    host: Host
    device: str
    own: Setting
    rates: Rates


def explore(own: Setting, tasks: int, workers: Sequence[int], attempt: Attempt, *, graph: bool = False) -> Rates:
    """Try `own`, then other `workers`, then more environments, then, where a `graph` can be had, the other of both ways
    to make updates; each from the best so far.

    One after another and not every pair: the time is a person's. Empty where `own` does not work.
    """
    tried: dict[Setting, float] = {}

    def look(*settings: Setting) -> Setting:
        """The best of all so far."""
        for setting in settings:
            if setting not in tried and (rate := attempt(setting)) is not None:
                tried[setting] = rate
        return max(tried, key=lambda setting: tried[setting], default=own)

    look(own)
    if not tried:
        return {}
    best = look(*(replace(own, workers=count) for count in workers if count <= own.num_envs))
    more = (each * tasks for each in _ENVS_A_TASK if each * tasks > own.num_envs)
    best = look(*(replace(best, num_envs=count) for count in more))
    if graph:
        look(replace(best, cuda_graph=not own.cuda_graph))
    return tried


def doubling(most: int) -> list[int]:
    """1, 2, 4, … and `most` itself."""
    return sorted({most, *(2**n for n in range(most.bit_length()))})


def advise(own: Setting, rates: Rates) -> Setting:
    """The settings as they are, unless others are clearly faster: then the smallest that is nearly the fastest. Pure.

    `rates` must hold `own`.
    """
    fastest = max(rates.values())
    if fastest < WORTH_CHANGING * rates[own]:
        return own
    near = [setting for setting, rate in rates.items() if rate >= NEAR * fastest]
    return min(near, key=lambda setting: (setting.num_envs, setting.workers))


def try_settings(training: Training, budget_s: float, say: Say, goals_dir: Path) -> Tried:
    """Try settings of `training` within `budget_s`; `say` gets a line for each.

    Errors: ConfigError for a device that is not here, for nets that the memory has no room for and for an algorithm
    that comes to no update in that time; EnvError where its own settings do not work.
    """
    began = time.monotonic()
    host, device = read_host(), machine.choose_device(training.device)
    least = small(training, training.num_envs)  # as it is tried
    memory.check(least, device.type, host.memory_bytes, machine.memory_of(device))
    machine.set_deterministic(training.threads)
    if device.type == "cpu":
        products.choose_products(training.network.widest)
    suite = suite_of(training, goals_dir)
    opened = suite.open()
    # At its first use on a machine the stepper is compiled and checked: no part of any setting.
    is_native = len(opened.stepped_natively("auto")) == len(training.env.tasks)
    way, refused = find(ALGORITHMS, training.algorithm.name).choose_launch_mode(
        training.changed(cuda_graph=True), opened.spaces, device, None
    )
    if refused is not None and training.cuda_graph:
        say(refused)
    graph = way == recorded.GRAPH
    own = Setting(training.num_envs, choose_workers(training, suite), cuda_graph=training.cuda_graph and graph)
    dearest_s = 0.0

    def attempt(setting: Setting) -> float | None:
        nonlocal dearest_s
        start, is_first = time.monotonic(), dearest_s == 0.0
        if not is_first and start - began + dearest_s > budget_s:
            return None
        if device.type == "cuda":  # a run refers to itself, so only the collector finds what it has there
            gc.collect()
            torch.cuda.empty_cache()
        try:
            rate = _rate(training, setting, device, suite, budget_s)
        except (EnvError, RuntimeError) as error:
            if is_first or not (isinstance(error, EnvError) or words_of_shortage(error)):
                raise
            say(f"{setting.words()}: does not work here ({error})")
            return None
        dearest_s = max(dearest_s, time.monotonic() - start)
        say(f"{setting.words()}: {rate:,.0f} steps/s")
        return rate

    workers = [0, *(count for count in doubling(host.cores) if count > 1 or not is_native)]  # one thread is none
    # The number of environments is part of what PPO and A2C learn from at a time: it stays as it is.
    tasks = len(training.env.tasks) if training.uses_experience else 0
    return Tried(host, device.type, own, explore(own, tasks, workers, attempt, graph=graph))


def small(training: Training, num_envs: int) -> Training:
    """`training` with so many environments, a replay of few rows, and updates from nearly the first step on."""
    values: dict[str, Any] = {}
    if training.uses_experience:
        rows = max(ROWS, len(training.env.tasks) * num_envs)
        values["algorithm"] = {"random_steps": 2 * num_envs, "buffer_size": rows}
    return training.changed(num_envs=num_envs, **values)


def _rate(training: Training, setting: Setting, device: torch.device, suite: SuiteRef, budget_s: float) -> float:
    """Steps a second of the whole loop. Errors: EnvError; ConfigError where `budget_s` pass without an update."""
    tried = small(training, setting.num_envs)
    with VectorEnv(VectorSpec(suite, setting.num_envs, training.seed), setting.workers) as envs:
        if device.type == "cpu":
            state = as_begun(tried, device, envs)
        else:
            state = fresh(tried, device, envs, recorded.GRAPH if setting.cuda_graph else recorded.KERNELS)
        _steps_in(state, WARM_UP_S, 1, budget_s)
        return _steps_in(state, MEASURE_S, MIN_UPDATES, budget_s)


def _steps_in(state: TrainingRun, seconds: float, updates: int, budget_s: float) -> float:
    """Steps a second over so many seconds and updates at least; where rollouts are learned from, over whole ones.
    Errors: ConfigError where none is whole within `budget_s`: it would be waited for without end.
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
        if not is_settled and passed >= budget_s:
            raise ConfigError("autotune.too-short", algorithm=state.training.algorithm.name, budget_s=budget_s)
    drain(state)  # a GPU has finished when its numbers are here
    return (state.step - step) / (time.monotonic() - start)
