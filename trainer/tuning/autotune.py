"""How many environments this machine should run for its owner's run: measured facts, which are kept, one file a name (a
profile), and a pure recommendation.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
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

#: Raised when what is measured changes its meaning; older caches are then measured again.
FORMAT = 3
#: A choice this near to the fastest one is as good, and smaller is kinder: less memory, episodes end sooner.
NEAR = 0.95
#: Another device or a second thread must be faster by this much, for all else that they cost.
WORTH_IT = 1.2
#: With more of its cores taken by others a machine looks slower than it is.
BUSY_SHARE = 0.5
#: Two kernels tell of the same memory, less what each keeps for itself.
KERNELS_SHARE = 0.02
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")


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
    """What was measured. `accelerator` is "cuda", "mps" or "" and `accelerator_name` what it calls itself."""

    host: Host
    accelerator: str
    accelerator_name: str
    stepping: tuple[Stepping, ...]
    inference: tuple[Inference, ...]
    versions: Mapping[str, str]
    measured_at: float
    wall_s: float


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
    if plain is None:
        return max(measured, key=lambda one: one.batches_per_s, default=None)
    other = max(measured, key=lambda one: one.batches_per_s)
    return other if other.batches_per_s >= WORTH_IT * plain.batches_per_s else plain


def _together(choice: Stepping, inference: Inference | None) -> float:
    """Steps a second where acting and stepping take turns."""
    step_s = choice.num_envs / choice.steps_per_s
    return choice.num_envs / (step_s + (1 / inference.batches_per_s if inference else 0.0))


def advise(num_envs: int | None = None, user_id: str | None = None, host: Host | None = None) -> Recommendation:
    """What to run now: from what `trainer autotune` measured on this machine, else by its size.

    `num_envs`: the user's own number, for which only workers and device are advised. `host`: None is this machine.
    """
    host = host or read_host()
    facts = read_facts(cache_file(user_id or host.name))
    if facts is None or not is_of(facts, host):
        thumb = plan_memory(host, num_envs)
        if num_envs is None:
            envs = counted(by_size(host), "environment")
            word = f"{envs} by this machine's size; `trainer autotune` measures whether more pay"
            thumb = replace(thumb, notes=(word, *thumb.notes))
        return _by_rule(thumb)
    found = recommend(replace(facts, host=host))
    return found if num_envs is None else _by_rule(plan_memory(host, num_envs), found.threads, found.device)


def _by_rule(thumb: MemoryPlan, threads: int = 1, device: str = "cpu") -> Recommendation:
    return Recommendation(thumb.num_envs, thumb.workers, threads, device, None, thumb.notes)


def is_of(facts: MachineRates, host: Host) -> bool:
    """Whether `facts` were measured on a machine like `host` with the software of here."""
    return same_machine(facts.host, host) and dict(facts.versions) == versions_here()


def same_machine(one: Host, other: Host) -> bool:
    """Whether they have the same cores and memory: what a kernel keeps for itself differs from one to the next."""
    if one.memory_bytes is None or other.memory_bytes is None:
        return (one.cores, one.memory_bytes) == (other.cores, other.memory_bytes)
    return one.cores == other.cores and math.isclose(one.memory_bytes, other.memory_bytes, rel_tol=KERNELS_SHARE)


def is_busy(load: float | None = None, cores: int | None = None) -> bool:
    """Whether others use so much of this machine that a measurement means little; `load` is the last minute's.

    It is the whole machine's, so it is held against all of its `cores` and not against those of this job.
    """
    return (os.getloadavg()[0] if load is None else load) > BUSY_SHARE * (cores or os.cpu_count() or 1)


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
        rest = {name: value[name] for name in ("accelerator", "accelerator_name", "versions", "measured_at", "wall_s")}
        return MachineRates(
            host=Host(**value["host"]),
            stepping=tuple(Stepping(**one) for one in value["stepping"]),
            inference=tuple(Inference(**one) for one in value["inference"]),
            **rest,
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


_GB = 2**30


@dataclass(frozen=True)
class Profile:
    """The name to go by (`advise` reads it again). `note`: one sentence for the user, or nothing."""

    name: str
    note: str = ""


def find_profile(user_id: str | None, host: Host) -> Profile:
    """The profile that `user_id` names; without one this machine's name's, else the newest that was measured here.

    One that is damaged, or of another machine, is named in the note and not used. Errors: ConfigError for an
    impossible name.
    """
    name = user_id or host.name
    path = cache_file(name)
    facts = read_facts(path)
    if facts is not None and is_of(facts, host):
        return Profile(name)
    other = _newest_of(path.parent, host) if user_id is None else None
    if other is not None:
        return Profile(other, f"going by the profile {other}, which `trainer autotune` measured on this machine")
    if why := why_not(path, facts, host):
        return Profile(name, f"{why}; it is not used: measure anew with `trainer autotune --user-id {name}`")
    if user_id is not None:
        return Profile(name, f"there is no profile {name} yet: `trainer autotune --user-id {name}` makes it")
    return Profile(name)


def why_not(path: Path, facts: MachineRates | None, host: Host) -> str:
    """Why what lies at `path` (`facts`, as it was read) cannot be used on `host`; "" where nothing is there."""
    if facts is None:
        return f"the profile {path} is damaged, or of another version of this program" if path.exists() else ""
    if is_of(facts, host):
        return ""
    if same_machine(facts.host, host):
        then, now = dict(facts.versions), versions_here()
        changed = ", ".join(name for name in now if then.get(name) != now[name])
        return f"the profile {path} was measured with other versions ({changed})"
    return f"the profile {path} was measured on a machine with {_words(facts.host)}, and this one has {_words(host)}"


def _words(host: Host) -> str:
    memory = "" if host.memory_bytes is None else f" and {host.memory_bytes / _GB:.1f} GB"
    return f"{counted(host.cores, 'core')}{memory}"


def _newest_of(folder: Path, host: Host) -> str | None:
    """The name of the newest profile in `folder` that was measured on a machine like `host`."""
    found = []
    for path in folder.glob("autotune-*.json"):
        name = path.stem.removeprefix("autotune-")
        try:
            facts = read_facts(cache_file(name))
        except ConfigError:  # nobody's name: not ours
            continue
        if facts is not None and is_of(facts, host):
            found.append((facts.measured_at, name))
    return max(found)[1] if found else None
