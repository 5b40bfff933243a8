"""Meta-World's own scripted policies (`metaworld.policies`), one a task."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from metaworld.policies import ENV_POLICY_MAP

from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, F32


class Scripted:
    """The action [4] for a whole state [39]."""

    def __init__(self, task: str) -> None:
        policy: Any = ENV_POLICY_MAP[task]
        self._policy = policy()

    def __call__(self, state: F32) -> F32:
        """Evaluate it, within the bounds that the environment would cut it to."""
        with warnings.catch_warnings():  # it warns where it pushes further than it can: cut below
            warnings.simplefilter("ignore")
            action = self._policy.get_action(state.astype(np.float64))
        return np.clip(np.asarray(action, np.float32), ACTION_LOW, ACTION_HIGH)
