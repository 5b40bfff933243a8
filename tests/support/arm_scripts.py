"""How to reach without learning: a step of damped least squares towards the goal that the observation tells."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from trainer.config.suites import Arm
from trainer.envs.suites.arm.env import ArmEnv
from trainer.envs.suites.arm.shapes import JOINTS


class Reacher:
    """Actions [N, 7] for observations [N, 25]."""

    def __init__(self) -> None:
        self._arm = ArmEnv(Arm())

    def act(self, obs: Any) -> Any:
        model, data, grip = self._arm.model, self._arm.data, self._arm.grip
        slopes, actions = np.zeros((3, model.nv)), np.zeros((len(obs), JOINTS), np.float32)
        for i, row in enumerate(np.asarray(obs, np.float64)):
            data.qpos[:JOINTS] = row[:JOINTS]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_jacSite(model, data, slopes, None, grip)
            j = slopes[:, :JOINTS]
            turn = j.T @ np.linalg.solve(j @ j.T + 0.01 * np.eye(3), row[20:23])
            actions[i] = np.clip(turn / self._arm.reach, -1, 1)
        return actions
