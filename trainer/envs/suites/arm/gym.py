"""The same arm as an environment of Gymnasium: `anchorleg/ArmReach-v0`, known once this is imported.

    import gymnasium
    gymnasium.make("trainer.envs.suites.arm.gym:anchorleg/ArmReach-v0", reward="sparse")

Gymnasium 1.x looks for no entry points, so the name before the colon is what imports it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt

from trainer.config.pictures import OF_PICTURES
from trainer.config.suites import Arm
from trainer.envs.spaces import F64, STATE, Actions, Obs
from trainer.envs.suite import Outcome
from trainer.envs.suites.arm.draws import CAMERAS
from trainer.envs.suites.arm.env import ArmEnv
from trainer.envs.suites.arm.shapes import EFFORT, JOINTS, OWN, SOLVED, STEEPNESS, STEP_S, distance, effort_of, spaces

NAME = "anchorleg/ArmReach-v0"
#: More than any number of an observation (`bounds_for`).
_FAR = 20.0
_SEEDS = 2**32
#: Not NumPy's, whose last bit is another: a reward that is computed again is the same.
_tanh = np.vectorize(math.tanh, otypes=[np.float64])

Observed = npt.NDArray[Any] | dict[str, npt.NDArray[Any]]


class ArmReach(gymnasium.Env):  # type: ignore[misc]
    """Seven joints move by [-1, 1] each; the hand is to be within 5 cm of the goal when the episode ends.

    `observation`: state (25 numbers), legacy (8), or dict, for hindsight: `observation` is then the 18 numbers that
    do not depend on the goal; `achieved_goal` and `desired_goal` are the places of hand and goal (true ones also where
    `randomize` would show another), and there is `compute_reward`. `settings`: others of `trainer.config.suites.Arm`,
    such as reward, goals, horizon. `info` has `is_success` of each step, and so of the last one. Errors:
    ValidationError for other settings.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": round(1 / STEP_S)}

    def __init__(
        self,
        render_mode: Literal["rgb_array"] | None = None,
        *,
        observation: Literal["state", "legacy", "dict"] = "state",
        camera: str = CAMERAS[0],
        width: int = 256,
        height: int = 256,
        **settings: Any,
    ) -> None:
        self._is_dict = observation == "dict"
        self.settings = Arm(observation="state" if self._is_dict else observation, **settings)
        if self.settings.has_pictures:
            raise ValueError(f"observation is state, legacy or dict, not {observation!r}: render() gives pictures")
        if self._is_dict and self.settings.end_on_success and self.settings.reward != "sparse":
            raise ValueError("end_on_success rewards a step several times, which hindsight cannot reproduce")
        self.arm = ArmEnv(self.settings)
        if self._is_dict:  # an environment with this method is taken for one with goals
            self.compute_reward = self._compute_reward
        self.render_mode, self._camera, self._size = render_mode, camera, (height, width)
        self._renderer: Any = None
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (JOINTS,), np.float32)
        shape = (len(OWN),) if self._is_dict else spaces(self.settings).obs[STATE].shape
        own = gymnasium.spaces.Box(-_FAR, _FAR, shape, np.float32)
        places = {
            name: gymnasium.spaces.Box(-_FAR, _FAR, (3,), np.float64) for name in ("achieved_goal", "desired_goal")
        }
        self.observation_space = gymnasium.spaces.Dict({"observation": own, **places}) if self._is_dict else own

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """A new episode, of the generator that `seed` starts anew. `options` has no meaning here."""
        super().reset(seed=seed, options=options)
        obs = self.arm.reset(0, int(self.np_random.integers(_SEEDS)))
        hand, goal = self._places()
        return self._shown(obs[STATE]), {"is_success": False, "distance": distance(hand.tolist(), goal.tolist())}

    def step(self, action: npt.NDArray[Any]) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """50 ms."""
        outcome = self.arm.step(action)
        truncated = self.arm.steps >= self.settings.horizon and not outcome.terminated
        info = _told(outcome, np.clip(action, -1, 1))
        return self._shown(outcome.obs[STATE]), outcome.reward, outcome.terminated, truncated, info

    def _compute_reward(self, achieved_goal: F64, desired_goal: F64, info: Any) -> Any:
        """What a step to `achieved_goal` [..., 3] is worth where `desired_goal` [..., 3] was wanted; [...].

        `info`: of that step, or a list of them, whose `effort` a dense reward takes.
        """
        off = np.asarray(achieved_goal, np.float64) - np.asarray(desired_goal, np.float64)
        away = np.sqrt(off[..., 0] * off[..., 0] + off[..., 1] * off[..., 1] + off[..., 2] * off[..., 2])
        near = away < SOLVED
        if self.settings.reward == "sparse":
            return near - 1.0
        if self.settings.reward == "tanh":
            return 1.0 - _tanh(STEEPNESS * away)
        return near - away - EFFORT * _efforts(info)

    def render(self) -> npt.NDArray[np.uint8] | None:
        """[height, width, 3] as the camera sees it; None without `render_mode`. MUJOCO_GL says how MuJoCo draws."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self.arm.model, *self._size)
        self._renderer.update_scene(self.arm.data, camera=self._camera)
        picture: npt.NDArray[np.uint8] = self._renderer.render().copy()
        return picture

    def close(self) -> None:
        """Free the renderer. May be called twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _places(self) -> tuple[F64, F64]:
        return self.arm.data.site_xpos[self.arm.grip].copy(), self.arm.data.mocap_pos[0].copy()

    def _shown(self, obs: npt.NDArray[Any]) -> Observed:
        if not self._is_dict:
            return obs
        hand, goal = self._places()
        return {"observation": obs[list(OWN)], "achieved_goal": hand, "desired_goal": goal}


def _told(outcome: Outcome, action: npt.NDArray[Any]) -> dict[str, Any]:
    """What a step's `info` has; `steps_to_reach` once the hand was at the goal."""
    measures = zip(Arm.MEASURES, outcome.measures, strict=True)
    known = {name: value for name, value in measures if not math.isnan(value)}
    return {"is_success": outcome.success, "effort": effort_of(action.tolist()), **known}


def _efforts(info: Any) -> Any:
    """Of one info, or of some; 0 where none is told."""
    if isinstance(info, Mapping):
        return info.get("effort", 0.0)
    return 0.0 if info is None else np.array([one.get("effort", 0.0) for one in info])


if NAME not in gymnasium.registry:
    gymnasium.register(NAME, entry_point=f"{__name__}:{ArmReach.__name__}")


#: Pixels a side: what the scene's buffer holds.
SIZE = 480


class WatchedArm:
    """An arm to look at, reset by its seed as evaluations do. `upstream`: the Gymnasium environment that draws it."""

    def __init__(self, settings: Arm) -> None:
        own = settings.model_dump(exclude={"name", "tasks", "observation", *OF_PICTURES})
        self.upstream = ArmReach("rgb_array", width=SIZE, height=SIZE, **own)
        self.upstream.arm = ArmEnv(settings)  # which shows what the policy is to see

    def reset(self, seed: int) -> Obs:
        """Begin the episode that `seed` decides."""
        return self.upstream.arm.reset(0, seed)

    def step(self, action: Actions) -> Outcome:
        """Act."""
        return self.upstream.arm.step(action)

    def picture(self) -> Any:
        """As it looks now, uint8 [H, W, 3]."""
        return self.upstream.render()

    def close(self) -> None:
        """Free the renderer."""
        self.upstream.close()
