"""Upstream's models and its reset, with the same outcome, bit for bit, in less than half of the time.

Upstream resets a task twice, and each time steps the simulation until the hand has come to its first place. Between the
two it clears MuJoCo's data; so of the first only what it writes elsewhere counts: fields of the model and attributes,
which depend on the goal alone.

A task's model is compiled once and then copied, which takes far less time, from one that lives: a spare one would take
20 MB a task of each worker. MuJoCo compiles without Python's lock, so `compile_ahead` does it while this process
imports what else it needs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

import mujoco
import numpy as np
import numpy.typing as npt
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.sawyer_xyz_env import SawyerXYZEnv

import trainer.envs.simulator  # noqa: F401 - where MuJoCo's warnings go, before a first one
from trainer.machine.host import read_host

#: Fields that some task's `reset_model` writes; the quaternions are kept as a precaution (they are small).
MODEL_FIELDS = ("site_pos", "body_pos", "site_quat", "body_quat")
#: What `trainer.envs.cameras` draws anew, too.
_VIEWED = ("cam_pos", "cam_quat", "light_dir", "light_diffuse")
_MOST_THREADS = 4
#: So many are compiled ahead at most: 20 MB each, which are for nothing where workers step.
_MOST_AHEAD = 16
#: By file: a model that lives, and of all that were compiled what is written later.
_alive: WeakValueDictionary[str, mujoco.MjModel] = WeakValueDictionary()
_compiled: dict[str, dict[str, npt.NDArray[Any]]] = {}
#: By file: what `compile_ahead` began, and nobody has taken.
_ahead: dict[str, Future[mujoco.MjModel]] = {}


def compile_ahead(paths: Iterable[str]) -> None:
    """Begin to compile the models of files; `model_of` takes each once, with its errors."""
    threads = ThreadPoolExecutor(min(_MOST_THREADS, max(1, read_host().cores - 1)), thread_name_prefix="models")
    with suppress(RuntimeError):  # no thread can be had: `model_of` compiles them itself
        for path in islice(dict.fromkeys(paths), _MOST_AHEAD):
            _ahead[path] = threads.submit(mujoco.MjModel.from_xml_path, path)
    threads.shutdown(wait=False)


def drop_ahead() -> None:
    """Forget what was begun and nobody has taken."""
    for begun in _ahead.values():
        begun.cancel()
    _ahead.clear()


def model_of(path: str) -> mujoco.MjModel:
    """The model of the file, as compiled, and the caller's alone. Errors: ValueError, as MuJoCo's."""
    living, begun = _alive.get(path), _ahead.pop(path, None)
    if living is None:
        model = mujoco.MjModel.from_xml_path(path) if begun is None else begun.result()
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
        """Upstream's, down to gymnasium's `MujocoEnv.reset`; the arguments are ignored, as upstream ignores them."""
        del seed, options
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


def file_of(task: str) -> str:
    """The file of its model, which upstream's class says of all instances."""
    told: Any = ALL_V3_ENVIRONMENTS[task].model_name
    path: str = told.fget(None)
    return path


@cache
def quick_class(task: str) -> type[SawyerXYZEnv]:
    """The class of `task`, by upstream's name, which an environment tells of itself."""
    upstream = ALL_V3_ENVIRONMENTS[task]
    return type(upstream.__name__, (upstream, _QuickReset), {})
