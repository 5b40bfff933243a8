"""What a user is refused though a checkpoint that says so still loads: settings that nothing reads, a replay that
nothing could be drawn of, and episodes that nobody would take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trainer.config.pictures import PictureSettings
from trainer.config.settings import OffPolicySettings, refused
from trainer.config.training import Training

#: The key of pictures, as `trainer.envs.spaces` has it.
_IMAGE = "image"
#: Suites that show what their settings say. Others may have pictures, and keys, of their own.
_OURS = {"metaworld", "arm"}
#: What reads the numbers of a state alone, and no file.
_STATE_ALONE = "mtsac"
_SEE = "set env.observation to cameras, both or clips"


class _Mistake(NamedTuple):
    place: tuple[str, ...]
    words: str
    value: Any


def check_asked(training: Training) -> None:
    """Errors: ValidationError, a sentence for each mistake."""
    found = [
        *_unread_files(training), *_not_frozen(training), *_unmoved(training), *_short_replay(training),
        *_old_episodes(training),
    ]  # fmt: skip
    if found:
        raise refused(found)


def has_no_pictures(training: Training) -> bool:
    """Whether it is known that its policy sees none."""
    env = training.env
    is_of_state = isinstance(env, PictureSettings) and env.name in _OURS and not env.has_pictures
    return is_of_state or training.algorithm.name == _STATE_ALONE


def _unread_files(training: Training) -> Iterator[_Mistake]:
    """Of weights, and sums of files that are not given."""
    encoder, others = training.network.encoder, training.network.encoders
    if encoder.weights is None:
        if encoder.weights_sha256 is not None:
            words = (
                "this is the sum of a file that is not given: give the file (network.encoder.weights), or leave it out"
            )
            yield _Mistake(("network", "encoder", "weights_sha256"), words, encoder.weights_sha256)
        return
    why = None
    if training.algorithm.name == _STATE_ALONE:
        why = f"{_STATE_ALONE} reads the numbers of a state, and no file: leave it out, or use sac, ppo or drqv2"
    elif has_no_pictures(training):
        why = f"the policy sees no pictures, so nothing reads this file: {_SEE}, or leave it out"
    elif training.env.name in _OURS and _IMAGE in others:
        why = f"{others[_IMAGE]} reads the pictures (network.encoders), and nothing this file: leave one of both out"
    if why is not None:
        yield _Mistake(("network", "encoder", "weights"), why, encoder.weights)


def _not_frozen(training: Training) -> Iterator[_Mistake]:
    """Pictures whose encoder is another one than is to stay as it is; of a file of weights more is said."""
    encoder, others = training.network.encoder, training.network.encoders
    is_ours = training.env.name in _OURS and not has_no_pictures(training)
    if encoder.freeze and encoder.weights is None and is_ours and _IMAGE in others:
        words = (
            f"{others[_IMAGE]} reads the pictures (network.encoders), and learns: only network.encoder.arch can be "
            "frozen; name it there, or leave freeze out"
        )
        yield _Mistake(("network", "encoder", "freeze"), words, encoder.freeze)


def _unmoved(training: Training) -> Iterator[_Mistake]:
    """Pictures that there are not. An algorithm's usual value stands in every dump, and may stay."""
    field = type(training.algorithm).model_fields.get("random_shift")
    if field is None or not has_no_pictures(training):
        return
    shift = training.algorithm.random_shift  # type: ignore[attr-defined]
    if shift not in {0, field.default}:
        words = f"random_shift {shift} moves pictures, and the policy sees none: {_SEE}, or leave it out"
        yield _Mistake(("algorithm", "random_shift"), words, shift)


def _old_episodes(training: Training) -> Iterator[_Mistake]:
    """Other slots' that no learner would take: an episode is as old as the policy of its first step."""
    steps, lag = training.num_envs * training.env.horizon, training.contribution_max_lag
    if training.group.rows and steps > lag:
        words = f"an episode may last {steps:,} steps of all environments, and no other slot's is taken then; set "
        yield _Mistake(("contribution_max_lag",), f"{words}{2 * steps:,}", lag)


def _short_replay(training: Training) -> Iterator[_Mistake]:
    """As far as settings tell of frames."""
    env, settings = training.env, training.algorithm
    if not isinstance(settings, OffPolicySettings) or not isinstance(env, PictureSettings) or not env.has_pictures:
        return
    if (words := short_of_frames(training, env.frame_reach)) is not None:
        yield _Mistake(("algorithm", "buffer_size"), words, settings.buffer_size)


def short_of_frames(training: Training, reach: int) -> str | None:
    """Why a replay of frames is too small for a policy that sees those of `reach` steps; None: it is not.

    A step can be drawn while the frames that are seen before it and the steps summed up behind it are all kept. Of
    each environment that is a row for each of them, and one for where an episode begins; rows of the environments of
    one task come by turns, and each task has a ring of its own, all as long (`trainer.buffers.frames`).
    """
    settings, tasks = training.off_policy, len(training.env.tasks)
    least = tasks * -(-training.num_envs // tasks) * (reach + settings.steps_summed + 1)
    if settings.buffer_size >= least:
        return None
    sees, lower = ("one step", "") if reach == 1 else (f"{reach:,} steps", ", frame_stack or frame_stride")
    return (
        f"buffer_size {settings.buffer_size:,} is too small for {training.num_envs:,} environments whose policy "
        f"sees frames of {sees}: they would be overwritten before they are learned from; use {least:,} or more, or "
        f"lower num_envs{lower}"
    )
