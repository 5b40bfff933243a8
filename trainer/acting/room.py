"""How many environments a machine has room for, when its owner is to keep some of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: What stays with the owner of a laptop.
OWNERS_CORES = 1
OWNERS_BYTES = 4 * 2**30
#: The program itself with torch and the simulator loaded [measured: 0.45 GB].
_PROGRAM_BYTES = 500 * 2**20
#: An environment worker with the simulator loaded, before its first environment [measured: 0.25 GB].
_WORKER_BYTES = 300 * 2**20
#: One environment: 18 MiB for its instance, and the remembered resets of its task.
_ENV_BYTES = 20 * 2**20
#: Environments a worker steps: enough that the messages cost little, few enough that episodes end often.
_ENVS_A_WORKER = 8


@dataclass(frozen=True)
class Room:
    """`workers` 0: the environments are stepped in the program itself."""

    num_envs: int
    workers: int


def need_bytes(num_envs: int, workers: int, tasks: int = 1) -> int:
    """Memory that so many environments and workers take, with the program itself.

    With more tasks than environments each process comes to keep an instance of every task that its environments walk
    through (`trainer.envs.pool`) [measured: 8 environments of 50 tasks take 1.27 GB, of 10 tasks 0.41 GB].
    """
    processes = max(1, workers)
    walks = math.gcd(num_envs, tasks)  # `scheduled_task`: environment i plays the tasks congruent to i modulo this
    visited = min(walks, -(-num_envs // processes)) * tasks // walks
    return _PROGRAM_BYTES + workers * _WORKER_BYTES + max(num_envs, processes * visited) * _ENV_BYTES


def workers_for(tasks: int, wanted: Room, free_bytes: int | None) -> int:
    """As many of the `wanted` workers as leave the owner's share where the policy plays `tasks`; 0: in the program.

    `free_bytes`: with this program loaded already. The number of environments stays. Whoever asked for so many that the
    owner's share is gone anyway keeps the workers, as long as there is memory at all.
    """
    if free_bytes is None:
        return wanted.workers
    allowed = free_bytes - OWNERS_BYTES + need_bytes(0, 0)
    if need_bytes(wanted.num_envs, wanted.workers) > allowed:
        allowed += OWNERS_BYTES
    fitting = (n for n in range(wanted.workers, 1, -1) if need_bytes(wanted.num_envs, n, tasks) <= allowed)
    return next(fitting, 0)


def room(cores: int, free_bytes: int | None, num_envs: int | None = None) -> Room:
    """Environments and workers for `cores` and `free_bytes` (None: unknown). `num_envs`: as the user wants it.

    Where the owner's share is not free even without us it is one environment.
    """
    usable = max(1, cores - OWNERS_CORES)
    if num_envs is None and free_bytes is not None and need_bytes(_ENVS_A_WORKER, 0) > free_bytes - OWNERS_BYTES:
        return Room(1, 0)
    if free_bytes is not None:
        a_worker = _WORKER_BYTES + _ENVS_A_WORKER * _ENV_BYTES
        usable = max(1, min(usable, (free_bytes - OWNERS_BYTES) // a_worker))
    envs = num_envs if num_envs is not None else _ENVS_A_WORKER * usable
    workers = min(usable, envs // 2)  # below two environments a worker costs more in messages than it saves
    return Room(envs, workers if workers > 1 else 0)
