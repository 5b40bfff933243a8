"""Suites, and what learns on them, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainer.algorithms.base import Algorithm, Context
from trainer.algorithms.common.cuda_graph import KERNELS
from trainer.algorithms.mtsac import MTSAC
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch, fields_of
from trainer.config.settings import EnvSettings
from trainer.config.suites import Metaworld
from trainer.config.training import Training
from trainer.envs.spaces import STATE, Actions, ArraySpec, Box, Obs, Spaces
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


def learner_of(training: Training, device: torch.device | None = None, way: str = KERNELS) -> MTSAC:
    """A fresh learner of `training`."""
    spaces = spaces_of(training)
    experience = Experience(training, spaces)
    return MTSAC(Context(training, spaces, training.num_envs, device or torch.device("cpu"), experience, way))


def learn(algorithm: Any, batch: Batch) -> Tensor:
    """One update of `batch`, whatever the replay has."""
    off_policy = algorithm.off_policy
    measured: Tensor = algorithm.learn(off_policy.shared(batch, algorithm.draw, algorithm.noise))
    return measured


@torch.no_grad()
def act_deterministic(algorithm: Algorithm, obs: Obs, task: Any) -> Actions:
    """What its policy does where nothing is to be tried."""
    policy = algorithm.policy
    actions: Actions = policy.distribution.mode(policy.outputs(obs, task)).cpu().numpy()
    return actions


def state_of(numbers: Any) -> dict[str, Any]:
    """Rows of numbers as observations."""
    return {STATE: numbers}


def spaces_like(tasks: Sequence[str], horizon: int = 500) -> Spaces:
    """Meta-World's, whatever the tasks are called."""
    return replace(SPACES, tasks=tuple(tasks), horizon=horizon)
