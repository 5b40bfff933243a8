"""Any environment of Gymnasium's interface: by its id, its module and id, or the class that makes it."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.config.suites import Gymnasium
from trainer.envs.exact import CHECK_S, ExactEnv, Exactness, choose_exactness
from trainer.envs.given import EnvFaultError
from trainer.envs.native.verdicts import none_natively
from trainer.envs.pictures import ready_to_draw
from trainer.envs.spaces import Obs, Spaces, drawn_actions
from trainer.envs.suite import Env, Stepper, StepperChoice, StepperUnavailableError
from trainer.envs.suites.gymnasium.arrays import ActionMap, Observations
from trainer.envs.suites.gymnasium.env import GymnasiumEnv, free
from trainer.envs.suites.gymnasium.opening import Maker, maker_of, space_of, versions_of
from trainer.envs.suites.gymnasium.sight import Sight
from trainer.errors import ConfigError

#: How Gymnasium's environments are asked for pictures.
_PICTURES = "rgb_array"
_ALONE = "Gymnasium environments step only in Python"
#: What it does first in a process is asked once: what a random player sees of success, in so many steps at most, and in
#: `CHECK_S`.
_LOOK_STEPS = 1000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Opened:
    """What is known of an environment in this process once one was made."""

    maker: Maker
    sight: Sight
    actions: ActionMap
    versions: Mapping[str, str]

    def play(self, **more: Any) -> GymnasiumEnv:
        more = {"render_mode": _PICTURES, **more} if self.sight.renders else more
        return GymnasiumEnv(self.maker(**more), self.sight, self.actions)


@cache
def _opened(key: str) -> _Opened:
    """`key`: JSON of its settings. Errors: ConfigError."""
    settings = Gymnasium.model_validate_json(key)
    env_id = settings.id
    maker = maker_of(env_id, settings.kwargs)
    env = maker()
    try:
        sight = Sight(settings, Observations(space_of(env, "observation_space", env_id), env_id))
        actions = ActionMap(space_of(env, "action_space", env_id), env_id)
        opened = _Opened(maker, sight, actions, versions_of(env, env_id))
    finally:
        free(env)
    if sight.renders:
        _must_render(opened)
    return opened


def _must_render(opened: _Opened) -> None:
    """Errors: ConfigError where it draws nothing here."""
    with closing(opened.play()) as env:
        try:
            env.reset(0)
        except EnvFaultError as error:
            raise ConfigError("gym.not-drawn", id=opened.maker.id, why=error) from None


@cache
def _choice(key: str) -> Exactness:
    """How its states are taken in this process."""
    opened = _opened(key)
    return choose_exactness(opened.play, opened.actions.space)


@cache
def _tells_success(key: str, horizon: int, clock: Callable[[], float] = time.monotonic) -> bool:
    """Whether one episode of a random player, or its first `CHECK_S`, has a word of success."""
    opened, rng, until = _opened(key), np.random.default_rng(0), clock() + CHECK_S
    with closing(opened.play()) as env, suppress(EnvFaultError):  # its player is told
        env.reset(0)
        for action in drawn_actions(rng, opened.actions.space, min(horizon, _LOOK_STEPS)):
            outcome = env.step(action)
            if env.tells_success or outcome.terminated or outcome.truncated or clock() >= until:
                break
    return env.tells_success


@cache
def _tell_of_horizon(env_id: str, horizon: int, limit: int) -> None:
    """Once a process."""
    _log.warning("%s has episodes of %d steps, but horizon truncates them at %d", env_id, limit, horizon)


class Suite:
    """One task: the environment that its settings name. Errors: ConfigError, which says what is wrong with them."""

    def __init__(self, settings: Gymnasium, seed: int = 0, cache: Path | None = None) -> None:  # noqa: ARG002 - episodes have seeds of their own
        ready_to_draw(settings)
        self._settings = settings
        # Without what changes no environment: tests, and evaluations beside a training, open one often. The horizon is
        # the shortest that its frames allow.
        told = settings.model_dump(mode="json", exclude={"tasks"}) | {"horizon": settings.frame_reach}
        self._key = json.dumps(told, sort_keys=True)
        self._opened = _opened(self._key)
        limit = self._opened.maker.limit
        if limit is not None and limit > settings.horizon:
            _tell_of_horizon(settings.id, settings.horizon, limit)
        horizon = settings.horizon if limit is None else min(settings.horizon, limit)
        self.spaces = Spaces(self._opened.sight.specs, self._opened.actions.space, settings.tasks, horizon)
        self.starts = None
        self.bounds = None

    @cached_property
    def tells_success(self) -> bool:
        """Whether its steps have `info["success"]` or `info["is_success"]`: one episode is played to see it."""
        return _tells_success(self._key, self.spaces.horizon)

    def starts_near(self, task: int, obs: Obs) -> tuple[()]:  # noqa: ARG002
        return ()

    @property
    def versions(self) -> Mapping[str, str]:
        return self._opened.versions

    def describe(self) -> Mapping[str, str]:
        kwargs = json.dumps(self._settings.kwargs, sort_keys=True)
        return {"id": self._settings.id, "kwargs": hashlib.sha256(kwargs.encode()).hexdigest()}

    def make(self, task: int) -> Env:  # noqa: ARG002 - there is one
        return ExactEnv(self._opened.play(), _choice(self._key))

    def watched(self, task: int) -> GymnasiumEnv:  # noqa: ARG002
        """One that can be drawn (`picture`). Errors: ConfigError where it cannot."""
        return self._opened.play(render_mode=_PICTURES)

    def stepped_natively(self, choice: StepperChoice) -> frozenset[int]:
        """None. Errors: as the protocol says."""
        return none_natively(choice, _ALONE)

    def stepper(
        self,
        places: int,  # noqa: ARG002 - there is none
        fields: Mapping[str, npt.NDArray[Any]],  # noqa: ARG002
        threads: int,  # noqa: ARG002
        *,
        stop_at_success: bool,  # noqa: ARG002
    ) -> Stepper:
        raise StepperUnavailableError(_ALONE)
