"""Light and the cameras' places, drawn anew for an episode: what a policy sees must not hang on them.

A view is one row of numbers in [-1, 1]: of each camera how far it is moved and turned (3 and 3), of each light how far
it shines from elsewhere (3), and how strong light is (1).
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from trainer.envs.spaces import F64

#: Metres and radians (2 degrees) that a camera may be off; parts of its way that a light's direction may be off; parts
#: of its strength.
PLACE, TURN, DIRECTION, STRENGTH = 0.02, float(np.radians(2.0)), 0.3, 0.3


class Views:
    """Of `model`, as it is now."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._places, self._turns = model.cam_pos.copy(), model.cam_quat.copy()
        self._directions, self._strengths = model.light_dir.copy(), model.light_diffuse.copy()
        self._headlight = model.vis.headlight.diffuse.copy()

    @property
    def size(self) -> int:
        """Numbers of a view."""
        return int(6 * self._model.ncam + 3 * self._model.nlight + 1)

    def draw(self, rng: np.random.Generator) -> F64:
        """[size]"""
        view: F64 = rng.uniform(-1.0, 1.0, self.size)
        return view

    def look(self, data: Any, view: F64) -> None:
        """Let the model and its `data` be seen like this."""
        model, cameras = self._model, 6 * self._model.ncam
        moved = view[:cameras].reshape(-1, 2, 3)
        model.cam_pos[:] = self._places + PLACE * moved[:, 0]
        for camera, turned in enumerate(moved[:, 1]):
            quat = self._turns[camera].copy()
            mujoco.mju_quatIntegrate(quat, np.ascontiguousarray(turned), TURN)
            model.cam_quat[camera] = quat
        directions = self._directions + DIRECTION * view[cameras:-1].reshape(-1, 3)
        model.light_dir[:] = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        model.light_diffuse[:] = self._strengths * (1 + STRENGTH * view[-1])
        model.vis.headlight.diffuse[:] = self._headlight * (1 + STRENGTH * view[-1])
        mujoco.mj_camlight(model, data)
