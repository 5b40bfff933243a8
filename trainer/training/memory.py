"""Whether a training fits into the memory that its job may use, and the one field to lower where it does not.

It is an estimate: arrays as full as they come to be, and what a process takes before them, rounded up (`need_bytes`),
for the training and for the evaluation beside it. What is let through may still end for memory: see `shortage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

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
#: What CUDA takes of the machine's memory, in each process [measured: 1.9 GB, half of it counted elsewhere].
_CUDA_BYTES = 10**9
_MORE_GPU = "use a GPU with more memory (slurm.gpu_type)"


@dataclass(frozen=True)
class Part:
    """`bytes` taken by `what`; they grow with the `power` of each of `values`, which `training.<field>` has now (none:
    nothing makes them less).
    """

    what: str
    bytes: int
    field: str = ""
    values: tuple[int, ...] = ()
    power: int = 1

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
    training: Training, device: str, limit_bytes: int | None, gpu_bytes: int | None = None,
    ranks: int = 1, here: int = 1, *, accepts: bool = False,
) -> None:  # fmt: skip
    """Refuse a training that does not seem to fit into `limit_bytes` of the machine's memory, or into `gpu_bytes` of
    its GPU's, where CUDA's own 0.5 GB are not counted (None: unknown, or there is none). `device`: the type of the
    learner's; the others: see `host_parts`. Errors: ConfigError, also for a replay that cannot be laid out, nets that
    cannot be built, an encoder of what is not seen, frames that no episode has.
    """
    try:
        check_encoders(training.network, spaces_of(training))
        frames.check_frames(_kept(training), training)
        parts = host_parts(training, device, rows_kept(training), ranks, here, accepts=accepts)
        on_gpu = gpu_parts(training) if device == "cuda" and gpu_bytes is not None else []
    except ConfigError:
        raise
    except ValueError as error:  # of somebody's encoder: what it is to read is known now
        raise ConfigError("encoder.refused", why=error) from error
    each = need_bytes(1, 0, env_bytes=training.env.ENV_BYTES) + training.env.drawing_bytes
    each += _CUDA_BYTES * (device == "cuda")
    need = here * each + evaluation_bytes(training) + sum(part.bytes for part in parts)
    if limit_bytes is not None and need > limit_bytes:
        advice = _advice(parts, need - limit_bytes, f"ask for {need / 1e9:,.2f} GB or more (slurm.mem)")
        raise ConfigError("memory.too-little", need_gb=need / 1e9, limit_gb=limit_bytes / 1e9, advice=advice)
    need = sum(part.bytes for part in on_gpu)
    if gpu_bytes is not None and need > gpu_bytes:
        advice = _advice(on_gpu, need - gpu_bytes, _MORE_GPU)
        raise ConfigError("memory.gpu-too-small", need_gb=need / 1e9, limit_gb=gpu_bytes / 1e9, advice=advice)


def shortage(error: BaseException, training: Training, device: str) -> OutOfMemoryError | None:
    """The sentence for an `error` that says that there was no memory; None where it says something else."""
    words = words_of_shortage(error)
    if words is None:
        return None
    is_of_gpu = any(word in words.lower() for word in ("cuda", "cublas", "cudnn"))
    parts = gpu_parts(training) if is_of_gpu else host_parts(training, device, _buffer(training))
    more = _MORE_GPU if is_of_gpu else "ask for more (slurm.mem)"
    return OutOfMemoryError(
        "memory.gpu-full" if is_of_gpu else "memory.full", why=words, advice=_advice(parts, None, more)
    )


def _advice(parts: Sequence[Part], missing: int | None, *ways: str) -> str:
    """The part that takes most, the value that frees what is `missing` (None: half of that part), and other `ways`."""
    most = max(parts, key=lambda part: part.bytes)
    lowered = most.lowered(most.bytes // 2 if missing is None else most.bytes - missing)
    of_most = f"most is for {most.what} = {most.bytes / 1e9:,.2f} GB; " if most.bytes else ""  # else nothing is known
    return of_most + ", or ".join(filter(None, (lowered, *ways)))


def rows_kept(training: Training) -> int:
    """Rows of its replay in the end. Pages of it that no row reaches are never touched, and so take no memory."""
    return min(_buffer(training), training.total_steps)


def row_bytes(training: Training) -> int:
    """One row of the replay."""
    spaces = _kept(training)
    if frames.keeps_frames(spaces, training.network):
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
    return need_bytes(lanes, 0, tasks, env_bytes=env.ENV_BYTES) + env.drawing_bytes


def host_parts(
    training: Training, device: str, rows: int, ranks: int = 1, here: int = 1, *, accepts: bool = False
) -> list[Part]:
    """What the training holds in the memory of a node that has `here` of its `ranks`, with `rows` in its replay, and
    contributors' rows where it `accepts` them. Where all ranks play, each has its share of environments and rollout;
    else rank 0 has all of them.
    """
    kept, envs, steps = _kept(training), training.num_envs, training.rollout // training.num_envs
    row, new = row_bytes(training) if rows else 0, min(rows, training.checkpoint_interval)
    held = rows * (not is_on_gpu(training, device))
    if rows and not frames.keeps_frames(kept, training.network):  # rings of others, which fill as its own does
        shape = size, tasks = training.off_policy.buffer_size, len(training.env.tasks)
        room = capacity_of(*shape) if accepts else 0
        room += group_capacity_of(*shape, training.group.share) if training.group.rows else 0
        held += room * tasks * rows // size
    share = 1 if training.uses_experience else here / ranks
    in_envs, rollouts = (envs - 1) * training.env.ENV_BYTES, rollout.bytes_of(kept, steps, envs) if steps else 0
    what = f"a rollout, {training.rollout:,} steps of {_bytes_of(rollout.fields_of(kept))} bytes"
    return [
        _replay(held, row, rows),
        Part(f"{new:,} new rows not yet on disk", new * row, "checkpoint_interval", (new,)),
        Part(f"{envs:,} environments", int(share * in_envs), "num_envs", (envs,)),
        *_learner(training, gathered=True, live=here * (device == "cpu"), saved=2 * here),
        Part(what, int(share * rollouts), "algorithm.rollout_steps", (steps,)),
    ]


def gpu_parts(training: Training) -> list[Part]:
    """What the training holds on a GPU: first a replay, as large as it may come to be."""
    rows = _buffer(training) * is_on_gpu(training, "cuda")
    return [_replay(rows, row_bytes(training), rows), *_learner(training, gathered=False, live=1, saved=0)]


def _buffer(training: Training) -> int:
    return training.off_policy.buffer_size if training.uses_experience else 0


def _replay(held: int, row: int, rows: int) -> Part:
    return Part(f"the replay, {held:,} rows of {row} bytes", held * row, "algorithm.buffer_size", (rows,))


def _learner(training: Training, *, gathered: bool, live: int, saved: int) -> list[Part]:
    """Its nets and an update. In `live` processes: weights, gradients and the optimizer's moments, for critics their
    targets, for the actor its moving average; hidden layers' values, and what encoders that learn keep of pictures for
    the way back, or these once as floats. `saved` times: all but the gradients, for the copy that a checkpoint is made
    from, and the bytes of its files. `gathered`: pictures, off-policy also of what follows.
    """
    found, hidden, rows = [], 0, training.learned_at_once
    algorithm: type[Algorithm] = find(ALGORITHMS, training.algorithm.name)
    sizes: Sequence[NetSize] = algorithm.sizes(training, spaces_of(training))
    for net in sizes:
        kept = 1 + net.moments + net.targets + (bool(training.averaging) and net.field == "network.actor_hidden")
        numbers = live * (kept + 1) + saved * kept
        what = f"{net.name}, {net.parameters:,} parameters times {numbers} numbers of {_FLOAT_BYTES} bytes"
        found.append(Part(what, net.parameters * numbers * _FLOAT_BYTES, net.field, net.widths, 2))
        hidden += net.values * _FLOAT_BYTES
    seen = sum(prod(spec.shape) for spec in _kept(training).obs.values() if frames.is_picture(spec))
    by_encoders = sum(
        kept_bytes(encoder, spec)
        for key, spec in spaces_of(training).of_policy.obs.items()
        if not training.network.freezes(key) and (encoder := encoder_for(key, spec, training.network, None)) is not None
    )
    row = seen * gathered * (1 + training.uses_experience) + live * (hidden + max(by_encoders, seen * _FLOAT_BYTES))
    is_batch = hasattr(training.algorithm, "batch_size")
    field, value = ("batch_size", rows) if is_batch else ("rollout_steps", training.rollout // training.num_envs)
    return [*found, Part(f"an update, {rows:,} rows of {row:,} bytes", rows * row, f"algorithm.{field}", (value,))]


def _kept(training: Training) -> Spaces:
    return kept_spaces(spaces_of(training), training.network)


def _bytes_of(fields: Fields) -> int:
    return sum(prod(shape) * dtype.itemsize for shape, dtype in fields.values())
