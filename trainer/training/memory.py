"""Whether a training fits into the memory that its job may use, and what to lower, by how much, where it does not.

`check` counts only what is needed for sure, so what it refuses could not have worked. What it lets through may still
end for memory; `shortage` finds the words for that.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from math import prod

from torch import nn

from trainer.algorithms.mtsac.learner import actor_and_critics
from trainer.buffers.rows import fields_of
from trainer.config import IDENTITY_FIELDS, Training
from trainer.envs.memory import need_bytes
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, OutOfMemoryError
from trainer.evaluation.protocol import lanes_a_task

_FLOAT_BYTES = 4
_GB = 1e9
#: What libraries say when they get no memory: torch's allocators for the CPU and for CUDA, the C library, cuBLAS.
_WORDS = ("can't allocate memory", "out of memory", "cannot allocate memory", "alloc_failed")
#: As much of a library's own words as a sentence can bear.
_QUOTE = 160


@dataclass(frozen=True)
class Part:
    """`bytes` that are taken by `what`; they grow with the `power` of each of `values`, which `field` has now."""

    what: str
    bytes: int
    field: str
    values: tuple[int, ...]
    power: int = 1

    def __str__(self) -> str:
        return f"{self.what} = {_gb(self.bytes)}"

    def lowered(self, to_bytes: float) -> str | None:
        """What to set so that this part fits into `to_bytes`, cut to two digits; None: it cannot be that small."""
        share = max(0.0, to_bytes / self.bytes) ** (1 / self.power)
        values = [_two_digits(int(value * share)) for value in self.values]
        if min(values) < 1:
            return None
        value = ", ".join(map(str, values)) if len(values) > 1 else f"{values[0]:,}"
        return f"lower training.{self.field} to {value}" + " in a new run" * (self.field in IDENTITY_FIELDS)


def check(training: Training, device: str, limit_bytes: int | None) -> None:
    """Refuse a training that cannot fit into `limit_bytes` of memory (None: unknown, so nothing is refused).

    `device`: the type of the learner's. Errors: ConfigError.
    """
    # Pages of the replay that no row reaches are never touched, and so take no memory.
    rows = min(training.buffer_size, training.total_steps)
    parts = host_parts(training, device, rows)
    need = need_bytes(1, 0) + evaluation_bytes(training) + sum(part.bytes for part in parts)
    if limit_bytes is None or need <= limit_bytes:
        return
    largest = max(parts, key=lambda part: part.bytes)
    lowered = largest.lowered(limit_bytes - (need - largest.bytes))
    raise ConfigError(
        f"this training needs {_gb(need)} of memory at least, this job or machine has {_gb(limit_bytes)}: {largest}; "
        + (f"{lowered}, or " if lowered else "")
        + f"ask for {_gb(need)} or more (slurm.mem)"
    )


def shortage(error: BaseException, training: Training, device: str) -> OutOfMemoryError | None:
    """The sentence for an `error` that says that there was no memory; None where it says something else."""
    words = " ".join(str(error).split())
    is_plain = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not is_plain and not (isinstance(error, RuntimeError) and any(word in words.lower() for word in _WORDS)):
        return None
    on_gpu = any(word in words.lower() for word in ("cuda", "cublas"))
    parts = gpu_parts(training) if on_gpu else host_parts(training, device, training.buffer_size)
    largest = max(parts, key=lambda part: part.bytes)
    lowered = largest.lowered(largest.bytes / 2)
    return OutOfMemoryError(
        f"{'CUDA ' * on_gpu}out of memory ({words[:_QUOTE] or type(error).__name__}): most is for {largest}; "
        + (f"{lowered}, which halves it, or " if lowered else "")
        + ("take a GPU with more of it" if on_gpu else "ask for more (slurm.mem)")
        + "; the last checkpoint is good"
    )


def row_bytes(training: Training) -> int:
    """One row of the replay."""
    return sum(prod(shape) * dtype.itemsize for shape, dtype in fields_of(spaces_of(training)).values())


def host_parts(training: Training, device: str, rows: int) -> list[Part]:
    """What the training holds in the machine's memory, with `rows` in its replay."""
    environments, row = need_bytes(training.num_envs, 0) - need_bytes(1, 0), row_bytes(training)
    parts = [
        Part(f"the replay, {rows:,} rows of {row} bytes", rows * row, "buffer_size", (rows,)),
        Part(f"{training.num_envs:,} environments", environments, "num_envs", (training.num_envs,)),
        *_nets(training, live=device == "cpu", saved=True),
    ]
    return [*parts, _batch(training)] if device == "cpu" else parts


def gpu_parts(training: Training) -> list[Part]:
    """What the training holds on a GPU."""
    return [*_nets(training, live=True, saved=False), _batch(training)]


def evaluation_bytes(training: Training) -> int:
    """What the process takes that evaluates beside the training."""
    tasks = len(training.tasks)
    lanes = tasks * lanes_a_task(tasks, training.evaluation_goals)
    return need_bytes(lanes, 0, tasks) if lanes else 0


def _nets(training: Training, *, live: bool, saved: bool) -> list[Part]:
    """Live: weights, gradients and Adam's two moments, and for critics their targets. Saved: all but the gradients,
    twice: the copy that a checkpoint is made from, and the bytes of its files.
    """
    found = []
    actor, critics = sizes(training)
    for name, field, count, targets in (
        ("the actor", "actor_hidden", actor, 0),
        ("the critics", "critic_hidden", critics, 1),
    ):
        numbers = live * (4 + targets) + saved * 2 * (3 + targets)
        what = f"{name}, {count:,} parameters times {numbers} numbers of {_FLOAT_BYTES} bytes"
        found.append(Part(what, count * numbers * _FLOAT_BYTES, field, getattr(training, field), 2))
    return found


def _batch(training: Training) -> Part:
    """The hidden layers' values, which both critics keep for the way back."""
    rows, values = training.batch_size, 2 * sum(training.critic_hidden)
    what = f"an update, {rows:,} rows of {values:,} hidden values"
    return Part(what, rows * values * _FLOAT_BYTES, "batch_size", (rows,))


def sizes(training: Training) -> tuple[int, int]:
    """How many numbers the actor and the critics learn."""
    actor, critics = actor_and_critics(training, spaces_of(training), None)
    return _count(actor), _count(critics)


def _count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def _two_digits(value: int) -> int:
    """`value` cut to two digits: 1,234 → 1,200."""
    place: int = 10 ** max(0, len(str(value)) - 2)
    return value // place * place


def _gb(value: float) -> str:
    return f"{value / _GB:,.2f} GB"
