"""How many environments a machine has room for, when its owner is to keep some of it.

The rule, for a machine of C cores and M GB of memory (`by_size`):

    the smallest of  2 (C - 1)  and  1 + (M - 4) / 4, rounded  and  16; at least 1

One core and 4 GB stay with the owner, and 4 GB of what the machine has, not of what is free: what is free changes with
every open window, and the number should not. Each core that is left has two environments: the other is stepped while
the first waits. The 4 GB an environment are no measurement (one takes 0.02 GB, a worker process 0.3 GB): memory stands
for how much of a machine its owner can do without, and with 4 GB the numbers are those of the user guide's table
(8 GB: 2 to 3, 16 GB: 4 to 6, 32 GB: 6 to 8, a desktop: 8 to 16). More of either never gives less, one core more gives
at most two environments more, 4 GB more give one.

A shortage of free memory is a second cap (`fitted`), by what environments and workers were measured to need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from anchorleg.words import counted
from trainer.config.suites import Metaworld
from trainer.machine.host import Host

#: What stays with the owner of a laptop.
OWNERS_CORES = 1
OWNERS_BYTES = 4 * 2**30
#: The rule's two shares, see above.
ENVS_A_CORE = 2
BYTES_AN_ENV = 4 * 2**30
#: Nobody is given more than this without asking: it is the end of the user guide's table.
MOST_ENVS = 16
#: The program itself with torch and the simulator loaded [measured: 0.45 GB].
_PROGRAM_BYTES = 500 * 2**20
#: An environment worker with the simulator loaded, before its first environment [measured: 0.25 GB].
_WORKER_BYTES = 300 * 2**20
#: One environment of Meta-World, which is what actors step.
_ENV_BYTES = Metaworld.ENV_BYTES
_GB = 2**30


@dataclass(frozen=True)
class MemoryPlan:
    """`workers` 0: the environments are stepped in the program itself. `notes` are sentences for the user."""

    num_envs: int
    workers: int
    notes: tuple[str, ...] = ()


def need_bytes(num_envs: int, workers: int, tasks: int = 1, *, env_bytes: int = _ENV_BYTES) -> int:
    """Memory that so many environments of `env_bytes` and workers take, with the program itself.

    With more tasks than environments each process comes to keep an instance of every task that its environments walk
    through (`trainer.envs.episodes`) [measured: 8 environments of 50 tasks take 1.27 GB, of 10 tasks 0.41 GB].
    """
    processes = max(1, workers)
    walks = math.gcd(num_envs, tasks)  # `scheduled_task`: environment i plays the tasks congruent to i modulo this
    visited = min(walks, -(-num_envs // processes)) * tasks // walks
    return _PROGRAM_BYTES + workers * _WORKER_BYTES + max(num_envs, processes * visited) * env_bytes


def usable_cores(host: Host) -> int:
    """Cores that are not the owner's, at least one."""
    return max(1, host.cores - OWNERS_CORES)


def spare_bytes(host: Host) -> int | None:
    """Memory of the machine that is not the owner's, free or not; None: unknown."""
    return None if host.memory_bytes is None else max(0, host.memory_bytes - OWNERS_BYTES)


def by_size(host: Host) -> int:
    """Environments for a machine of this size, whatever else it does at the moment."""
    spare = spare_bytes(host)
    allowed = [ENVS_A_CORE * usable_cores(host), MOST_ENVS]
    if spare is not None:
        # Rounded: a machine that is sold with 32 GB reports some 31.
        allowed.append(1 + int(spare / BYTES_AN_ENV + 0.5))
    return min(allowed)


def plan_memory(host: Host, num_envs: int | None = None) -> MemoryPlan:
    """Environments and workers for `host`. `num_envs`: as the user wants it, which always wins."""
    envs = by_size(host) if num_envs is None else num_envs
    return fitted(host, MemoryPlan(envs, usable_cores(host)), keeps_envs=num_envs is not None)


def fitted(host: Host, wanted: MemoryPlan, *, keeps_envs: bool = False) -> MemoryPlan:
    """`wanted`, as far as cores and memory allow: the owner's share first, then what is free at the moment.

    Workers give way before environments. `keeps_envs`: environments never do, and a sentence warns.
    """
    envs = wanted.num_envs
    # Below two environments a worker costs more in messages than it saves.
    found = MemoryPlan(envs, _more_than_one(min(wanted.workers, usable_cores(host), envs // 2)), wanted.notes)
    spare, free = spare_bytes(host), host.free_bytes
    if spare is not None:
        found = _within(spare, found, keeps_envs=keeps_envs)
    if free is not None:
        before, found = found, _within(free, found, keeps_envs=keeps_envs)
        if found != before:
            what = _instead(found, before)
            only = f"only {free / _GB:.1f} GB of memory are free now"
            found = replace(found, notes=(*found.notes, f"{only}: {what}; close other programs for more"))
    need = need_bytes(found.num_envs, found.workers)
    if keeps_envs and free is not None and need > free:
        words = f"{free / _GB:.1f} GB are free, so the machine may become slow"
    elif keeps_envs and spare is not None and need > spare:
        words = f"less than {OWNERS_BYTES // _GB} GB stay yours"
    else:
        return found
    needed = f"about {need / _GB:.1f} GB of memory are needed for {counted(envs, 'environment')}"
    return MemoryPlan(envs, found.workers, (f"{needed}, {words}",))


def _within(limit_bytes: int, wanted: MemoryPlan, *, keeps_envs: bool) -> MemoryPlan:
    # Held against as many environments as there may be, so that more of them never leave fewer workers.
    most = need_bytes(max(wanted.num_envs, MOST_ENVS), 0)
    workers = _more_than_one(min(wanted.workers, max(0, limit_bytes - most) // _WORKER_BYTES))
    envs = wanted.num_envs if keeps_envs else min(wanted.num_envs, max(1, (limit_bytes - _PROGRAM_BYTES) // _ENV_BYTES))
    return replace(wanted, num_envs=envs, workers=workers)


def _more_than_one(workers: int) -> int:
    """One worker does what the program could do itself, and costs its memory."""
    return workers if workers > 1 else 0


def _instead(found: MemoryPlan, wanted: MemoryPlan) -> str:
    if found.num_envs < wanted.num_envs:
        return f"{counted(found.num_envs, 'environment')} instead of {wanted.num_envs}"
    return f"{counted(found.workers, 'worker') if found.workers else 'no workers'} instead of {wanted.workers}"


def workers_for(tasks: int, wanted: MemoryPlan, host: Host) -> int:
    """As many of the `wanted` workers as there is memory for where the policy plays `tasks`; 0: in the program.

    `host` is looked at with this program loaded already. The number of environments stays. A user who asked for so
    many that the owner's share is gone anyway keeps the workers, as long as there is memory at all.
    """
    limits = []
    if host.free_bytes is not None:
        limits.append(host.free_bytes + need_bytes(0, 0))
    spare = spare_bytes(host)
    if spare is not None and need_bytes(wanted.num_envs, wanted.workers) <= spare:
        limits.append(spare)
    if not limits:
        return wanted.workers
    fitting = (n for n in range(wanted.workers, 1, -1) if need_bytes(wanted.num_envs, n, tasks) <= min(limits))
    return next(fitting, 0)
