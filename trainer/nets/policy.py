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
from trainer.nets.normalise import Normaliser


@dataclass(frozen=True)
class PolicySpec:
    """All that a policy is built from, and what a manifest says of it. `distribution`: of `DISTRIBUTIONS`.
    `normalises`: it brings rows of numbers to one scale itself.
    """

    spaces: Spaces
    network: Network
    distribution: str
    normalises: bool = False

    def as_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts."""
        return {
            "spaces": self.spaces.as_json(),
            "network": self.network.model_dump(mode="json"),
            "distribution": self.distribution,
            "normalises": self.normalises,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of. Errors: KeyError, TypeError, ValueError for anything else."""
        if value["distribution"] not in DISTRIBUTIONS:
            raise ValueError(f"distribution is {value['distribution']!r}; this version has {', '.join(DISTRIBUTIONS)}")
        spaces, network = Spaces.from_json(value["spaces"]), Network.model_validate(value["network"])
        return cls(spaces, network, value["distribution"], bool(value.get("normalises", False)))


class ByKey(nn.ModuleDict):
    """Modules by the key of an observation, which may be a name that torch allows no module: one with a dot, `type`."""

    def __getitem__(self, key: str) -> nn.Module:
        return super().__getitem__(_module_name(key))

    def __setitem__(self, key: str, module: nn.Module) -> None:
        super().__setitem__(_module_name(key), module)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(_module_name(str(key)))


def _module_name(key: str) -> str:
    is_plain = key.isidentifier() and key != "training" and not hasattr(nn.ModuleDict, key)
    return key if is_plain else f"key_{key.encode().hex()}"


class PolicyNet(nn.Module):
    """An encoder for each key that needs one, a scale for the others where the spec wants it, their features and the
    one-hot task side by side, a body of plain layers; and the numbers of the distribution that nothing changes.

    Weights are drawn from `generator`, on the CPU, encoders first; without one it stays on torch's `meta` device.
    Errors: ValueError, a sentence, where its spec cannot be built.
    """

    def __init__(self, spec: PolicySpec, generator: torch.Generator | None) -> None:
        super().__init__()
        self.spec = spec
        self.distribution = DISTRIBUTIONS[spec.distribution](spec.spaces.action)
        self.encoders = ByKey()
        self.scales = ByKey()
        width = 0
        for key, array in sorted(spec.spaces.obs.items()):
            encoder = encoder_for(key, array, spec.network, generator)
            if encoder is not None:
                self.encoders[key] = encoder
            elif spec.normalises:
                self.scales[key] = Normaliser(array.shape[0], generator)
            width += array.shape[0] if encoder is None else int(encoder.features)  # type: ignore[arg-type]
        self.width = width + len(spec.spaces.tasks)
        free, network = self.distribution.free, spec.network
        outputs = self.distribution.parameters - free
        self.body = MLP(self.width, network.actor_hidden, outputs, generator, activation=network.activation)
        if free:
            self.free = nn.Parameter(torch.zeros(free, device="meta" if generator is None else "cpu"))

    def forward(self, obs: Mapping[str, Tensor], task: Tensor) -> Tensor:
        """[B, P] parameters of the distribution, for [B, *shape] of each key and [B] tasks."""
        return self.with_free(self.body(self.inputs(self.scaled(obs), task)))

    def scaled(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Observations on the scale that `inputs` reads."""
        return {key: self.scales[key](seen) if key in self.scales else seen for key, seen in obs.items()}

    def with_free(self, outputs: Tensor) -> Tensor:
        """[B, P]: the body's outputs, and the numbers that nothing changes."""
        return torch.cat([outputs, self.free.expand(len(outputs), -1)], dim=-1) if self.distribution.free else outputs

    def inputs(self, obs: Mapping[str, Tensor], task: Tensor) -> Tensor:
        """What the body reads: [B, features + K], of `scaled` observations."""
        read = [
            self.encoders[key](obs[key]) if key in self.encoders else obs[key] for key in sorted(self.spec.spaces.obs)
        ]
        features = read[0] if len(read) == 1 else torch.cat(read, dim=-1)
        return with_task(features, task, len(self.spec.spaces.tasks))
