"""Demonstrations as what an off-policy algorithm keeps of episodes: frames and steps.

Shapes: an episode of F frames has L steps, F - 1 at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from trainer.buffers.demonstrated import ShownEpisode
from trainer.demos.matching import bounded, must_act, must_reward, must_show, names_of, steps_of, tasks_of
from trainer.demos.store import ACTION, REWARD, TERMINATED, Demos, DemosManifest
from trainer.envs.frames import stacked
from trainer.envs.spaces import I64, IMAGE, ArraySpec, Obs, Spaces

_WAY_OUT = "leave algorithm.demos out"
#: Pictures that an encoder reads at once.
_AT_ONCE = 64

Read = Callable[[Obs], Obs]


def rows_of(manifest: DemosManifest, spaces: Spaces) -> I64:
    """[K] how many frames of each task of a training that sees `spaces` are kept.

    Errors: ConfigError where values cannot be learned from them.
    """
    if IMAGE in spaces.obs:
        must_show(manifest, spaces)
    must_act(manifest, spaces, _WAY_OUT)
    must_reward(manifest, spaces)
    rows = np.zeros(len(spaces.tasks), np.int64)
    for task, episode in zip(tasks_of(manifest, spaces, _WAY_OUT), manifest.episodes, strict=True):
        steps = steps_of(episode.frames, episode.actions)
        rows[task] += steps + 1 if steps else 0
    return rows


def episodes_of(demos: Demos, spaces: Spaces, kept: Spaces, read: Read) -> Iterator[ShownEpisode]:
    """All that have a step, in order. `kept`: what is kept of `spaces`; `read`: makes that of some observations, where
    a frozen encoder stands between. What nobody says ended truly was cut.

    Errors: ConfigError; DamagedDemosError.
    """
    manifest = demos.manifest
    told = manifest.opened
    assert told is not None  # noqa: S101 - `rows_of` refused it
    names, tasks = names_of(told, spaces), tasks_of(manifest, spaces, _WAY_OUT)
    for task, (episode, arrays) in zip(tasks, demos.read(), strict=True):
        steps = steps_of(episode.frames, episode.actions)
        if not steps:
            continue
        frames = {}
        for key, spec in spaces.obs.items():
            shown = arrays[names[key]][: steps + 1]
            frames[key] = shown if kept.obs[key] == spec else _features(key, spec, shown, read)
        ended = arrays.get(TERMINATED, np.zeros(steps, np.bool_))
        told_of_steps = {
            ACTION: bounded(arrays[ACTION][:steps], spaces.action, _WAY_OUT),
            REWARD: arrays[REWARD][:steps],
            TERMINATED: ended[:steps],
        }
        yield ShownEpisode(task, frames, told_of_steps)


def _features(key: str, spec: ArraySpec, frames: npt.NDArray[np.generic], read: Read) -> npt.NDArray[np.generic]:
    """[F, features] of [F, *frame] of one episode: before it lies its first frame."""
    back = np.arange(spec.stack)[::-1] * spec.stride
    parts = []
    for first in range(0, len(frames), _AT_ONCE):
        at = np.arange(first, min(first + _AT_ONCE, len(frames)))
        seen = stacked(spec, frames[np.maximum(0, at[:, None] - back)])
        parts.append(read({key: seen})[key])
    return np.concatenate(parts)
