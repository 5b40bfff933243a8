"""A policy is its spaces, its net and its distribution, whatever algorithm trained it.

Shapes: B rows, K tasks, P parameters of the distribution, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from trainer.config.settings import Network
from trainer.envs.spaces import Spaces
from trainer.nets.distributions import DISTRIBUTIONS
from trainer.nets.encoders.base import encoder_for
from trainer.nets.inputs import with_task
from trainer.nets.mlp import MLP


@dataclass(frozen=True)
class PolicySpec:
    """All that a policy is built from, and what a manifest says of it. `distribution`: of `DISTRIBUTIONS`."""

    spaces: Spaces
    network: Network
    distribution: str

    def as_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts."""
        return {
            "spaces": self.spaces.as_json(),
            "network": self.network.model_dump(mode="json"),
            "distribution": self.distribution,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of. Errors: KeyError, TypeError, ValueError for anything else."""
        if value["distribution"] not in DISTRIBUTIONS:
            raise ValueError(f"distribution is {value['distribution']!r}; this version has {', '.join(DISTRIBUTIONS)}")
        return cls(Spaces.from_json(value["spaces"]), Network.model_validate(value["network"]), value["distribution"])


class PolicyNet(nn.Module):
    """An encoder for each key that needs one, their features and the one-hot task side by side, a body of plain layers.

    Weights are drawn from `generator`, on the CPU, encoders first; without one it stays on torch's `meta` device.
    Errors: ValueError, a sentence, where its spec cannot be built.
    """

    def __init__(self, spec: PolicySpec, generator: torch.Generator | None) -> None:
        super().__init__()
        self.spec = spec
        self.distribution = DISTRIBUTIONS[spec.distribution](spec.spaces.action)
        self.encoders = nn.ModuleDict()
        width = 0
        for key, array in sorted(spec.spaces.obs.items()):
            encoder = encoder_for(key, array, spec.network, generator)
            if encoder is not None:
                self.encoders[key] = encoder
            width += array.shape[0] if encoder is None else int(encoder.features)  # type: ignore[arg-type]
        inputs = width + len(spec.spaces.tasks)
        self.body = MLP(inputs, spec.network.actor_hidden, self.distribution.parameters, generator)

    def forward(self, obs: Mapping[str, Tensor], task: Tensor) -> Tensor:
        """[B, P] parameters of the distribution, for [B, *shape] of each key and [B] tasks."""
        out: Tensor = self.body(self.inputs(obs, task))
        return out

    def inputs(self, obs: Mapping[str, Tensor], task: Tensor) -> Tensor:
        """What the body reads: [B, features + K]."""
        read = [
            self.encoders[key](obs[key]) if key in self.encoders else obs[key] for key in sorted(self.spec.spaces.obs)
        ]
        features = read[0] if len(read) == 1 else torch.cat(read, dim=-1)
        return with_task(features, task, len(self.spec.spaces.tasks))
