"""What environments give, held against what their suite says. Those of our own suites are held against it by tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anchorleg.errors import NamedError
from trainer.config.find import SUITES, files_of
from trainer.config.settings import EnvSettings
from trainer.envs.spaces import Obs, Spaces
from trainer.envs.suite import Outcome

#: A replay keeps rewards in single precision, where a larger one would be infinite.
_LARGEST = float(np.finfo(np.float32).max)
_FLAGS = ("terminated", "truncated", "success")


class EnvFaultError(NamedError):
    """An environment raised, or gave what it must not."""


def real_reward(reward: Any) -> float:
    """`reward` as a number. Errors: EnvFaultError where it is none that can be learned from."""
    if isinstance(reward, float):  # as nearly all give it, NumPy's own too
        value = float(reward)
    else:
        array = np.asarray(reward)
        if array.dtype.kind not in "fiub" or array.size != 1:
            raise EnvFaultError("given.reward-no-number", value=repr(reward))
        value = float(array.ravel()[0])
    if not math.isfinite(value):
        raise EnvFaultError("given.reward-not-finite", value=value)
    if abs(value) > _LARGEST:
        raise EnvFaultError("given.reward-too-large", value=value)
    return value


def true_or_false(name: str, value: Any) -> bool:
    """`value`, which is called `name`. Errors: EnvFaultError where it is neither."""
    if not isinstance(value, bool | np.bool_) and value not in (0, 1):
        raise EnvFaultError("given.no-flag", name=name, value=repr(value))
    return bool(value)


class GivenCheck:
    """`spaces` of a suite, and how many measures its settings name. Errors of all methods: EnvFaultError, which begins
    with `when` and says what is wrong.
    """

    def __init__(self, spaces: Spaces, measures: int) -> None:
        self._wanted = {key: (spec.frame, np.dtype(spec.dtype)) for key, spec in spaces.obs.items()}
        self._measures = measures

    def obs(self, obs: Obs, when: str) -> None:
        """One observation, without N."""
        try:
            self._check_obs(obs)
        except EnvFaultError as error:
            raise EnvFaultError("given.at", when=when, why=error) from None

    def outcome(self, outcome: Outcome, when: str) -> Outcome:
        """All that a step gave, its reward and flags as Python's own: a checkpoint keeps no others."""
        try:
            return self._checked(outcome)
        except EnvFaultError as error:
            raise EnvFaultError("given.at", when=when, why=error) from None

    def _checked(self, outcome: Outcome) -> Outcome:
        self._check_obs(outcome.obs)
        reward = real_reward(outcome.reward)
        terminated, truncated, success = (true_or_false(name, getattr(outcome, name)) for name in _FLAGS)
        if len(outcome.measures) != self._measures:
            raise EnvFaultError("given.measures", found=len(outcome.measures), wanted=self._measures)
        return replace(outcome, reward=reward, terminated=terminated, truncated=truncated, success=success)

    def _check_obs(self, obs: Any) -> None:
        if not isinstance(obs, Mapping) or obs.keys() != self._wanted.keys():
            given = list(obs) if isinstance(obs, Mapping) else f"none: it is a {type(obs).__name__}"
            raise EnvFaultError("given.keys", found=given, wanted=list(self._wanted))
        for key, (shape, dtype) in self._wanted.items():
            array, name = obs[key], f"the observation {key!r}"
            if not isinstance(array, np.ndarray):
                raise EnvFaultError("given.no-array", name=name, kind=type(array).__name__)
            if array.shape != shape:
                raise EnvFaultError("given.shape", name=name, found=str(array.shape), wanted=str(shape))
            if array.dtype != dtype:
                if not np.can_cast(array.dtype, dtype, "same_kind"):
                    raise EnvFaultError("given.dtype", name=name, found=array.dtype, wanted=dtype)
                with np.errstate(over="ignore"):
                    array = array.astype(dtype)
            if dtype.kind == "f" and not np.isfinite(array).all():
                raise EnvFaultError("given.not-finite", name=name)


def check_of(settings: EnvSettings, spaces: Spaces) -> GivenCheck | None:
    """For the suite of somebody else that `settings` are of; None: it is one of ours."""
    return None if settings.name in files_of(SUITES) else GivenCheck(spaces, len(settings.MEASURES))
