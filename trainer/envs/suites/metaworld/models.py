"""A task's model, compiled once and then copied, which takes far less time.

It is copied from one that lives, for a spare one would take 20 MB a task of each worker.
"""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakValueDictionary

import mujoco
import numpy.typing as npt

#: Fields that some task's `reset_model` writes; the quaternions are kept as a precaution (they are small).
MODEL_FIELDS = ("site_pos", "body_pos", "site_quat", "body_quat")
#: What `trainer.envs.views` draws anew, too.
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
