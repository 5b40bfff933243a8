"""What honest experience of the arm obeys.

Measured with random, held, alternating and swinging extreme actions, also against the table, with and without
randomisation (1,280 episodes, mujoco 3.3.0): angles up to 2.92 rad, speeds up to 6.1 rad/s, places up to 1.9 m, dense
rewards in [-1.87, 0.97]; no joint turned farther than 0.30 rad in a step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainer.config.suites import Arm
from trainer.envs.spaces import F32
from trainer.envs.suite import Bounds
from trainer.envs.suites.arm.shapes import JOINTS

#: Rewards of a step, by their name; a hundredth for the arithmetic in single precision.
_REWARDS = {"dense": (-2.1, 1.01), "tanh": (-0.01, 1.01), "sparse": (-1.01, 0.01)}
#: Twice what was measured, radians a step and radians a second.
_TURN, _FARTHEST = 0.6, 12.0
#: Metres by which goal - hand may differ from its parts, which are rounded one by one.
_ROUNDING = 1e-5
#: Columns of the default observation.
_HAND, _GOAL, _WAY = slice(14, 17), slice(17, 20), slice(20, 23)


def bounds_for(settings: Arm) -> Bounds:
    """Of arms with `settings`."""
    low, high = _REWARDS[settings.reward]
    angles = slice(1, 1 + JOINTS) if settings.observation == "legacy" else slice(0, JOINTS)
    return Bounds(
        obs=_FARTHEST,
        reward=(low, high * settings.horizon if settings.end_on_success else high),
        terminates=settings.end_on_success,
        gap=_gap(settings, angles),
    )


def _gap(settings: Arm, angles: slice) -> Callable[[F32, str], str | None]:
    def gap(obs: F32, _task: str) -> str | None:
        """Joints move little by little, the goal stays, and the way to it is the way from hand to goal."""
        turns = np.abs(np.diff(obs[:, angles], axis=0)).max(axis=1, initial=0.0)
        if (turns > _TURN).any():
            return f"a joint jumps at step {int(turns.argmax())}"
        if settings.observation == "legacy":
            return None
        if not settings.randomize and (obs[1:, _GOAL] != obs[0, _GOAL]).any():
            return "the goal moves within the episode"
        if np.abs(obs[:, _GOAL] - obs[:, _HAND] - obs[:, _WAY]).max() > _ROUNDING:
            return "the way to the goal is not that from hand to goal"
        return None

    return gap
