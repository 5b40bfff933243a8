"""One Meta-World environment: upstream's physics and rewards untouched, plus exact snapshots.

What makes a snapshot exact in the middle of an episode, into a fresh instance:

* MuJoCo's integration state (positions, velocities, warm start, mocap, controls, time);
* the model fields that Meta-World writes at a reset (`MODEL_FIELDS`);
* the environment's own scalars and arrays, by value and with their exact types: a `np.float32` among Python floats
  changes the last bits of a reward;
* attributes that are windows into MuJoCo's memory stay windows: as values they would stop moving with the simulation
  (`init_left_pad` and `init_right_pad` everywhere, `_target_pos` or `obj_init_pos` in four tasks);
* and no `mj_forward` afterwards (`trainer.envs.simulator.put_physics`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from trainer.config.suites import Metaworld
from trainer.envs.cameras import Cameras, Views
from trainer.envs.pictures import seen_with
from trainer.envs.simulator import physics_of, put_physics, state_size
from trainer.envs.spaces import F32, F64, STATE, Obs
from trainer.envs.step import EnvError
from trainer.envs.suite import Outcome
from trainer.envs.suites.metaworld.resets import MODEL_FIELDS, quick_class
from trainer.envs.suites.metaworld.shapes import OWN as OWN_NUMBERS
from trainer.state import State

#: Fields of `mjData` and `mjModel` that a task's attribute may be a window into.
WINDOWS = {
    "data": ("xpos", "site_xpos", "geom_xpos", "xipos", "xquat", "qpos", "qvel", "mocap_pos", "mocap_quat"),
    "model": MODEL_FIELDS,
}
#: Of pictures: where the literature has it (MWM, TD-MPC2, …); upstream's place sees the goals from twice as far.
MOVED_CAMERAS = {"corner2": (0.75, 0.075, 0.7)}
#: How the light and the cameras' places of an episode are called in a state.
_VIEW = "view"
#: Belongs to the instance, not to the episode.
OWN = frozenset({"model", "data", "sawyer_observation_space", "width", "height", "render_mode", "camera_name"})


class TaskEnv:
    """One instance of one v3 task, goal visible, reward version v2.

    `reset(goal)` and `step(action)` are upstream's; a reset's outcome is a function of (task, goal) alone, whatever
    the instance did before (tested on all fifty tasks), so instances may be shared and resets remembered.
    """

    def __init__(self, task: str) -> None:
        self.task = task
        self._env: Any = quick_class(task)(reward_function_version="v2")
        self._env._set_task_called = True  # noqa: SLF001 - what `set_task` does, without its pickles
        self._env._freeze_rand_vec = True  # noqa: SLF001
        self._env._partially_observable = False  # noqa: SLF001
        self._env.__dict__.pop("sawyer_observation_space", None)  # cached while the goal was hidden

    @property
    def simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """MuJoCo's model and data, to draw from. Changing them would break the episode."""
        return self._env.model, self._env.data

    @property
    def upstream(self) -> Any:
        """Upstream's environment, for the native stepper, which reads and writes what `step` does."""
        return self._env

    @property
    def goal(self) -> Any:
        """Upstream's goal of this episode, [3]; None before the first."""
        return self._env._target_pos  # noqa: SLF001

    def reset(self, goal: F64) -> F64:
        """Start an episode at `goal` ([d], one row of the goal table); the first observation, [39]."""
        self._env._last_rand_vec = np.array(goal, dtype=np.float64)  # noqa: SLF001 - a copy: some tasks keep views of it
        observation: F64 = self._env.reset()[0]
        self._env._last_stable_obs = None  # noqa: SLF001 - the last episode's: upstream reads none before a step has set it
        return observation

    def step(self, action: F32) -> tuple[F64, float, bool, bool]:
        """(observation [39], reward, terminated, success in this step), bit for bit upstream's.

        Errors: ValueError after upstream's own 500 steps.
        """
        observation, reward, terminated, _, info = self._env.step(action)
        return observation, reward, bool(terminated), bool(info["success"])

    def snapshot(self) -> State:
        """The state between two steps, owning its memory. Errors: EnvError for an attribute that cannot be stored."""
        env = self._env
        physics = physics_of(env.model, env.data)
        model = np.concatenate([getattr(env.model, name).ravel() for name in MODEL_FIELDS])
        packed: dict[str, list[npt.NDArray[Any]]] = {}
        layout: list[list[Any]] = []
        plain: dict[str, Any] = {}
        windows: dict[str, list[Any]] = {}
        for name, value in env.__dict__.items():
            if name in OWN:
                continue
            if isinstance(value, np.ndarray) and (window := self._window(value)) is not None:
                windows[name] = window
            elif isinstance(value, float | np.ndarray | np.generic):
                array = np.asarray(value)
                kind = (
                    "array" if isinstance(value, np.ndarray) else "numpy" if isinstance(value, np.generic) else "python"
                )
                if array.dtype.kind not in "fiub":
                    raise EnvError("env.attribute-unstored", task=self.task, name=name, dtype=array.dtype)
                packed.setdefault(array.dtype.name, []).append(array.ravel())
                layout.append([name, kind, array.dtype.name, list(array.shape)])
            elif value is None or isinstance(value, bool | int | str):
                plain[name] = value
        arrays = {f"attributes.{dtype}": np.concatenate(parts) for dtype, parts in packed.items()}
        meta = {"task": self.task, "layout": layout, "plain": plain, "windows": windows}
        return State({"physics": physics, "model": model, **arrays}, meta)

    def restore(self, state: State) -> None:
        """Continue from `state`, of whichever instance of this task. Errors: EnvError where it does not fit."""
        env, meta = self._env, state.numbers
        physics, model = state.tensors["physics"], state.tensors["model"]
        sizes = [getattr(env.model, name).size for name in MODEL_FIELDS]
        if meta["task"] != self.task:
            raise EnvError("env.state-of-other-task", found=meta["task"], task=self.task)
        if physics.shape != (state_size(env.model),) or model.shape != (sum(sizes),):
            raise EnvError("env.state-of-other-version", task=self.task)
        for name, values in zip(MODEL_FIELDS, np.split(model, np.cumsum(sizes)[:-1]), strict=True):
            field = getattr(env.model, name)
            field[:] = values.reshape(field.shape)
        put_physics(env.model, env.data, physics)
        at: dict[str, int] = {}
        for name, kind, dtype, shape in meta["layout"]:
            start, count = at.get(dtype, 0), int(np.prod(shape, dtype=np.int64))
            array = state.tensors[f"attributes.{dtype}"][start : start + count].reshape(shape).copy()
            at[dtype] = start + count
            setattr(env, name, array if kind == "array" else array[()] if kind == "numpy" else array.item())
        for name, value in meta["plain"].items():
            setattr(env, name, value)
        for name, (owner, field_name, start, shape) in meta["windows"].items():
            flat = getattr(getattr(env, owner), field_name).reshape(-1)
            setattr(env, name, flat[start : start + int(np.prod(shape))].reshape(shape))

    def close(self) -> None:
        self._env.close()

    def _window(self, value: npt.NDArray[Any]) -> list[Any] | None:
        """[owner, field, first element, shape] where `value` looks into MuJoCo's memory, else None."""
        address = value.__array_interface__["data"][0]
        for owner, name, start, end, itemsize in self._memory:
            if start <= address < end:
                return [owner, name, (address - start) // itemsize, list(value.shape)]
        return None

    @cached_property
    def _memory(self) -> list[tuple[str, str, int, int, int]]:
        """(owner, field, first address, end, bytes of an element) of WINDOWS, which stay where they are."""
        found = []
        for owner, names in WINDOWS.items():
            for name in names:
                field = getattr(getattr(self._env, owner), name)
                start = field.__array_interface__["data"][0]
                found.append((owner, name, start, start + field.nbytes, field.itemsize))
        return found


class MetaworldEnv:
    """One instance of a task with its fixed goals, as a suite's. `upstream`: without, for the native stepper.

    `settings` say what is seen; left out: the state.
    """

    def __init__(self, upstream: TaskEnv, goals: F64, settings: Metaworld | None = None) -> None:
        self.upstream = upstream
        self._goals = goals
        self._settings = settings
        self._cameras: Cameras | None = None
        self._views: Views | None = None
        self._view: F64 | None = None
        if settings is not None and settings.has_pictures:
            model = upstream.simulation[0]
            for name, place in MOVED_CAMERAS.items():
                model.cam_pos[model.camera(name).id] = place
            self._views = Views(model) if settings.randomize_view else None
            kind = ("metaworld", upstream.task)
            self._cameras = Cameras(kind, model, settings.seen_by, settings.image_size)

    @property
    def simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """To draw from. Resets move bodies that are welded to the world."""
        return self.upstream.simulation

    @property
    def camera(self) -> dict[str, Any]:
        """Beside the robot, so that it hides neither gripper nor object."""
        return {"lookat": (0.0, 0.6, 0.15), "distance": 1.9, "azimuth": 145.0, "elevation": -25.0}

    @property
    def goal(self) -> Any:
        """Where the hand, the object or the handle is to come, [3]: a site of the model, and no body."""
        return self.upstream.goal

    def reset(self, start: int, seed: int) -> Obs:
        """Begin an episode at goal number `start`. `seed` decides light and the cameras' places, where those are drawn:
        Meta-World's goals are fixed.
        """
        observation = self.upstream.reset(self._goals[start]).astype(np.float32)
        if self._views is not None:
            self._look(self._views.draw(np.random.default_rng(seed)))
        return self._seen(observation)

    def step(self, action: npt.NDArray[Any]) -> Outcome:
        """Act ([4])."""
        observation, reward, terminated, success = self.upstream.step(action)
        obs = self._seen(observation.astype(np.float32))
        return Outcome(obs, reward, terminated, truncated=False, success=success)

    def snapshot(self) -> State:
        state = self.upstream.snapshot()
        return state if self._view is None else State({**state.tensors, _VIEW: self._view.copy()}, state.numbers)

    def restore(self, state: State) -> None:
        self.upstream.restore(state)
        if self._views is not None:
            self._look(np.array(state.tensors[_VIEW]))

    def close(self) -> None:
        self.upstream.close()

    def _look(self, view: F64) -> None:
        if self._views is not None:
            self._view = view
            self._views.look(self.simulation[1], view)

    def _seen(self, observation: F32) -> Obs:
        if self._cameras is None or self._settings is None:
            return {STATE: observation}
        # The model's own marks of goals lie elsewhere in some tasks, and others have none.
        picture = self._cameras.picture(self.simulation[1], tuple(self.goal))
        return seen_with(self._settings, picture, observation, OWN_NUMBERS)
