"""A suite whose environments do one thing at their third step, or at a reset, that their suite does not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from anchorleg_toys.points import Point, Points
from anchorleg_toys.settings import PointsSettings

from trainer.envs.spaces import STATE, Actions, Obs
from trainer.envs.suite import Outcome

#: What a step gives in place of what it should.
WRONG: dict[str, dict[str, Any]] = {
    "no key": {"obs": {}},
    "another key": {"obs": {STATE: np.zeros(2, np.float32), "more": np.zeros(2, np.float32)}},
    "no dict": {"obs": np.zeros(2, np.float32)},
    "shape": {"obs": {STATE: np.zeros(1, np.float32)}},  # which NumPy would put into both places
    "list": {"obs": {STATE: [0.0, 0.0]}},
    "text": {"obs": {STATE: np.array(["a", "b"])}},
    "nan": {"obs": {STATE: np.array([0, np.nan], np.float32)}},
    "too large": {"obs": {STATE: np.array([0, 1e300])}},
    "nan reward": {"reward": float("nan")},
    "no reward": {"reward": None},
    "flag": {"truncated": "no"},
    "measures": {"measures": (1.0,)},
    "at its end": {"obs": {STATE: np.zeros(1, np.float32)}, "terminated": True},
    "numpy success": {"success": np.True_},  # as a comparison of NumPy's gives it
    "numpy arrays": {"reward": np.array([0.5]), "truncated": np.array([False]), "success": np.array([1])},
    "double": {"obs": {STATE: np.array([0.25, 0.5])}},  # as good as single: it is rounded
}


class OddPointsSettings(PointsSettings):
    """`fault`: a key of `WRONG`, "reset", or "simulation" for one that is not MuJoCo's."""

    fault: str = "none"


class OddPoint(Point):
    """As its settings say."""

    settings: OddPointsSettings

    @property
    def simulation(self) -> Any:
        return (object(), object()) if self.settings.fault == "simulation" else None

    def reset(self, start: int, seed: int) -> Obs:
        obs = super().reset(start, seed)
        return {STATE: obs[STATE][:1]} if self.settings.fault == "reset" else obs

    def step(self, action: Actions) -> Outcome:
        outcome = replace(super().step(action), terminated=False)
        return replace(outcome, **WRONG.get(self.settings.fault, {})) if self.steps == 3 else outcome


class OddPoints(Points):
    """Point masses."""

    Settings: ClassVar = OddPointsSettings

    def make(self, task: int) -> OddPoint:
        return OddPoint(float(self.goals[task]), self.settings)
