"""Whether a training fits into the memory that its job may use, and the one field to lower where it does not.

It is an estimate. Arrays are counted to the byte, as full as they come to be; what a process takes before them is
rounded up (`need_bytes`), for the training and for the evaluation beside it, and pages that both share count twice:
where it was measured, it counted some 5 % too much. What is let through may still end for memory: see `shortage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from trainer.algorithms.base import Algorithm, NetSize
from trainer.buffers import frames, rollout
from trainer.buffers.contributed import capacity_of, group_capacity_of
from trainer.buffers.rows import Fields, fields_of, with_steps
from trainer.config.find import ALGORITHMS, find
from trainer.config.training import SECTIONS, Training
from trainer.envs.memory import need_bytes
from trainer.envs.spaces import Spaces
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, OutOfMemoryError
from trainer.evaluation.protocol import lanes_a_task
from trainer.machine.shortage import words_of_shortage
from trainer.nets.encoders.base import check_encoders, encoder_for, kept_bytes, kept_spaces

_FLOAT_BYTES = 4
#: A replay of so many bytes has addresses: a program has 2^47 of them on most processors, and more than one array.
_ADDRESSES = 2**46
#: What CUDA takes of the machine's memory, in each process [measured: 1.9 GB, half of it counted elsewhere].
_CUDA_BYTES = 10**9


@dataclass(frozen=True)
class Part:
    """`bytes` taken by `what`; they grow with the `power` of each of `values`, which `training.<field>` has now (none:
    nothing makes them less). `is_in_each`: every rank has all of it.
    """

    what: str
    bytes: int
    field: str = ""
    values: tuple[int, ...] = ()
    power: int = 1
    is_in_each: bool = False

    def lowered(self, to_bytes: float) -> str:
        """What to set so that this part fits into `to_bytes`, cut to two digits; "": no value is that small."""
        share = max(0.0, to_bytes / max(1, self.bytes)) ** (1 / self.power)
        values = [int(value * share) for value in self.values]
        values = [value - value % 10 ** max(0, len(str(value)) - 2) for value in values]
        if not values or min(values) < 1:
            return ""
        value = f"{values[0]:,}" if len(values) == 1 else ", ".join(map(str, values))
        return f"lower training.{self.field} to {value}" + " in a new run" * self.field.startswith(SECTIONS)


def check(
    training: Training, device: str, limit_bytes: int | None, shown: int = 0, ranks: int = 1, here: int = 1, *,
    accepts: bool = False,
) -> None:  # fmt: skip
    """Refuse a training that does not seem to fit into `limit_bytes` of memory (None: unknown). `device`: the type of
    the learner's; the others: see `host_parts`. Errors: ConfigError, also for a replay that cannot be laid out, nets
    that cannot be built, an encoder of what is not seen, frames that no episode has.
    """
    try:
        check_encoders(training.network, spaces_of(training))
        frames.check_frames(_kept(training), training)
        parts = host_parts(training, device, rows_kept(training), shown, ranks, here, accepts=accepts)
    except ConfigError:
        raise
    except ValueError as error:  # of somebody's encoder: what it is to read is known now
        raise ConfigError("encoder.refused", why=error) from error
    replay = _replay(_buffer(training), row_bytes(training))
    if replay.bytes > _ADDRESSES:  # rows that never come take no memory, but addresses
        advice = _advice([replay], replay.bytes - _ADDRESSES)
        raise ConfigError("memory.addresses", need_gb=replay.bytes / 1e9, limit_gb=_ADDRESSES / 1e9, advice=advice)
    each = need_bytes(1, 0, env_bytes=training.env.ENV_BYTES) + training.env.drawing_bytes
    each += _CUDA_BYTES * (device == "cuda")
    need = here * each + evaluation_bytes(training) + sum(part.bytes for part in parts)
    if limit_bytes is not None and need > limit_bytes:
        advice = _advice(parts, need - limit_bytes, f"ask for {_in_gb(need)} or more (slurm.mem)")
        raise ConfigError("memory.too-little", need_gb=need / 1e9, limit_gb=limit_bytes / 1e9, advice=advice)


def check_gpu(training: Training, device: str, limit_bytes: int | None) -> None:
    """Refuse a training that does not fit into the `limit_bytes` of the GPU (None: there is none, or it shares the
    machine's memory). What CUDA itself takes is not counted: about 0.5 GB. Errors: ConfigError.
    """
    parts = gpu_parts(training) if device == "cuda" else []
    need = sum(part.bytes for part in parts)
    if limit_bytes is not None and need > limit_bytes:
        helps = is_on_gpu(training, device) and need - parts[0].bytes <= limit_bytes
        ways = ("set training.replay_on to host" * helps, "take a GPU with more of it (slurm.gpu_type)")
        advice = _advice(parts, need - limit_bytes, *ways)
        raise ConfigError("memory.gpu-too-small", need_gb=need / 1e9, limit_gb=limit_bytes / 1e9, advice=advice)


def shortage(error: BaseException, training: Training, device: str) -> OutOfMemoryError | None:
    """The sentence for an `error` that says that there was no memory; None where it says something else."""
    words = words_of_shortage(error)
    if words is None:
        return None
    is_of_gpu = any(word in words.lower() for word in ("cuda", "cublas", "cudnn"))
    parts = gpu_parts(training) if is_of_gpu else host_parts(training, device, _buffer(training))
    on_host = "set training.replay_on to host, which changes no number" * (is_of_gpu and is_on_gpu(training, device))
    more = "take a GPU with more of it" if is_of_gpu else "ask for more (slurm.mem)"
    advice = _advice(parts, None, on_host, more)
    return OutOfMemoryError("memory.gpu-full" if is_of_gpu else "memory.full", why=words, advice=advice)


def _advice(parts: Sequence[Part], missing: int | None, *ways: str) -> str:
    """The part that takes most, the value that frees what is `missing` (None: half of that part), and other `ways`."""
    most = max(parts, key=lambda part: part.bytes)
    lowered = most.lowered(most.bytes // 2 if missing is None else most.bytes - missing)
    of_most = f"most is for {most.what} = {_in_gb(most.bytes)}; " if most.bytes else ""  # else nothing is known of it
    return of_most + ", or ".join(filter(None, (lowered, *ways)))


def rows_kept(training: Training) -> int:
    """Rows of its replay in the end. Pages of it that no row reaches are never touched, and so take no memory."""
    return min(_buffer(training), training.total_steps)


def row_bytes(training: Training) -> int:
    """One row of the replay."""
    spaces = _kept(training)
    if frames.keeps_frames(spaces, training):
        return _bytes_of(frames.fields_of(spaces)) + frames.POINTER_BYTES
    sums = training.uses_experience and training.off_policy.sums_steps
    return _bytes_of(with_steps(fields_of(spaces)) if sums else fields_of(spaces))


def is_on_gpu(training: Training, device: str) -> bool:
    """Whether its replay takes memory of a GPU that has its own."""
    return training.uses_experience and training.replay_on == "device" and device == "cuda"


def evaluation_bytes(training: Training) -> int:
    """What the process takes that evaluates beside the training."""
    env, tasks = training.env, len(training.env.tasks)
    if not (lanes := tasks * lanes_a_task(tasks, training.evaluation_goals)):
        return 0
    return need_bytes(lanes, 0, tasks, env_bytes=env.ENV_BYTES) + env.drawing_bytes + _encoders(training)[1]


def host_parts(
    training: Training, device: str, rows: int, shown: int = 0, ranks: int = 1, here: int = 1, *, accepts: bool = False
) -> list[Part]:
    """What the training holds in the memory of a node that has `here` of its `ranks`, with `rows` in its replay,
    `shown` rows of demonstrations, and contributors' rows where it `accepts` them.
    """
    on_cpu, kept, envs, shards = device == "cpu", _kept(training), training.num_envs, training.algorithm.shards
    row, new = row_bytes(training) if rows else 0, min(rows, training.checkpoint_interval)
    shown_row = _bytes_of(frames.fields_of(kept)) + frames.POINTER_BYTES  # each frame once
    own, others = rows * (not is_on_gpu(training, device)), 0
    if rows and not frames.keeps_frames(kept, training):  # rings that fill as its own does
        room = capacity_of(training) if accepts else 0
        room += group_capacity_of(training, training.group.share) if training.group.rows else 0
        others = room * len(training.env.tasks) * rows // training.off_policy.buffer_size
    stacks = [spec for spec in spaces_of(training).obs.values() if spec.stack > 1]
    of_env = sum(spec.reach * prod(spec.frame) * np.dtype(spec.dtype).itemsize for spec in stacks)
    gradients = shards + shards // ranks if shards > 1 and (on_cpu or ranks > 1) else 0  # those of all, and its own
    parts = [
        _replay(own, row),
        Part(f"{others:,} rows of contributors and other slots", others * row, "algorithm.buffer_size", (rows,)),
        Part(f"{new:,} new rows on their way to the disk", new * row, "checkpoint_interval", (new,)),
        Part(f"the demonstrations, {shown:,} rows of {shown_row} bytes", shown * shown_row),
        Part(f"{envs:,} environments", envs * of_env + (envs - 1) * training.env.ENV_BYTES, "num_envs", (envs,)),
        *_nets(training, live=on_cpu, saved=2, gathered=gradients),
        _update(training, gathered=True, live=on_cpu),
        Part("a frozen encoder", on_cpu * _encoders(training)[1], is_in_each=True),
    ]
    # What is not in each rank is shared out, or all of it where rank 0 alone has environments and rows.
    share = 1 if training.uses_experience else here / ranks
    parts = [replace(part, bytes=int(part.bytes * (here if part.is_in_each else share))) for part in parts]
    steps = training.rollout // envs  # played, and learned from next; the first rank has all while it saves
    size = int(rollout.bytes_of(kept, steps, envs) * (here + ranks - 1) / ranks) if steps else 0
    what = f"a rollout, {training.rollout:,} steps of {_bytes_of(rollout.fields_of(kept))} bytes"
    return [*parts, Part(what, size, "algorithm.rollout_steps", (steps,))]


def gpu_parts(training: Training) -> list[Part]:
    """What the training holds on a GPU: first a replay, as large as it may come to be."""
    replay = _replay(_buffer(training) * is_on_gpu(training, "cuda"), row_bytes(training))
    of_update = [_update(training, gathered=False, live=True), Part("a frozen encoder", _encoders(training)[1])]
    return [replay, *_nets(training, live=True), *of_update]


def _buffer(training: Training) -> int:
    return training.off_policy.buffer_size if training.uses_experience else 0


def _replay(rows: int, row: int) -> Part:
    return Part(f"the replay, {rows:,} rows of {row} bytes", rows * row, "algorithm.buffer_size", (rows,))


def _nets(training: Training, *, live: bool, saved: int = 0, gathered: int = 0) -> list[Part]:
    """Live: weights, gradients and the optimizer's moments, for critics their targets, and for the actor its moving
    average. Saved: all but the gradients, for the copy that a checkpoint is made from, and the bytes of its files.
    """
    found = []
    for net in _sizes(training):
        kept = 1 + net.moments + net.targets + (bool(training.averaging) and net.field == "network.actor_hidden")
        numbers = live * (kept + 1) + saved * kept + gathered
        what = f"{net.name}, {net.parameters:,} parameters times {numbers} numbers of {_FLOAT_BYTES} bytes"
        found.append(Part(what, net.parameters * numbers * _FLOAT_BYTES, net.field, net.widths, 2, is_in_each=True))
    return found


def _update(training: Training, *, gathered: bool, live: bool) -> Part:
    """Pictures as they were `gathered` (off-policy also of what follows), and where it is made (`live`) the hidden
    layers' values, and what encoders that learn keep of pictures for the way back, or these once as floats.
    """
    hidden, rows = sum(net.values for net in _sizes(training)) * _FLOAT_BYTES, training.learned_at_once
    seen = sum(prod(spec.shape) for spec in _kept(training).obs.values() if frames.is_picture(spec))
    row = seen * gathered * (1 + training.uses_experience) + live * (
        hidden + max(_encoders(training)[0], seen * _FLOAT_BYTES)
    )
    what, steps = f"an update, {rows:,} rows of {row:,} bytes", training.rollout // training.num_envs
    field, value = ("batch_size", rows) if hasattr(training.algorithm, "batch_size") else ("rollout_steps", steps)
    return Part(what, rows * row, f"algorithm.{field}", (value,))


def _encoders(training: Training) -> tuple[int, int]:
    """Bytes: (what those that learn keep of each row for the way back, weights of frozen ones, which are in no net)."""
    network, kept, frozen = training.network, 0, 0
    for key, spec in spaces_of(training).of_policy.obs.items():
        encoder = encoder_for(key, spec, network, None)
        if encoder is not None and network.freezes(key):
            frozen += _FLOAT_BYTES * sum(one.numel() for one in (*encoder.parameters(), *encoder.buffers()))
        elif encoder is not None:
            kept += kept_bytes(encoder, spec)
    return kept, frozen


def _sizes(training: Training) -> Sequence[NetSize]:
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    return algorithm.sizes(training, spaces_of(training))


def _kept(training: Training) -> Spaces:
    return kept_spaces(spaces_of(training), training.network)


def _bytes_of(fields: Fields) -> int:
    return sum(prod(shape) * dtype.itemsize for shape, dtype in fields.values())


def _in_gb(value: float) -> str:
    return f"{value / 1e9:,.2f} GB"
