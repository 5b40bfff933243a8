"""The arm's scene, and what an episode's seed decides: where the arm starts, where the goal is, what is randomised."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from trainer.config.suites import Arm
from trainer.envs.spaces import F64
from trainer.envs.suites.arm.shapes import HOME, HOME_SPREAD, JOINTS, OPEN, SHUTS, distance

#: Goals of the workspace: above the table and below the shoulder's reach, in front of the base, metres.
LOWEST, HIGHEST, NEAREST_X = 0.05, 0.8, 0.2
#: Half of the box's edge: FetchReach's.
BOX = 0.15
#: Goals of which one is usually allowed: NumPy's calls cost more than its numbers.
_AT_ONCE = 4
#: Where the one fixed goal is: the hand at these angles.
FIXED = (0.5, 0.4, 0.0, 1.2, 0.0, 1.0, 0.0)
#: Randomised: parts of the nominal masses, gains and damping, and metres by which the goal is seen elsewhere.
MASS, GAIN, DAMPING, NOISE = 0.2, 0.1, 0.2, 0.005


@dataclass(frozen=True)
class Dynamics:
    """What is randomised of an episode: factors of the bodies' masses [bodies], the actuators' gains [actuators] and
    the joints' damping [joints]; whether actions come a step late; how far off the goal is seen [horizon + 1, 3].
    """

    mass: F64
    gain: F64
    damping: F64
    delay: int
    noise: F64


def draw_start(rng: np.random.Generator) -> F64:
    """[7] angles."""
    start: F64 = np.array(HOME) + HOME_SPREAD * (2 * rng.random(JOINTS) - 1)
    return start


def draw_goal(rng: np.random.Generator, model: Any, data: Any, grip: int, kind: str, hand: F64) -> F64:
    """[3] a place that the hand can be at, from angles that put it there; `hand` [3] is where it starts. Moves `data`.

    In the box all places are as likely: the arm reaches the whole of it (a test looks).
    """
    if kind == "fixed":
        return hand_at(model, data, grip, np.array(FIXED))
    if kind == "box":
        return hand_at(model, data, grip, np.array(HOME)) + rng.uniform(-BOX, BOX, 3)
    low, high = model.jnt_range[:JOINTS, 0], model.jnt_range[:JOINTS, 1]
    while True:
        for angles in low + (high - low) * rng.random((_AT_ONCE, JOINTS)):
            goal = hand_at(model, data, grip, angles)
            if allowed(goal, hand) and not touches(model, data):
                return goal


def allowed(goal: F64, hand: F64) -> bool:
    """Whether `goal` is in the workspace, and not so near that the gripper would shut at once."""
    inside = LOWEST <= goal[2] <= HIGHEST and goal[0] >= NEAREST_X
    return bool(inside and distance(goal.tolist(), hand.tolist()) >= SHUTS)


def hand_at(model: Any, data: Any, grip: int, angles: F64) -> F64:
    """[3] where the hand is at `angles` [7], the gripper open. Moves `data`."""
    data.qpos[:JOINTS], data.qpos[JOINTS:] = angles, OPEN
    mujoco.mj_kinematics(model, data)
    place: F64 = data.site_xpos[grip].copy()
    return place


def touches(model: Any, data: Any) -> bool:
    """Whether the arm touches the table where `hand_at` has put it."""
    mujoco.mj_comPos(model, data)
    mujoco.mj_collision(model, data)
    return bool(data.ncon)


def draw_dynamics(rng: np.random.Generator, model: Any, settings: Arm) -> Dynamics:
    """Of an episode of `settings.horizon` steps."""
    return Dynamics(
        mass=rng.uniform(1 - MASS, 1 + MASS, model.nbody),
        gain=rng.uniform(1 - GAIN, 1 + GAIN, model.nu),
        damping=rng.uniform(1 - DAMPING, 1 + DAMPING, model.nv),
        delay=int(rng.integers(2)),
        noise=rng.normal(0.0, NOISE, (settings.horizon + 1, 3)),
    )


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
