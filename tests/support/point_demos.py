"""Demonstrations of the plug-in's point masses: the player pushes at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from anchorleg_toys.settings import PointsSettings

from trainer.demos import recording
from trainer.demos.store import Demos
from trainer.envs.spaces import Actions, Box, Obs, drawn_actions
from trainer.envs.suite import SuiteRef

POINTS = "anchorleg_toys.points:Points"
#: Pixels a side.
SIZE = 16


def settings(**more: Any) -> PointsSettings:
    """With pictures, and the whole state beside."""
    seen = {"observation": "both", "image_size": SIZE, "critic_sees": "state"}
    return PointsSettings.model_validate({"name": POINTS, **seen, **more})


def recorded(out: Path, episodes: int = 3, task: str | None = None, seed: int = 0, **env: Any) -> Demos:
    """So many of each task, or of one."""
    made = settings(**env)
    rng, action = np.random.default_rng(seed), SuiteRef(made, 0).open().spaces.action
    assert isinstance(action, Box) or made.pushes == "three"

    def act(obs: Obs, task: Any) -> Actions:
        return drawn_actions(rng, action, len(task))

    teacher = recording.Teacher(f"at random, {seed}", made, act)
    return recording.record(teacher, task, episodes, seed, out, lambda *_: None, lambda _: None, keeps_failures=True)
