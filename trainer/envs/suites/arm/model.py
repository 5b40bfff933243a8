"""The arm's scene, compiled once a process, and what an episode may change of it."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import mujoco

from trainer.envs.suites.arm.draws import Dynamics

SCENE = Path(__file__).with_name("scene.xml")
CAMERAS = ("front", "side", "top")


@cache
def _compiled() -> Any:
    return mujoco.MjModel.from_xml_path(str(SCENE))


def new_model() -> Any:
    """One of its own."""
    return copy.copy(_compiled())


def randomise(model: Any, data: Any, dynamics: Dynamics) -> None:
    """Give `model` (of `new_model`) the dynamics of an episode, whatever it had before. Resets `data`."""
    nominal = _compiled()
    model.body_mass[:] = nominal.body_mass * dynamics.mass
    model.body_inertia[:] = nominal.body_inertia * dynamics.mass[:, None]
    model.actuator_gainprm[:, 0] = nominal.actuator_gainprm[:, 0] * dynamics.gain
    model.actuator_biasprm[:, 1] = nominal.actuator_biasprm[:, 1] * dynamics.gain
    model.actuator_biasprm[:, 2] = nominal.actuator_biasprm[:, 2] * dynamics.damping
    model.dof_damping[:] = nominal.dof_damping * dynamics.damping
    mujoco.mj_resetData(model, data)
    mujoco.mj_setConst(model, data)
