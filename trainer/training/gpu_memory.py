"""Whether a training's replay can lie where it is to lie, and all that is to be on a GPU fits into it."""

from __future__ import annotations

from trainer.buffers.frames import keeps_frames
from trainer.config.training import Training
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError
from trainer.nets.encoders.base import kept_spaces
from trainer.training.memory import gpu_parts, is_on_gpu
from trainer.training.memory_parts import in_gb, largest


def check(training: Training, device: str, limit_bytes: int | None) -> None:
    """Refuse a training that does not fit into the `limit_bytes` of the GPU (None: there is none, or it shares the
    machine's memory); `device`: the type of the learner's. What CUDA itself takes is not counted: about 0.5 GB.

    Errors: ConfigError.
    """
    if training.replay_on == "device" and keeps_frames(kept_spaces(spaces_of(training), training.network), training):
        raise ConfigError(
            "training.replay_on device is for replays of states: one of pictures stays in the machine's memory; leave "
            "it out"
        )
    if device != "cuda" or limit_bytes is None:
        return
    parts = gpu_parts(training)
    need, most = sum(part.bytes for part in parts), largest(parts)
    if need <= limit_bytes or most is None:
        return
    lowered = most.lowered(limit_bytes - (need - most.bytes))
    ways = [lowered] if lowered else []
    if is_on_gpu(training, device):
        on_host = sum(part.bytes for part in gpu_parts(training.changed(replay_on="host")))
        ways += ["set training.replay_on to host"] if on_host <= limit_bytes else []
    raise ConfigError(
        f"this training needs at least {in_gb(need)} of GPU memory, this GPU has {in_gb(limit_bytes)}: {most}; "
        + "".join(f"{way}, or " for way in ways)
        + "take a GPU with more of it (slurm.gpu_type)"
    )
