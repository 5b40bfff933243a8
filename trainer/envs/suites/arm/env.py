"""One arm: its physics, its task, and exact snapshots.

The native stepper (native/stepper.c) does what `step` does, in the same order of operations: where one changes, so does
the other.
"""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from trainer.config.suites import Arm
from trainer.envs.cameras import Cameras, Views
from trainer.envs.pictures import seen_with
from trainer.envs.simulator import physics_of, put_physics, state_size
from trainer.envs.spaces import F32, F64, STATE, Obs
from trainer.envs.step import EnvError
from trainer.envs.suite import Outcome
from trainer.envs.suites.arm.draws import Dynamics, draw_dynamics, draw_goal, draw_start, hand_at, new_model, randomise
from trainer.envs.suites.arm.shapes import (
    JOINTS,
    LEAD,
    OPEN,
    OPENS,
    OWN,
    REWARDS,
    SHUT,
    SHUTS,
    SOLVED,
    SPEEDS,
    STEP_S,
    SUBSTEPS,
    distance,
    effort_of,
)  # fmt: skip
from trainer.state import State

#: What an episode counts and remembers between two steps, beside its arrays.
COUNTED = ("steps", "triggered", "delay", "reached", "has_triggered")
#: `reached` of an episode whose hand was not at the goal yet: no step.
NEVER = 0


class ArmEnv:
    """An arm with a goal. `simulation` is MuJoCo's (model, data), to draw from."""

    def __init__(self, settings: Arm) -> None:
        self.settings = settings
        self.model = new_model()
        self.data = mujoco.MjData(self.model)
        self.grip = self.model.site("grip").id
        self.low, self.high = self.model.jnt_range[:JOINTS].T.tolist()
        self.reach = [speed * STEP_S for speed in SPEEDS]
        #: Target angles; and the action that is to come a step late.
        self.target, self.held = [0.0] * JOINTS, [0.0] * JOINTS
        self.steps, self.triggered, self.delay = 0, 0, 0
        #: Number of the first step that ended at the goal, and whether the gripper ever was to shut.
        self.reached, self.has_triggered = NEVER, 0
        self.dynamics: Dynamics | None = None
        self._hand = self.data.site_xpos[self.grip]
        self._goal = self.data.mocap_pos[0]
        self._reward = REWARDS[settings.reward]
        self._cameras, self._views = None, Views(self.model) if settings.randomize_view else None
        self._view: F64 | None = None
        if settings.has_pictures:
            self._cameras = Cameras("arm", self.model, settings.seen_by, settings.image_size)

    @property
    def simulation(self) -> tuple[Any, Any]:
        """MuJoCo's model and data, to draw from. Changing them would break the episode."""
        return self.model, self.data

    def reset(self, start: int, seed: int) -> Obs:  # noqa: ARG002 - there are no fixed starts
        rng = np.random.default_rng(seed)
        model, data = self.model, self.data
        if self.settings.randomize:
            self.dynamics = draw_dynamics(rng, model, self.settings)
            randomise(model, data, self.dynamics)
        angles = draw_start(rng)
        hand = hand_at(model, data, self.grip, angles)
        goal = draw_goal(rng, model, data, self.grip, self.settings.goals, hand)
        mujoco.mj_resetData(model, data)
        self._goal[:] = goal
        hand_at(model, data, self.grip, angles)
        self.target, self.held = angles.tolist(), [0.0] * JOINTS
        self.steps, self.reached = 0, NEVER
        self.delay = 0 if self.dynamics is None else self.dynamics.delay
        mujoco.mj_camlight(model, data)  # a viewer may draw before the first step
        self.triggered = self.has_triggered = int(distance(hand.tolist(), goal.tolist()) < SHUTS)
        if self._views is not None:  # after all other draws, which stay what they are
            self._view = self._views.draw(rng)
            self._views.look(data, self._view)
        return self._seen()

    def step(self, action: npt.NDArray[Any]) -> Outcome:
        """Act ([7], each in [-1, 1], what is beyond is clipped): 50 ms."""
        wanted = [min(max(float(number), -1.0), 1.0) for number in action]
        done, self.held = (self.held if self.delay else wanted), wanted
        self._move(done)
        self.steps += 1
        away = distance(self._hand.tolist(), self._goal.tolist())
        self.triggered = int(away < OPENS if self.triggered else away < SHUTS)
        self.has_triggered |= self.triggered
        solved = away < SOLVED
        if solved and self.reached == NEVER:
            self.reached = self.steps
        reward = self._reward(away, effort_of(wanted))
        over = solved and self.settings.end_on_success
        if over:
            reward *= self.settings.horizon - self.steps + 1
        measures = (
            float(self.reached != NEVER),
            float(self.has_triggered),
            away,
            math.nan if self.reached == NEVER else float(self.reached),
        )
        return Outcome(self._seen(), reward, over, truncated=False, success=solved, measures=measures)

    def observation(self) -> F32:
        """[25], or [8] of the legacy one, of where the arm is now."""
        hand, goal = self._hand.tolist(), self._goal.tolist()
        if self.dynamics is not None:
            off = self.dynamics.noise[min(self.steps, len(self.dynamics.noise) - 1)].tolist()
            goal = [place + error for place, error in zip(goal, off, strict=True)]
        qpos = self.data.qpos.tolist()
        if self.settings.observation == "legacy":
            return np.array([distance(hand, goal), *qpos[:JOINTS]], np.float32)
        way = [there - here for there, here in zip(goal, hand, strict=True)]
        opening = (qpos[JOINTS] + qpos[JOINTS + 1]) / (2 * OPEN)
        speeds = self.data.qvel[:JOINTS].tolist()
        return np.array([*qpos[:JOINTS], *speeds, *hand, *goal, *way, opening, self.triggered], np.float32)

    def snapshot(self) -> State:
        tensors = {
            "physics": physics_of(self.model, self.data),
            "target": np.array(self.target),
            "held": np.array(self.held),
        }
        if self.dynamics is not None:
            drawn = self.dynamics
            tensors |= {"mass": drawn.mass, "gain": drawn.gain, "damping": drawn.damping, "noise": drawn.noise}
        if self._view is not None:
            tensors["view"] = self._view.copy()
        return State(tensors, {name: getattr(self, name) for name in COUNTED})

    def restore(self, state: State) -> None:
        """Go on from there. Errors: EnvError where it is of other settings, or of another version of MuJoCo."""
        tensors, numbers = state.tensors, state.numbers
        if ("noise" in tensors) != self.settings.randomize or tensors["physics"].shape != (state_size(self.model),):
            raise EnvError("env.state-of-other-arm")
        for name in COUNTED:
            setattr(self, name, int(numbers[name]))
        if self.settings.randomize:
            drawn = {name: np.array(tensors[name]) for name in ("mass", "gain", "damping", "noise")}
            self.dynamics = Dynamics(**drawn, delay=self.delay)
            randomise(self.model, self.data, self.dynamics)
        put_physics(self.model, self.data, tensors["physics"])
        self.target, self.held = tensors["target"].tolist(), tensors["held"].tolist()
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        if self._views is not None:
            self._view = np.array(tensors["view"])
            self._views.look(self.data, self._view)

    def close(self) -> None:
        """There is nothing to free."""

    def _seen(self) -> Obs:
        state = self.observation()
        if self._cameras is None:
            return {STATE: state}
        return seen_with(self.settings, self._cameras.picture(self.data), state, OWN)

    def _move(self, done: list[float]) -> None:
        """Five times 10 ms towards what `done` makes of the target angles."""
        angles = self.data.qpos[:JOINTS].tolist()
        for i in range(JOINTS):
            wanted = self.target[i] + done[i] * self.reach[i]
            near = min(max(wanted, angles[i] - LEAD), angles[i] + LEAD)
            self.target[i] = min(max(near, self.low[i]), self.high[i])
        self.data.ctrl[:JOINTS] = self.target
        self.data.ctrl[JOINTS:] = SHUT if self.triggered else OPEN
        mujoco.mj_step(self.model, self.data, SUBSTEPS)
        # After mj_step the hand's place is that of one substep before.
        mujoco.mj_kinematics(self.model, self.data)


#: Larger is slower where the arm is stretched out, and steadier.
_DAMPING = 0.01
#: Where the way to the goal stands in the state.
_WAY = slice(20, 23)


class Reacher:
    """How to reach without learning: a step of damped least squares (Wampler 1986) towards the goal. The action [7] for
    a whole state [25].
    """

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
