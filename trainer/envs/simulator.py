"""MuJoCo as every suite here uses it: what it warns of is logged, and its state is kept whole."""

from __future__ import annotations

import logging
from typing import Any

import mujoco
import numpy as np

from trainer.envs.spaces import F64

#: Positions, velocities, controls, mocap, time and the warm start: without the last one the next step differs.
INTEGRATION = mujoco.mjtState.mjSTATE_INTEGRATION
_log = logging.getLogger(__name__)
# Otherwise MuJoCo appends its warnings to a MUJOCO_LOG.TXT in the current folder, which is the user's.
mujoco.set_mju_user_warning(lambda text: _log.warning("MuJoCo: %s", text))


def physics_of(model: Any, data: Any) -> F64:
    """All that the next `mj_step` depends on, beside `model`; [state_size(model)]."""
    physics = np.empty(state_size(model))
    mujoco.mj_getState(model, data, physics, INTEGRATION)
    return physics


def put_physics(model: Any, data: Any, physics: F64) -> None:
    """Go on from there. Without `mj_forward`: the next step computes everything derived, and a forward pass would
    change the warm start that it computes from.
    """
    mujoco.mj_setState(model, data, np.ascontiguousarray(physics), INTEGRATION)


def state_size(model: Any) -> int:
    """Numbers of `physics_of`."""
    return int(mujoco.mj_stateSize(model, INTEGRATION))
