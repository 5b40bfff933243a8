"""What several benches make: a fresh learner of multi-task SAC, and what its update takes of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainer.algorithms.base import Context
from trainer.algorithms.common.multitask import Inputs, inputs_of
from trainer.algorithms.common.sharding import Sample
from trainer.algorithms.mtsac import MTSAC
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.training import Training
from trainer.envs.spaces import Spaces


def fresh(training: Training, spaces: Spaces) -> MTSAC:
    """On the CPU, with a replay that stays empty."""
    return MTSAC(Context(training, spaces, 1, torch.device("cpu"), Experience(training, spaces)))


def prepared(learner: MTSAC, batch: Batch) -> Inputs:
    """With the noise that is drawn for its update."""
    return inputs_of(Sample(batch, learner.draw(batch, learner.noise)), learner.device)


def learn(algorithm: Any, batch: Batch) -> Tensor:
    """One update of `batch`, whatever the replay of an off-policy algorithm has."""
    measured: Tensor = algorithm.learn(algorithm.off_policy.shared(batch, algorithm.draw, algorithm.noise))
    return measured
