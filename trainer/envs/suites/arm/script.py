"""How to reach without learning: a step of damped least squares (Wampler 1986) towards the goal."""

from __future__ import annotations

import mujoco
import numpy as np

from trainer.config.suites import Arm
from trainer.envs.spaces import F32
from trainer.envs.suites.arm.env import ArmEnv
from trainer.envs.suites.arm.shapes import JOINTS

#: Larger is slower where the arm is stretched out, and steadier.
_DAMPING = 0.01
#: Where the way to the goal stands in the state.
_WAY = slice(20, 23)


class Reacher:
    """The action [7] for a whole state [25]."""

    def __init__(self) -> None:
        self._arm = ArmEnv(Arm())

    def __call__(self, state: F32) -> F32:
        """Evaluate it: on a model of its own, which only its joints move."""
        model, data = self._arm.model, self._arm.data
        data.qpos[:JOINTS] = state[:JOINTS]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        slopes = np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, slopes, None, self._arm.grip)
        by_joints = slopes[:, :JOINTS]
        way = state[_WAY].astype(np.float64)
        turn = by_joints.T @ np.linalg.solve(by_joints @ by_joints.T + _DAMPING * np.eye(3), way)
        action: F32 = np.clip(turn / self._arm.reach, -1, 1).astype(np.float32)
        return action
