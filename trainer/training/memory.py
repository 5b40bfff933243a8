"""Whether a training fits into the memory that its job may use, and what to lower, by how much, where it does not.

`check` counts only what is needed for sure, so what it refuses could not have worked. What it lets through may still
end for memory; `shortage` finds the words for that.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from trainer.algorithms.base import Algorithm, NetSize
from trainer.buffers import rollout
from trainer.buffers.rows import Fields, fields_of, with_steps
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import SECTIONS, Training
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
        return f"lower training.{self.field} to {value}" + " in a new run" * self.field.startswith(SECTIONS)


def check(training: Training, device: str, limit_bytes: int | None) -> None:
    """Refuse a training that cannot fit into `limit_bytes` of memory (None: unknown, so nothing is refused).

    `device`: the type of the learner's. Errors: ConfigError.
    """
    parts = host_parts(training, device, rows_kept(training))
    need = need_bytes(1, 0, env_bytes=training.env.ENV_BYTES) + training.env.drawing_bytes + evaluation_bytes(training)
    need += sum(part.bytes for part in parts)
    if limit_bytes is None or need <= limit_bytes:
        return
    largest = _largest(parts)
    lowered = largest.lowered(limit_bytes - (need - largest.bytes)) if largest else None
    raise ConfigError(
        f"this training needs {_gb(need)} of memory at least, this job or machine has {_gb(limit_bytes)}"
        + (f": {largest}; " if largest else "; ")
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
    parts = (
        gpu_parts(training)
        if on_gpu
        else host_parts(training, device, training.off_policy.buffer_size if training.uses_experience else 0)
    )
    largest = _largest(parts)
    lowered = largest.lowered(largest.bytes / 2) if largest else None
    return OutOfMemoryError(
        f"{'CUDA ' * on_gpu}out of memory ({words[:_QUOTE] or type(error).__name__}): "
        + (f"most is for {largest}; " if largest else "")
        + (f"{lowered}, which halves it, or " if lowered else "")
        + ("take a GPU with more of it" if on_gpu else "ask for more (slurm.mem)")
        + "; the last checkpoint is good"
    )


def rows_kept(training: Training) -> int:
    """Rows of its replay in the end. Pages of it that no row reaches are never touched, and so take no memory."""
    return min(training.off_policy.buffer_size, training.total_steps) if training.uses_experience else 0


def row_bytes(training: Training) -> int:
    """One row of the replay."""
    fields = fields_of(spaces_of(training))
    sums = training.uses_experience and training.off_policy.sums_steps
    return _bytes_of(with_steps(fields) if sums else fields)


def host_parts(training: Training, device: str, rows: int) -> list[Part]:
    """What the training holds in the machine's memory, with `rows` in its replay."""
    environments, row = (training.num_envs - 1) * training.env.ENV_BYTES, row_bytes(training)
    replay = Part(f"the replay, {rows:,} rows of {row} bytes", rows * row, "algorithm.buffer_size", (rows,))
    parts = [
        *([replay] if rows else []),
        *_rollout(training),
        Part(f"{training.num_envs:,} environments", environments, "num_envs", (training.num_envs,)),
        *_nets(training, live=device == "cpu", saved=True),
    ]
    return [*parts, *_batch(training)] if device == "cpu" else parts


def gpu_parts(training: Training) -> list[Part]:
    """What the training holds on a GPU."""
    return [*_nets(training, live=True, saved=False), *_batch(training)]


def evaluation_bytes(training: Training) -> int:
    """What the process takes that evaluates beside the training."""
    tasks = len(training.env.tasks)
    lanes = tasks * lanes_a_task(tasks, training.evaluation_goals)
    if not lanes:
        return 0
    return need_bytes(lanes, 0, tasks, env_bytes=training.env.ENV_BYTES) + training.env.drawing_bytes


def _nets(training: Training, *, live: bool, saved: bool) -> list[Part]:
    """Live: weights, gradients and the optimizer's moments, and for critics their targets. Saved: all but the
    gradients, twice: the copy that a checkpoint is made from, and the bytes of its files.
    """
    found = []
    for net in _sizes(training):
        kept = 1 + net.moments + net.targets
        numbers = live * (kept + 1) + saved * 2 * kept
        what = f"{net.name}, {net.parameters:,} parameters times {numbers} numbers of {_FLOAT_BYTES} bytes"
        found.append(Part(what, net.parameters * numbers * _FLOAT_BYTES, net.field, net.widths, 2))
    return found


def _batch(training: Training) -> list[Part]:
    """The hidden layers' values, which are kept for the way back."""
    values, rows = sum(net.values for net in _sizes(training)), training.learned_at_once
    what = f"an update, {rows:,} rows of {values:,} hidden values"
    return [Part(what, rows * values * _FLOAT_BYTES, *_lowered_by(training))] if values and rows else []


def _rollout(training: Training) -> list[Part]:
    """What was played and is learned from next."""
    if not training.rollout:
        return []
    row = _bytes_of(rollout.fields_of(spaces_of(training)))
    what = f"a rollout, {training.rollout:,} steps of {row} bytes"
    field = "algorithm.rollout_steps"
    return [Part(what, training.rollout * row, field, (training.rollout // training.num_envs,))]


def _lowered_by(training: Training) -> tuple[str, tuple[int, ...]]:
    """(the field that says how many rows an update has, what it is)."""
    if "batch_size" in type(training.algorithm).model_fields:
        return "algorithm.batch_size", (training.learned_at_once,)
    return "algorithm.rollout_steps", (training.rollout // training.num_envs,)


def _bytes_of(fields: Fields) -> int:
    """One row of them."""
    return sum(prod(shape) * dtype.itemsize for shape, dtype in fields.values())


def _largest(parts: Sequence[Part]) -> Part | None:
    """None where nothing is known of what takes the memory."""
    return max((part for part in parts if part.bytes), key=lambda part: part.bytes, default=None)


def _sizes(training: Training) -> Sequence[NetSize]:
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    return algorithm.sizes(training, spaces_of(training))


def _two_digits(value: int) -> int:
    """`value` cut to two digits: 1,234 → 1,200."""
    place: int = 10 ** max(0, len(str(value)) - 2)
    return value // place * place


def _gb(value: float) -> str:
    return f"{value / _GB:,.2f} GB"
