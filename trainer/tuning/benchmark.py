"""Measures how fast this machine steps environments and asks a policy: at most a minute, with a stranger's patience."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from anchorleg.words import counted
from trainer.config.network import Network
from trainer.config.suites import Metaworld
from trainer.envs.memory import MOST_ENVS, MemoryPlan, by_size, fitted, usable_cores
from trainer.envs.spaces import drawn_actions
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.machine.host import Host, read_host
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.sharing.policies import Policy, actor_tensors
from trainer.tuning.autotune import Inference, MachineRates, Say, Stepping, versions_here

#: One light, one middling and one heavy task: what a multi-task run mixes, without building ten.
TASKS = ("reach-v3", "drawer-open-v3", "peg-insert-side-v3")
#: Environments that are tried on every machine; the last one shows whether more than `MOST_ENVS` would be worth it.
ENVS = (1, 2, 4, 8, MOST_ENVS, 2 * MOST_ENVS)
#: Rates settle within a second; the first steps of an environment are slower.
WARM_UP_S, MEASURE_S = 0.3, 1.2
INFERENCE_S = 0.4
#: The batch of a laptop's actors; the nets are the default preset's.
BATCH = 16
_SEED = 0
#: Of what a library says of a device that does not work.
_QUOTE = 160


def measure_machine(budget_s: float, say: Say) -> MachineRates:
    """Measure within `budget_s` (more is looked at as long as the dearest measurement so far would still fit).

    `say` gets a line for each thing that is measured. Errors: none for a choice that does not work: it is left out.
    """
    began, began_at, host = time.monotonic(), time.time(), read_host()
    inference = []
    devices = [("cpu", 1), *([("cpu", 2)] if host.cores > 1 else [])]
    devices += [("cuda", 1)] if torch.cuda.is_available() else []
    devices += [("mps", 1)] if torch.backends.mps.is_available() else []
    for device, threads in devices:
        try:
            rate = _batches_per_s(torch.device(device), threads)
        except RuntimeError as error:  # a GPU that is full, or somebody's alone
            say(f"policy on {device}: does not work here ({' '.join(str(error).split())[:_QUOTE]})")
            continue
        inference.append(Inference(device, threads, rate))
        say(f"policy on {device}, {counted(threads, 'thread')}: {rate:,.0f} batches of {BATCH}/s")
    torch.set_num_threads(1)
    suite = SuiteRef(Metaworld(tasks=TASKS), _SEED)
    stepping: list[Stepping] = []
    dearest_s = 0.0
    stepper = "native" if len(suite.open().stepped_natively("auto")) == len(TASKS) else "python"
    for num_envs, workers in choices(host):
        start, name = time.monotonic(), f"{counted(num_envs, 'environment')}, num_workers {workers}"
        if stepping and start - began + 1.2 * dearest_s > budget_s:
            say("the time is over: larger choices were not tried")
            break
        try:
            rate = _steps_per_s(VectorSpec(suite, num_envs, _SEED), workers)
        except EnvError as error:
            say(f"{name}: does not work here ({error})")
            continue
        stepping.append(Stepping(num_envs, workers, rate, stepper))
        say(f"{name}: {rate:,.0f} steps/s")
        dearest_s = max(dearest_s, time.monotonic() - start)
    return MachineRates(host, tuple(stepping), tuple(inference), versions_here(), began_at)


def choices(host: Host) -> Iterator[tuple[int, int]]:
    """(environments, workers) worth a try on `host`: small ones first, so that a short time has measured something.

    Among them is what its size gives it, and one beyond `MOST_ENVS`. All leave a core to the owner; those that would
    not leave the owner's memory, or for which too little is free, are left out, but for the smallest.
    """
    usable = usable_cores(host)
    for num_envs in sorted({*ENVS, by_size(host)}):
        counts = {0, *(min(count, num_envs // 2) for count in (-(-usable // 2), usable))} - {1}
        for workers in sorted(counts):
            found = fitted(host, MemoryPlan(num_envs, workers))
            if num_envs == 1 or (found.num_envs, found.workers) == (num_envs, workers):
                yield num_envs, workers


def _steps_per_s(spec: VectorSpec, workers: int) -> float:
    """Steps of all environments together, with random actions. Errors: EnvError."""
    rng = np.random.default_rng(_SEED)
    with VectorEnv(spec, workers) as envs:
        envs.reset()

        def steps_in(seconds: float) -> float:
            start, steps = time.monotonic(), 0
            while (passed := time.monotonic() - start) < seconds:
                envs.step(drawn_actions(rng, envs.spaces.action, spec.num_envs))
                steps += spec.num_envs
            return steps / passed

        steps_in(WARM_UP_S)
        return steps_in(MEASURE_S)


def _batches_per_s(device: torch.device, threads: int) -> float:
    """Batches that a policy of the default preset acts on in a second, the way to `device` and back included."""
    torch.set_num_threads(threads)
    spec = PolicySpec(SuiteRef(Metaworld()).open().spaces, Network(), "squashed-normal")
    policy = Policy(spec, actor_tensors(PolicyNet(spec, torch.Generator().manual_seed(_SEED))), device)
    generator = torch.Generator().manual_seed(_SEED)
    obs, task = spec.spaces.zeros(BATCH), np.arange(BATCH, dtype=np.int32) % len(spec.spaces.tasks)
    policy.act(obs, task, generator)
    start, batches = time.monotonic(), 0
    while (passed := time.monotonic() - start) < INFERENCE_S:
        policy.act(obs, task, generator)
        batches += 1
    return batches / passed
