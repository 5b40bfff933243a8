"""Whether a training fits into the memory that its job may use, and what to lower, by how much, where it does not.

`check` is an estimate. Arrays are counted to the byte, as full as they come to be; what a process takes before them is
rounded up (`need_bytes`), for the training and for the evaluation beside it, and pages that both share count twice:
where it was measured, it counted some 5 % too much. So what is refused by a little might have worked; what is let
through may still end for memory, and `shortage` finds the words for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from trainer.algorithms.base import Algorithm, NetSize
from trainer.buffers import frames, rollout
from trainer.buffers.contributed import capacity_of, group_capacity_of
from trainer.buffers.rows import Fields, fields_of, with_steps
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import Training
from trainer.envs.memory import need_bytes
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, OutOfMemoryError
from trainer.evaluation.protocol import lanes_a_task
from trainer.machine.shortage import words_of_shortage
from trainer.nets.seen import check_seen
from trainer.training.memory_parts import Lever, Part, in_gb, largest, two_digits
from trainer.training.memory_pictures import (
    frame_bytes,
    frozen_encoders,
    kept_of,
    last_frames,
    lowered_by,
    of_num_envs,
    pictures,
    smaller,
)

_FLOAT_BYTES = 4
#: A replay of so many bytes has addresses: a program has 2^47 of them on most processors, and more than one array.
_ADDRESSES = 2**46
#: The field that an actor's size goes with.
_ACTOR = "network.actor_hidden"
#: What CUDA takes of the machine's memory, in each process [measured: `memory gb` of `guide` in bench/results/gpu.csv
#: is 1.9, half of which is counted elsewhere].
_CUDA_BYTES = 10**9


def check(
    training: Training,
    device: str,
    limit_bytes: int | None,
    shown: int = 0,
    ranks: int = 1,
    here: int = 1,
    *,
    accepts: bool = False,
) -> None:
    """Refuse a training that does not seem to fit into `limit_bytes` of memory (None: unknown, so nothing is refused
    but a replay that no program has addresses for).

    `device`: the type of the learner's; `shown`: rows of demonstrations beside its own; `here`: how many of its `ranks`
    share that memory: each has the nets, and a part of the rest; `accepts`: contributors' rows. Errors: ConfigError,
    also for nets that cannot be built, an encoder of what is not seen, frames that no episode has.
    """
    try:
        check_seen(training, spaces_of(training))
        _check_frames(training)
        _check_addresses(training)
        rows = rows_kept(training)
        parts = [*host_parts(training, device, rows), *others_parts(training, rows, accepts=accepts)]
        parts += _demos(training, shown)
        parts = [*shared_out(training, parts, ranks, here), *of_shards(training, device, ranks, here)]
    except ValueError as error:  # of an encoder: what it is to read is known now
        raise ConfigError(str(error)) from error
    need = here * (need_bytes(1, 0, env_bytes=training.env.ENV_BYTES) + training.env.drawing_bytes)
    need += evaluation_bytes(training) + (here * _CUDA_BYTES if device == "cuda" else 0)
    need += sum(part.bytes for part in parts)
    if limit_bytes is None or need <= limit_bytes:
        return
    most = largest(parts)
    lowered = most.lowered(limit_bytes - (need - most.bytes)) if most else None
    raise ConfigError(
        f"this training needs about {in_gb(need)} of memory, this job or machine has {in_gb(limit_bytes)}"
        + (f": {most}; " if most else "; ")
        + (f"{lowered}, or " if lowered else "")
        + f"ask for {in_gb(need)} or more (slurm.mem)"
    )


def _check_frames(training: Training) -> None:
    """Also where only an environment itself knows that it gives pictures. Errors: ValueError."""
    spaces = kept_of(training)
    if training.uses_experience and frames.keeps_frames(spaces, training):
        reach = max(spec.reach for spec in spaces.obs.values())
        why = training.off_policy.short_of_frames(len(training.env.tasks), training.num_envs, reach)
        if why is not None:
            raise ValueError(f"training.algorithm.buffer_size: {why}")


def _check_addresses(training: Training) -> None:
    """A replay is laid out whole, though rows that never come take no memory. Errors: ConfigError."""
    rows, row = (training.off_policy.buffer_size, row_bytes(training)) if training.uses_experience else (0, 0)
    if rows * row <= _ADDRESSES:
        return
    most = two_digits(_ADDRESSES // row)
    raise ConfigError(
        f"training.algorithm.buffer_size is {rows:,}: rows of {row} bytes, together more than a program has addresses "
        "for; "
        + (
            f"a run of {training.total_steps:,} steps fills no more than {training.total_steps:,}"
            if training.total_steps < most
            else f"set {most:,} or less"
        )
    )


def shared_out(training: Training, parts: Sequence[Part], ranks: int, here: int) -> list[Part]:
    """`parts` of one process, as the `here` ranks of a node have them together, of `ranks` in all: of what is not in
    each, their share, or all of it where rank 0 alone has environments and rows.
    """
    own = 1 if training.uses_experience else here / ranks
    return [replace(part, bytes=int(part.bytes * (here if part.is_in_each else own))) for part in parts]


def of_shards(training: Training, device: str, ranks: int, here: int) -> list[Part]:
    """What shards take beside what one process without them has: the `here` ranks of a node hold the gradients of all,
    and their own before; the first has the rollouts of the others while it saves.
    """
    shards, nets = training.algorithm.shards, _sizes(training)
    if shards == 1 or not nets or (ranks == 1 and device != "cpu"):
        return []
    rows = here * (shards + shards // ranks)
    widest = max(nets, key=lambda net: net.parameters)
    others = sum(net.parameters for net in nets) - widest.parameters
    size = rows * (others + widest.parameters) * _FLOAT_BYTES
    lever = Lever(widest.field, widest.widths, 2, rows * others * _FLOAT_BYTES)
    gradients = Part(
        f"gradients of {shards} shards, {rows:,} times {others + widest.parameters:,} numbers", size, (lever,)
    )
    saved = [
        replace(part, bytes=part.bytes * (ranks - 1) // ranks, what=f"{part.what}, to save it")
        for part in _rollout(training)
    ]
    return [gradients, *saved]


def shortage(error: BaseException, training: Training, device: str) -> OutOfMemoryError | None:
    """The sentence for an `error` that says that there was no memory; None where it says something else."""
    words = words_of_shortage(error)
    if words is None:
        return None
    on_gpu = any(word in words.lower() for word in ("cuda", "cublas", "cudnn"))
    parts = (
        gpu_parts(training)
        if on_gpu
        else host_parts(training, device, training.off_policy.buffer_size if training.uses_experience else 0)
    )
    most = largest(parts)
    lowered = most.lowered(most.bytes / 2) if most else None
    return OutOfMemoryError(
        f"{'CUDA ' * on_gpu}out of memory ({words}): "
        + (f"most is for {most}; " if most else "")
        + "set training.replay_on to host, which changes no number, or " * (on_gpu and is_on_gpu(training, device))
        + (f"{lowered}, which halves it, or " if lowered else "")
        + ("take a GPU with more of it" if on_gpu else "ask for more (slurm.mem)")
        + "; the last checkpoint is good"
    )


def rows_kept(training: Training) -> int:
    """Rows of its replay in the end. Pages of it that no row reaches are never touched, and so take no memory."""
    return min(training.off_policy.buffer_size, training.total_steps) if training.uses_experience else 0


def row_bytes(training: Training) -> int:
    """One row of the replay."""
    spaces = kept_of(training)
    if frames.keeps_frames(spaces, training):
        return _bytes_of(frames.fields_of(spaces)) + frames.POINTER_BYTES
    fields = fields_of(spaces)
    sums = training.uses_experience and training.off_policy.sums_steps
    return _bytes_of(with_steps(fields) if sums else fields)


def host_parts(training: Training, device: str, rows: int) -> list[Part]:
    """What the training holds in the machine's memory, with `rows` in its replay."""
    environments, on_cpu = (training.num_envs - 1) * training.env.ENV_BYTES, device == "cpu"
    parts = [
        *([] if is_on_gpu(training, device) else _replay(training, rows)),
        *_new_rows(training, rows),
        *_rollout(training),
        Part(f"{training.num_envs:,} environments", environments, (of_num_envs(training),)),
        *last_frames(training),
        *_nets(training, live=on_cpu, saved=True),
        *pictures(training, gathered=True, live=on_cpu),
    ]
    return [*parts, *_batch(training), *frozen_encoders(training)] if on_cpu else parts


def others_parts(training: Training, rows: int, *, accepts: bool) -> list[Part]:
    """The rings of contributors' rows (`accepts`) and of other slots', beside `rows` of its own: as much of them as of
    its own replay. Where frames are kept there are none.
    """
    if not rows or frames.keeps_frames(kept_of(training), training):
        return []
    rings = {"contributors'": capacity_of(training) if accepts else 0}
    rings["other slots'"] = group_capacity_of(training, training.group.share) if training.group.rows else 0
    row, tasks, buffer = row_bytes(training), len(training.env.tasks), training.off_policy.buffer_size
    lever = Lever("algorithm.buffer_size", (rows,))
    counts = {whose: capacity * tasks * rows // buffer for whose, capacity in rings.items()}
    return [Part(f"{whose} {n:,} rows of {row} bytes", n * row, (lever,)) for whose, n in counts.items() if n]


def gpu_parts(training: Training) -> list[Part]:
    """What the training holds on a GPU; a replay as large as it may come to be."""
    nets = _nets(training, live=True, saved=False)
    replay = _replay(training, training.off_policy.buffer_size) if is_on_gpu(training, "cuda") else []
    seen = [*pictures(training, gathered=False, live=True), *frozen_encoders(training)]
    return [*replay, *nets, *_batch(training), *seen]


def is_on_gpu(training: Training, device: str) -> bool:
    """Whether its replay takes memory of a GPU that has its own."""
    return training.uses_experience and training.replay_on == "device" and device == "cuda"


def evaluation_bytes(training: Training) -> int:
    """What the process takes that evaluates beside the training."""
    tasks = len(training.env.tasks)
    lanes = tasks * lanes_a_task(tasks, training.evaluation_goals)
    if not lanes:
        return 0
    return (
        sum(part.bytes for part in frozen_encoders(training))
        + need_bytes(lanes, 0, tasks, env_bytes=training.env.ENV_BYTES)
        + training.env.drawing_bytes
    )


def _nets(training: Training, *, live: bool, saved: bool) -> list[Part]:
    """Live: weights, gradients and the optimizer's moments, for critics their targets, and for the actor its moving
    average. Saved: all but the gradients, twice: the copy that a checkpoint is made from, and the bytes of its files.
    """
    found = []
    for net in _sizes(training):
        is_averaged = bool(training.averaging) and net.field == _ACTOR
        kept = 1 + net.moments + net.targets + is_averaged
        numbers = live * (kept + 1) + saved * 2 * kept
        what = f"{net.name}, {net.parameters:,} parameters times {numbers} numbers of {_FLOAT_BYTES} bytes"
        found.append(Part(what, net.parameters * numbers * _FLOAT_BYTES, (Lever(net.field, net.widths, 2),), True))
    return found


def _replay(training: Training, rows: int) -> list[Part]:
    """The ring."""
    row = row_bytes(training) if rows else 0
    levers = (Lever("algorithm.buffer_size", (rows,)), *smaller(training, rows * (row - frame_bytes(training))))
    return [Part(f"the replay, {rows:,} rows of {row} bytes", rows * row, levers)] if rows else []


def _new_rows(training: Training, rows: int) -> list[Part]:
    """The copy of what is new in the ring from which a checkpoint is written."""
    size = min(rows, training.checkpoint_interval) * (row_bytes(training) if rows else 0)
    new = Lever("checkpoint_interval", (min(rows, training.checkpoint_interval),))
    return [Part(f"{new.values[0]:,} new rows on their way to the disk", size, (new,))] if rows else []


def _demos(training: Training, rows: int) -> list[Part]:
    """Of demonstrations each frame is kept once, whatever is kept of the run's own rows."""
    row = _bytes_of(frames.fields_of(kept_of(training))) + frames.POINTER_BYTES
    levers = tuple(smaller(training, rows * (row - frame_bytes(training))))
    return [Part(f"the demonstrations, {rows:,} rows of {row} bytes", rows * row, levers)] if rows else []


def _batch(training: Training) -> list[Part]:
    """The hidden layers' values, which are kept for the way back."""
    values, rows = sum(net.values for net in _sizes(training)), training.learned_at_once
    what = f"an update, {rows:,} rows of {values:,} hidden values"
    return [Part(what, rows * values * _FLOAT_BYTES, (Lever(*lowered_by(training)),))] if values and rows else []


def _rollout(training: Training) -> list[Part]:
    """What was played and is learned from next."""
    if not training.rollout:
        return []
    spaces, steps = kept_of(training), training.rollout // training.num_envs
    row, size = _bytes_of(rollout.fields_of(spaces)), rollout.bytes_of(spaces, steps, training.num_envs)
    pictures = size * frame_bytes(training) // row
    levers = (Lever("algorithm.rollout_steps", (steps,)), *smaller(training, size - pictures))
    return [Part(f"a rollout, {training.rollout:,} steps of {row} bytes", size, levers)]


def _bytes_of(fields: Fields) -> int:
    """One row of them."""
    return sum(prod(shape) * dtype.itemsize for shape, dtype in fields.values())


def _sizes(training: Training) -> Sequence[NetSize]:
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    return algorithm.sizes(training, spaces_of(training))
