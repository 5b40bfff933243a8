"""What pictures, and encoders that read them, take in memory."""

from __future__ import annotations

from math import prod

import numpy as np
from torch import nn

from trainer.buffers import frames
from trainer.config.pictures import PictureSettings
from trainer.config.training import Training
from trainer.envs.spaces import ArraySpec, Spaces
from trainer.envs.suite import spaces_of
from trainer.nets.encoders.base import encoder_for, kept_spaces
from trainer.nets.kept import kept_bytes
from trainer.training.memory_parts import Lever, Part

_FLOAT_BYTES = 4
#: The smallest `image_size` that there is.
_LEAST_SIZE = 16


def last_frames(training: Training) -> list[Part]:
    """What stacks and clips are made of while acting."""
    specs = [spec for spec in spaces_of(training).obs.values() if spec.stack > 1]
    size = training.num_envs * sum(spec.reach * _bytes_of_frame(spec) for spec in specs)
    levers = (of_num_envs(training), *smaller(training), *shorter(training))
    what = f"the last frames of {training.num_envs:,} environments"
    return [Part(what, size, levers)] if size else []


def pictures(training: Training, *, gathered: bool, live: bool) -> list[Part]:
    """What an update reads: bytes as they were `gathered` (off-policy also of what follows), and where it is made
    (`live`) what the encoders that learn keep of them for the way back, or once as floats.
    """
    shown = sum(prod(spec.shape) for spec in kept_of(training).obs.values() if frames.is_picture(spec))
    rows = training.learned_at_once
    learned = sum(kept_bytes(module, spec) for module, spec, frozen in _read(training) if not frozen)
    row = shown * gathered * (1 + training.uses_experience) + live * max(learned, shown * _FLOAT_BYTES)
    levers = (Lever(*lowered_by(training)), *smaller(training), *shorter(training))
    what = f"pictures of an update and what is made of them, {rows:,} rows of {row:,} bytes"
    return [Part(what, rows * row, levers)] if rows and row else []


def frozen_encoders(training: Training) -> list[Part]:
    """The weights of those that do not learn: nobody else counts them."""
    numbers = sum(
        tensor.numel()
        for module, _, frozen in _read(training)
        if frozen
        for tensor in [*module.parameters(), *module.buffers()]
    )
    what = f"a frozen encoder, {numbers:,} numbers of {_FLOAT_BYTES} bytes"
    return [Part(what, numbers * _FLOAT_BYTES, (), is_in_each=True)] if numbers else []


def _read(training: Training) -> list[tuple[nn.Module, ArraySpec, bool]]:
    """(encoder without numbers, what it reads, whether it is frozen) of each key that a policy sees by one."""
    seen, network = spaces_of(training).of_policy.obs, training.network
    made = [(encoder_for(key, spec, network, None), spec, network.freezes(key)) for key, spec in seen.items()]
    return [(module, spec, frozen) for module, spec, frozen in made if module is not None]


def smaller(training: Training, fixed: int = 0) -> list[Lever]:
    """Smaller pictures, where there is a choice; `fixed`: what is beside them."""
    env = training.env
    if not isinstance(env, PictureSettings) or not env.has_pictures:
        return []
    seen = [max(spec.shape[-2:]) for spec in spaces_of(training).obs.values() if frames.is_picture(spec)]
    # Gymnasium's have a size of their own where none is asked for.
    return [Lever("env.image_size", (env.image_size or max(seen),), 2, fixed, _LEAST_SIZE)]


def shorter(training: Training) -> list[Lever]:
    """Fewer frames, where there is a choice."""
    env = training.env
    if not isinstance(env, PictureSettings) or not env.has_pictures or env.frame_stack == 1:
        return []
    return [Lever("env.frame_stack", (env.frame_stack,), least=2 if env.observation == "clips" else 1)]


def of_num_envs(training: Training) -> Lever:
    """Fewer environments."""
    return Lever("num_envs", (training.num_envs,))


def lowered_by(training: Training) -> tuple[str, tuple[int, ...]]:
    """(the field that says how many rows an update has, what it is)."""
    if "batch_size" in type(training.algorithm).model_fields:
        return "algorithm.batch_size", (training.learned_at_once,)
    return "algorithm.rollout_steps", (training.rollout // training.num_envs,)


def kept_of(training: Training) -> Spaces:
    """What is kept to learn from."""
    return kept_spaces(spaces_of(training), training.network)


def frame_bytes(training: Training) -> int:
    """Of all pictures of one step that are kept."""
    return sum(_bytes_of_frame(spec) for spec in kept_of(training).obs.values() if frames.is_picture(spec))


def _bytes_of_frame(spec: ArraySpec) -> int:
    return prod(spec.frame) * np.dtype(spec.dtype).itemsize
