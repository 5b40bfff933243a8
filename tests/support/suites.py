"""Suites, and what learns on them, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from trainer.algorithms.mtsac import learner as sac
from trainer.buffers.rows import fields_of
from trainer.config.settings import EnvSettings
from trainer.config.suites import Metaworld
from trainer.config.training import Training
from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef, spaces_of

#: Observations of 39 numbers and actions of 4, and what a row of the replay has of them.
SPACES = Spaces({STATE: ArraySpec((39,))}, Box(4), ("a",), 500)
FIELDS = fields_of(SPACES)


def metaworld(tasks: Sequence[str], horizon: int = 500, seed: int = 0) -> SuiteRef:
    """Meta-World's `tasks` at the goals of `seed`."""
    return SuiteRef(Metaworld(tasks=tuple(tasks), horizon=horizon), seed)


def points(training: Training) -> VectorSpec:
    """The point masses (`point_mass.PointMasses`) of `training`."""
    suite = SuiteRef(EnvSettings(name="point masses", tasks=training.env.tasks, horizon=20))
    return VectorSpec(suite, training.num_envs, training.seed)


def learner_of(training: Training, device: torch.device | None = None) -> sac.Learner:
    """A fresh learner of `training`."""
    return sac.create(training, spaces_of(training), device or torch.device("cpu"))


def state_of(numbers: Any) -> dict[str, Any]:
    """Rows of numbers as observations."""
    return {STATE: numbers}


def spaces_like(tasks: Sequence[str], horizon: int = 500) -> Spaces:
    """Meta-World's, whatever the tasks are called."""
    return replace(SPACES, tasks=tuple(tasks), horizon=horizon)
