"""The last frames of each environment's episode, as a policy sees them. Environments and workers send one frame a step.

Shapes: N environments, D the frames from the oldest to the newest one that is seen (`ArraySpec.reach`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import ArraySpec, Bools, Obs, Spaces

Frames = npt.NDArray[Any]


class FrameStacks:
    """Of every key of `spaces` whose `stack` is above 1; the other keys go through as they are.

    Frames are never drawn again: they are part of the state (`arrays`).
    """

    def __init__(self, spaces: Spaces, num_envs: int) -> None:
        self._specs = {key: spec for key, spec in spaces.obs.items() if spec.stack > 1}
        #: [D, N, *frame], a ring: the newest lies at `_newest`.
        self._past = {
            key: np.zeros((spec.reach, num_envs, *spec.frame), spec.dtype) for key, spec in self._specs.items()
        }
        self._newest = dict.fromkeys(self._specs, 0)

    def begin(self, frames: Obs) -> dict[str, npt.NDArray[Any]]:
        """What is seen of first frames [N, …]."""
        for key, past in self._past.items():
            past[:] = frames[key]
        return self._seen(frames)

    def push(self, next_frames: Obs, frames: Obs, ended: Bools) -> tuple[Obs, Obs]:
        """(what the step led to, what is to be acted in) of the frames [N, …] of both; where an episode `ended` [N],
        the latter begins one. Where none did, both are the same arrays.
        """
        for key, past in self._past.items():
            self._newest[key] = newest = (self._newest[key] + 1) % len(past)
            past[newest] = next_frames[key]
        led_to = self._seen(next_frames)
        if not ended.any():
            return led_to, {key: led_to[key] if key in self._past else array for key, array in frames.items()}
        for key, past in self._past.items():
            past[:, ended] = frames[key][ended]
        return led_to, self._seen(frames)

    def arrays(self) -> dict[str, Frames]:
        """Key → [D, N, *frame], oldest first, copied."""
        return {key: np.roll(past, -1 - self._newest[key], axis=0) for key, past in self._past.items()}

    def load(self, arrays: Mapping[str, Frames], frames: Obs) -> dict[str, npt.NDArray[Any]]:
        """Go on from `arrays`, where the environments stand at `frames` [N, …]: what is seen.

        Environments that are new, or whose episode could not be brought back, are at their first frame.
        """
        self.begin(frames)
        for key, past in self._past.items():
            self._newest[key] = len(past) - 1
            kept = np.asarray(arrays[key])[:, : past.shape[1]]
            now = frames[key][: kept.shape[1]]
            goes_on = (kept[-1] == now).reshape(len(now), -1).all(axis=1)
            past[:, : kept.shape[1]][:, goes_on] = kept[:, goes_on]
        return self._seen(frames)

    def _seen(self, frames: Obs) -> dict[str, npt.NDArray[Any]]:
        return {key: self._stacked(key) if key in self._past else array for key, array in frames.items()}

    def _stacked(self, key: str) -> Frames:
        spec, past = self._specs[key], self._past[key]
        places = (self._newest[key] - np.arange(spec.stack)[::-1] * spec.stride) % len(past)
        return stacked(spec, past[places].swapaxes(0, 1))


class OneEpisode:
    """What a policy sees of one environment that is played by hand: [1, …] of each key, without what critics see."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces.of_policy
        self._stacks = FrameStacks(self._spaces, 1)

    def begin(self, frame: Obs) -> Obs:
        """Of an episode's first observation, without N."""
        return self._stacks.begin(self._alone(frame))

    def push(self, frame: Obs) -> Obs:
        """Of what a step led to."""
        frames = self._alone(frame)
        return self._stacks.push(frames, frames, np.zeros(1, np.bool_))[0]

    def _alone(self, frame: Obs) -> Obs:
        return {key: frame[key][np.newaxis] for key in self._spaces.obs}


def stacked(spec: ArraySpec, frames: Frames) -> Frames:
    """[B, stack, *frame], oldest first, as `spec` shapes it: [B, *shape], copied where it must be."""
    return np.ascontiguousarray(frames).reshape(len(frames), *spec.shape)
