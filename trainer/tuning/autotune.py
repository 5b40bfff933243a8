"""How many environments this machine should run for its owner's run: measured rates, which are kept, one file a name (a
profile), and a pure recommendation.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none, write_json
from anchorleg.places import own_folder
from anchorleg.words import counted
from trainer.envs.memory import MOST_ENVS, MemoryPlan, by_size, fitted, plan_memory, usable_cores
from trainer.errors import ConfigError, SaveError
from trainer.machine.host import Host, read_host

#: Raised when what is measured changes its meaning; older files are then measured again.
FORMAT = 3
#: A choice this near to the fastest one is as good, and smaller is kinder: less memory, episodes end sooner.
NEAR = 0.95
#: Another device or a second thread must be faster by this much, for all else that they cost.
WORTH_IT = 1.2
#: Two kernels tell of the same memory, less what each keeps for itself.
KERNELS_SHARE = 0.02
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Stepping:
    """`num_envs` environments in `workers` processes (0: in the program) step so many times a second, all together.

    `stepper` "native": by C, on `workers` threads of the program; tasks that C cannot step are several times slower.
    """

    num_envs: int
    workers: int
    steps_per_s: float
    stepper: str = "python"


@dataclass(frozen=True)
class Inference:
    """A policy on `device` with `threads` answers so many batches a second."""

    device: str
    threads: int
    batches_per_s: float


@dataclass(frozen=True)
class MachineRates:
    """What was measured."""

    host: Host
    stepping: tuple[Stepping, ...]
    inference: tuple[Inference, ...]
    versions: Mapping[str, str]
    measured_at: float


@dataclass(frozen=True)
class Recommendation:
    """What to run. `steps_per_s` is expected, None where nothing was measured; `notes` are sentences for the user."""

    num_envs: int
    workers: int
    threads: int
    device: str
    steps_per_s: float | None
    notes: tuple[str, ...] = ()


def recommend(facts: MachineRates) -> Recommendation:
    """The number for a machine of this size (`memory.by_size`), or more where that was measured to be faster. Pure.

    Never less: rates can raise the number, up to the smallest that makes nearly the most steps, and to `MOST_ENVS` at
    most. More than that is only told of. Cores and memory cap what was measured as they cap the rule.
    """
    host, inference = facts.host, _inference(facts.inference)
    rates = {choice: _together(choice, inference) for choice in facts.stepping}
    few = {choice: rate for choice, rate in rates.items() if choice.num_envs <= MOST_ENVS}
    size = by_size(host)
    if not few:
        return _by_rule(replace(plan_memory(host), notes=("nothing was measured", *plan_memory(host).notes)))
    near = _smallest_near(few)
    notes = []
    if near.num_envs > size:
        at_size = max((rate for choice, rate in few.items() if choice.num_envs == size), default=None)
        much = "the most steps/s" if at_size is None else f"{few[near] / at_size:.1f} times as many steps/s"
        notes.append(f"by its size it would be {counted(size, 'environment')}; {near.num_envs} make {much}")
        wanted = MemoryPlan(near.num_envs, near.workers)
    else:
        of_size = {choice: rate for choice, rate in few.items() if choice.num_envs == size}
        wanted = MemoryPlan(size, _smallest_near(of_size).workers if of_size else usable_cores(host))
    found = fitted(host, wanted)
    many = max(rates, key=lambda choice: rates[choice])
    if rates[many] >= WORTH_IT * max(few.values()):
        notes.append(
            f"{many.num_envs} environments make {rates[many] / max(few.values()):.1f} times as many steps/s; "
            f"more than {MOST_ENVS} only if you ask for them: --num-envs {many.num_envs}"
        )
    rate = next((rates[one] for one in few if (one.num_envs, one.workers) == (found.num_envs, found.workers)), None)
    threads, device = (inference.threads, inference.device) if inference else (1, "cpu")
    return Recommendation(found.num_envs, found.workers, threads, device, rate, (*notes, *found.notes))


def _smallest_near(rates: Mapping[Stepping, float]) -> Stepping:
    """The smallest choice that is nearly the fastest of all."""
    fastest = max(rates.values())
    near = (choice for choice, rate in rates.items() if rate >= NEAR * fastest)
    return min(near, key=lambda choice: (choice.num_envs, choice.workers))


def _inference(measured: tuple[Inference, ...]) -> Inference | None:
    """One thread of the CPU, unless something else is worth it."""
    plain = next((one for one in measured if (one.device, one.threads) == ("cpu", 1)), None)
    other = max(measured, key=lambda one: one.batches_per_s, default=None)
    if plain is None or other is None:
        return other
    return other if other.batches_per_s >= WORTH_IT * plain.batches_per_s else plain


def _together(choice: Stepping, inference: Inference | None) -> float:
    """Steps a second where acting and stepping take turns."""
    step_s = choice.num_envs / choice.steps_per_s
    return choice.num_envs / (step_s + (1 / inference.batches_per_s if inference else 0.0))


def advise(num_envs: int | None = None, user_id: str | None = None, host: Host | None = None) -> Recommendation:
    """What to run now: from what `trainer autotune` measured on this machine, else by its size.

    `num_envs`: the user's own number, for which only workers and device are advised. `host`: None is this machine.
    Errors: ConfigError for an impossible name.
    """
    host = host or read_host()
    facts, note = find_profile(user_id, host)
    if facts is None:
        thumb = plan_memory(host, num_envs)
        if num_envs is None:
            envs = counted(by_size(host), "environment")
            word = f"{envs} by this machine's size; `trainer autotune` measures whether more pay"
            thumb = replace(thumb, notes=(word, *thumb.notes))
        found = _by_rule(thumb)
    else:
        found = recommend(replace(facts, host=host))
        found = found if num_envs is None else _by_rule(plan_memory(host, num_envs), found.threads, found.device)
    return replace(found, notes=(*filter(None, [note]), *found.notes))


def _by_rule(thumb: MemoryPlan, threads: int = 1, device: str = "cpu") -> Recommendation:
    return Recommendation(thumb.num_envs, thumb.workers, threads, device, None, thumb.notes)


def find_profile(user_id: str | None, host: Host) -> tuple[MachineRates | None, str]:
    """What was measured on a machine like `host` and kept under `user_id`; without one under this machine's name, else
    the newest that was measured here. A note where it is another one, or cannot be used. Errors: ConfigError.
    """
    name = user_id or host.name
    path = cache_file(name)
    facts = read_facts(path)
    if facts is not None and is_of(facts, host):
        return facts, ""
    if user_id is None:
        others = [(one, each) for each in path.parent.glob("autotune-*.json") if (one := read_facts(each)) is not None]
        here = [(one.measured_at, each.stem.removeprefix("autotune-"), one) for one, each in others if is_of(one, host)]
        if here:
            _, other, found = max(here, key=lambda each: each[:2])
            return found, f"going by the profile {other}, which `trainer autotune` measured on this machine"
    if path.exists():
        return None, (
            f"the profile {path} was measured on another machine or with other versions, or is damaged; it is not "
            f"used: measure anew with `trainer autotune --user-id {name}`"
        )
    return None, "" if user_id is None else f"there is no profile {name} yet: `trainer autotune --user-id {name}`"


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
    value: Any = read_json_or_none(path)
    try:
        if value["format"] != FORMAT:
            return None
        return MachineRates(
            host=Host(**value["host"]),
            stepping=tuple(Stepping(**one) for one in value["stepping"]),
            inference=tuple(Inference(**one) for one in value["inference"]),
            versions=value["versions"],
            measured_at=value["measured_at"],
        )
    except (KeyError, TypeError, ValueError):
        return None


def write_facts(path: Path, facts: MachineRates) -> None:
    """Errors: SaveError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format": FORMAT, **asdict(facts)})
    except OSError as error:
        raise SaveError("autotune.not-kept", path=path, why=error.strerror) from None
