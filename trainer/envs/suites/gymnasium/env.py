"""One environment of Gymnasium's interface: what goes in and comes out, every step looked at."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import gymnasium
import numpy as np

from trainer.config.find import error_location
from trainer.envs.exact import SEEDS
from trainer.envs.given import EnvFaultError, real_reward, true_or_false
from trainer.envs.spaces import Actions, Obs
from trainer.envs.suite import Outcome
from trainer.envs.suites.gymnasium.arrays import ActionMap
from trainer.envs.suites.gymnasium.sight import Sight

#: Entries of `info` that say what success is.
SUCCESS = ("success", "is_success")

_log = logging.getLogger(__name__)


@cache
def _tell_of_closing(name: str, why: str) -> None:
    """Once a process."""
    _log.warning("an environment (%s) cannot be closed: %s", name, why)


def free(upstream: gymnasium.Env[Any, Any]) -> None:
    """Close it. One that cannot be closed is told, and no error: nobody plays it any more."""
    try:
        upstream.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code
        _tell_of_closing(type(upstream.unwrapped).__name__, error_location(error))


class GymnasiumEnv:
    """`upstream` with the trainer's observations and actions. Errors of `reset` and `step`: EnvFaultError."""

    def __init__(self, upstream: gymnasium.Env[Any, Any], sight: Sight, actions: ActionMap) -> None:
        self.upstream = upstream
        #: Whether it has told of success so far.
        self.tells_success = False
        self._sight = sight
        self._actions = actions
        if sight.renders and (found := self.simulation) is not None:
            # Each costs as much as all else, and multisampling differs from context to context.
            quality = found[0].vis.quality
            quality.offsamples = quality.shadowsize = 0

    @property
    def simulation(self) -> tuple[Any, Any] | None:
        """MuJoCo's model and data, to draw from, where it is one of MuJoCo's."""
        core = self.upstream.unwrapped
        found = getattr(core, "model", None), getattr(core, "data", None)
        return found if tuple(type(each).__name__ for each in found) == ("MjModel", "MjData") else None

    @property
    def camera(self) -> Any:
        """Where Gymnasium's own pictures are taken from, as `trainer.envs.shown` has it."""
        return getattr(getattr(self.upstream.unwrapped, "mujoco_renderer", None), "default_cam_config", None)

    @property
    def goal(self) -> Any:
        """The goal of an environment that has goals (`gymnasium_robotics`), as `trainer.envs.shown` has it."""
        return getattr(self.upstream.unwrapped, "goal", None)

    def reset(self, seed: int) -> Obs:
        try:
            given = self.upstream.reset(seed=seed % SEEDS)
        except (Exception, SystemExit) as error:
            raise EnvFaultError("given.raised", why=error_location(error)) from error
        if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)):
            raise EnvFaultError("given.reset")
        self._success(given[1])
        return self._read(given[0])

    def step(self, action: Actions) -> Outcome:
        try:
            given = self.upstream.step(self._actions.to_env(action))
        except (Exception, SystemExit) as error:
            raise EnvFaultError("given.raised", why=error_location(error)) from error
        if not (isinstance(given, tuple) and len(given) == 5 and isinstance(given[4], Mapping)):
            raise EnvFaultError("given.step")
        obs, reward, terminated, truncated, info = given
        return Outcome(
            self._read(obs),
            real_reward(reward),
            terminated=true_or_false("terminated", terminated),
            truncated=true_or_false("truncated", truncated),
            success=self._success(info),
        )

    def picture(self) -> Any:
        """What it draws, uint8 [H, W, 3]. Errors: EnvFaultError where it draws nothing."""
        viewer = getattr(getattr(self.upstream.unwrapped, "mujoco_renderer", None), "viewer", None)
        try:
            if viewer is not None:
                viewer.make_context_current()  # Gymnasium draws into whichever context was made last
            drawn = np.asarray(self.upstream.render())
        except (Exception, SystemExit) as error:
            raise EnvFaultError("given.raised", why=error_location(error)) from error
        if drawn.dtype != np.uint8 or drawn.ndim != 3 or drawn.shape[2] != 3:
            raise EnvFaultError("given.render", dtype=drawn.dtype, shape=str(drawn.shape))
        return drawn

    def close(self) -> None:
        free(self.upstream)

    def _read(self, obs: Any) -> Obs:
        return self._sight.of(obs, self.picture)

    def _success(self, info: Mapping[str, Any]) -> bool:
        told = [info[name] for name in SUCCESS if name in info]
        self.tells_success = self.tells_success or bool(told)
        return any(bool(np.any(value)) for value in told)
