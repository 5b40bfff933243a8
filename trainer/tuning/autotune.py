"""How many environments of Meta-World this machine should run for its owner's run: the rates that were measured, kept
as one file a name (a profile), and a pure recommendation.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from anchorleg.files import write_json
from anchorleg.places import own_folder
from anchorleg.words import counted
from trainer.config.suites import Metaworld
from trainer.envs.memory import MOST_ENVS, MemoryPlan, by_size, fitted, plan_memory, usable_cores
from trainer.envs.spaces import drawn_actions
from trainer.envs.step import EnvError, VectorSpec
from trainer.envs.suite import SuiteRef
from trainer.envs.vector import VectorEnv
from trainer.errors import ConfigError, SaveError
from trainer.machine.host import Host, read_host

#: Raised when what is measured changes its meaning; older files are then measured again.
FORMAT = 4
#: A choice this near to the fastest one is as good, and smaller is kinder: less memory, episodes end sooner.
NEAR = 0.95
#: Two kernels tell of the same memory, less what each keeps for itself.
KERNELS_SHARE = 0.02
#: One light, one middling and one heavy task: what a multi-task run mixes, without building ten.
TASKS = ("reach-v3", "drawer-open-v3", "peg-insert-side-v3")
#: Environments that are tried on every machine.
ENVS = (1, 2, 4, 8, MOST_ENVS)
#: Rates settle within a second; the first steps of an environment are slower.
WARM_UP_S, MEASURE_S = 0.3, 1.2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_SEED = 0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Stepping:
    """`num_envs` environments in `workers` processes, or threads where C steps (0: in the program), step so many times
    a second, all together.
    """

    num_envs: int
    workers: int
    steps_per_s: float


@dataclass(frozen=True)
class MachineRates:
    """What was measured."""

    host: Host
    stepping: tuple[Stepping, ...]
    versions: Mapping[str, str]
    measured_at: float
    format: int = FORMAT

    def rate_of(self, plan: MemoryPlan) -> float | None:
        """Steps a second; None: it was not measured."""
        found = (one for one in self.stepping if (one.num_envs, one.workers) == (plan.num_envs, plan.workers))
        return next((one.steps_per_s for one in found), None)


def recommend(facts: MachineRates) -> MemoryPlan:
    """The number for a machine of this size (`trainer.envs.memory.by_size`), or more where that was measured to be
    faster: the smallest that makes nearly the most steps. Pure.

    Never less. Cores and memory cap what was measured as they cap the rule.
    """
    host, size = facts.host, by_size(facts.host)
    if not facts.stepping:
        plan = plan_memory(host)
        return replace(plan, notes=("nothing was measured", *plan.notes))
    near = _smallest_near(facts.stepping)
    if near.num_envs > size:
        notes = (f"this machine's size suggests {counted(size, 'environment')}, but {near.num_envs} were faster",)
        return fitted(host, MemoryPlan(near.num_envs, near.workers, notes))
    of_size = [choice for choice in facts.stepping if choice.num_envs == size]
    return fitted(host, MemoryPlan(size, _smallest_near(of_size).workers if of_size else usable_cores(host)))


def _smallest_near(measured: Iterable[Stepping]) -> Stepping:
    """The smallest choice that is nearly the fastest of all."""
    fastest = max(choice.steps_per_s for choice in measured)
    near = (choice for choice in measured if choice.steps_per_s >= NEAR * fastest)
    return min(near, key=lambda choice: (choice.num_envs, choice.workers))


def advise(num_envs: int | None = None, user_id: str | None = None, host: Host | None = None) -> MemoryPlan:
    """What to run now: from what `trainer autotune` measured on this machine, else by its size.

    `num_envs`: the user's own number, for which only workers are advised. `host`: None is this machine.
    Errors: ConfigError for an impossible name.
    """
    host = host or read_host()
    facts, note = find_profile(user_id, host)
    if num_envs is not None:
        plan = plan_memory(host, num_envs)
    elif facts is not None:
        plan = recommend(replace(facts, host=host))
    else:
        plan = plan_memory(host)
        envs = counted(by_size(host), "environment")
        words = f"{envs} by this machine's size; `trainer autotune` measures whether more are faster"
        plan = replace(plan, notes=(words, *plan.notes))
    return replace(plan, notes=(*filter(None, [note]), *plan.notes))


def find_profile(user_id: str | None, host: Host) -> tuple[MachineRates | None, str]:
    """What was measured on a machine like `host` and kept under `user_id`, and a sentence where there is no such;
    without a `user_id` the newest of any name. Errors: ConfigError.
    """
    path = cache_file(user_id or "any")
    paths = path.parent.glob("autotune-*.json") if user_id is None else [path]
    kept = [facts for each in paths if (facts := read_facts(each)) is not None and is_of(facts, host)]
    if kept or user_id is None:
        return max(kept, key=lambda facts: facts.measured_at, default=None), ""
    return None, f"there is no profile {user_id} of this machine yet: `trainer autotune --user-id {user_id}`"


def is_of(facts: MachineRates, host: Host) -> bool:
    """Whether `facts` were measured on a machine like `host`, with its cores and memory, with the software of here."""
    there = facts.host
    if there.memory_bytes is None or host.memory_bytes is None:
        is_alike = there.memory_bytes == host.memory_bytes
    else:
        is_alike = math.isclose(there.memory_bytes, host.memory_bytes, rel_tol=KERNELS_SHARE)
    return is_alike and there.cores == host.cores and dict(facts.versions) == versions_here()


def versions_here() -> dict[str, str]:
    """The software that decides how fast things are."""
    return {name: version(name) for name in ("torch", "metaworld", "mujoco")}


def cache_file(user_id: str, environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where the facts of this machine are kept. Errors: ConfigError for an impossible name."""
    if not _NAME.fullmatch(user_id):
        raise ConfigError("autotune.user-id", user_id=user_id)
    return own_folder("cache", environ, platform) / f"autotune-{user_id}.json"


def read_facts(path: Path) -> MachineRates | None:
    """What was measured before; None where nothing was, or the file is damaged or of another format."""
    try:
        facts = TypeAdapter(MachineRates).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return facts if facts.format == FORMAT else None


def write_facts(path: Path, facts: MachineRates) -> None:
    """Errors: SaveError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(facts))
    except OSError as error:
        raise SaveError("autotune.not-kept", path=path, why=error.strerror) from None


def measure_machine(budget_s: float, say: Say) -> MachineRates:
    """Measure within `budget_s` (more is looked at as long as the dearest measurement so far would still fit).

    `say` gets a line for each thing that is measured. Errors: none for a choice that does not work: it is left out.
    """
    began, began_at, host = time.monotonic(), time.time(), read_host()
    suite = SuiteRef(Metaworld(tasks=TASKS), _SEED)
    suite.open().stepped_natively("auto")  # at its first use it is compiled and checked: no part of any choice
    stepping: list[Stepping] = []
    dearest_s = 0.0
    for num_envs, workers in choices(host):
        start, name = time.monotonic(), f"{counted(num_envs, 'environment')}, num_workers {workers}"
        if stepping and start - began + 1.2 * dearest_s > budget_s:
            say("the time is up: larger choices were not tried")
            break
        try:
            rate = _steps_per_s(VectorSpec(suite, num_envs, _SEED), workers)
        except EnvError as error:
            say(f"{name}: does not work here ({error})")
            continue
        stepping.append(Stepping(num_envs, workers, rate))
        say(f"{name}: {rate:,.0f} steps/s")
        dearest_s = max(dearest_s, time.monotonic() - start)
    return MachineRates(host, tuple(stepping), versions_here(), began_at)


def choices(host: Host) -> Iterator[tuple[int, int]]:
    """(environments, workers) worth a try on `host`: small ones first, so that a short time has measured something.

    Among them is what its size gives it. All leave a core to the owner; those that would not leave the owner's memory,
    or for which too little is free, are left out, but for the smallest.
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
