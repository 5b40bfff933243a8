"""Upstream's models and its reset, with the same outcome, bit for bit, in less than half of the time.

Upstream resets a task twice, and each time steps the simulation until the hand has come to its first place. Between the
two it clears MuJoCo's data; so of the first only what it writes elsewhere counts: fields of the model and attributes,
which depend on the goal alone.

A task's model is compiled once and then copied, which takes far less time, from one that lives: a spare one would take
20 MB a task of each worker.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import mujoco
import numpy as np
import numpy.typing as npt
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.sawyer_xyz_env import SawyerXYZEnv

import trainer.envs.simulator  # noqa: F401 - where MuJoCo's warnings go, before a first one

#: Fields that some task's `reset_model` writes; the quaternions are kept as a precaution (they are small).
MODEL_FIELDS = ("site_pos", "body_pos", "site_quat", "body_quat")
#: What `trainer.envs.cameras` draws anew, too.
_VIEWED = ("cam_pos", "cam_quat", "light_dir", "light_diffuse")
#: By file: a model that lives, and of all that were compiled what is written later.
_alive: WeakValueDictionary[str, mujoco.MjModel] = WeakValueDictionary()
_compiled: dict[str, dict[str, npt.NDArray[Any]]] = {}


def model_of(path: str) -> mujoco.MjModel:
    """The model of the file, as compiled, and the caller's alone. Errors: ValueError, as MuJoCo's."""
    living = _alive.get(path)
    if living is None:
        model = mujoco.MjModel.from_xml_path(path)
        _compiled[path] = {name: array.copy() for name, array in _written(model).items()}
    else:
        model = copy.copy(living)
        for name, array in _written(model).items():
            array[:] = _compiled[path][name]
    _alive[path] = model
    return model


def _written(model: mujoco.MjModel) -> dict[str, npt.NDArray[Any]]:
    fields = {name: getattr(model, name) for name in (*MODEL_FIELDS, *_VIEWED)}
    return {**fields, "headlight": model.vis.headlight.diffuse}


#: Of `_reset_hand`: to open the gripper.
_OPENING = (-1, 1)


class _QuickReset(SawyerXYZEnv):
    """Between a task's class and upstream's base, so that a task's own `_reset_hand` comes first."""

    _hand_stays = False

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """As gymnasium's `MujocoEnv`, by a copy of the model where one lives."""
        model = model_of(self.fullpath)
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self.width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self.height)
        return model, mujoco.MjData(model)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        del seed, options  # which upstream ignores, too
        self.curr_path_length = 0
        self._hand_stays = True
        try:
            self.reset_model()
        finally:
            del self._hand_stays
        mujoco.mj_resetData(self.model, self.data)
        obs = self.reset_model()
        self._prev_obs = obs[:18].copy()
        obs[18:36] = self._prev_obs
        return obs.astype(np.float64), {}

    def _reset_hand(self, steps: int = 50) -> None:
        """The mocap body and the controls are the same in all `steps`, so MuJoCo does them in one call.

        `mj_rnePostConstraint` is left out: nothing observable depends on it.
        """
        if not self._hand_stays:
            mocap_id = self.model.body_mocapid[self.data.body("mocap").id]
            self.data.mocap_pos[mocap_id][:] = self.hand_init_pos
            self.data.mocap_quat[mocap_id][:] = (1, 0, 1, 0)
            self.data.ctrl[:] = _OPENING
            mujoco.mj_step(self.model, self.data, nstep=steps * self.frame_skip)
        self.init_tcp = self.tcp_center


@cache
def quick_class(task: str) -> type[SawyerXYZEnv]:
    """The class of `task`, by upstream's name, which an environment tells of itself."""
    upstream = ALL_V3_ENVIRONMENTS[task]
    return type(upstream.__name__, (upstream, _QuickReset), {})
