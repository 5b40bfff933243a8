"""A policy is its spaces, its net and its distribution, whatever algorithm trained it.

Shapes: B rows, K tasks, P parameters of the distribution, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.config.network import Network
from trainer.envs.spaces import Obs, Spaces
from trainer.errors import FieldError
from trainer.nets import weights
from trainer.nets.distributions import DISTRIBUTIONS
from trainer.nets.encoders.base import arch_of, encoder_for
from trainer.nets.mlp import MLP, Trunk, with_task
from trainer.nets.normalise import Normaliser

#: How tensors of frozen encoders are named in a `state_dict`.
FROZEN = "frozen."


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
        """Numbers, strings, lists and dicts. Of an encoder that came from a file the sum, and not where it lay."""
        encoder = self.network.encoder
        told = {"weights": None, "pretrained": False, "freeze": encoder.is_frozen}
        network = self.network.model_copy(update={"encoder": encoder.model_copy(update=told)})
        return {
            "spaces": self.spaces.as_json(),
            "network": (network if encoder.weights else self.network).model_dump(mode="json"),
            "distribution": self.distribution,
            "normalises": self.normalises,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of. Errors: KeyError, TypeError, ValueError for anything else."""
        if value["distribution"] not in DISTRIBUTIONS:
            raise FieldError("distribution.unknown", found=value["distribution"], known=", ".join(DISTRIBUTIONS))
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
    one-hot task side by side, a trunk where the network has one, a body of plain layers; and the numbers of the
    distribution that nothing changes.

    Encoders that learn nothing are `frozen`: what they make of an observation is `prepared` once, and may be kept in
    its place. Weights are drawn from `generator`, on the CPU, encoders first; without one it stays on torch's `meta`
    device. Errors: FieldError where its spec cannot be built.
    """

    def __init__(self, spec: PolicySpec, generator: torch.Generator | None) -> None:
        super().__init__()
        self.spec = spec
        self.distribution = DISTRIBUTIONS[spec.distribution](spec.spaces.action)
        self.encoders, self.frozen, self.scales = ByKey(), ByKey(), ByKey()
        network, width = spec.network, 0
        for key, array in sorted(spec.spaces.obs.items()):
            encoder = encoder_for(key, array, network, generator)
            if encoder is not None and network.freezes(key):
                self.frozen[key] = encoder.requires_grad_(requires_grad=False).eval()
            elif encoder is not None:
                self.encoders[key] = encoder
            elif spec.normalises:
                self.scales[key] = Normaliser(array.shape[0], generator)
            width += array.shape[0] if encoder is None else int(encoder.features)  # type: ignore[arg-type]
        self.width = width + len(spec.spaces.tasks)
        self.trunk = Trunk(self.width, network.trunk, generator) if network.trunk else None
        free = self.distribution.free
        outputs = self.distribution.parameters - free
        self.body = MLP(
            network.trunk or self.width, network.actor_hidden, outputs, generator, activation=network.activation
        )
        if free:
            self.free = nn.Parameter(torch.zeros(free, device="meta" if generator is None else "cpu"))

    def forward(self, obs: Mapping[str, Tensor], task: Tensor) -> Tensor:
        """[B, P] parameters of the distribution, for [B, *shape] of each key and [B] tasks."""
        return self.of_inputs(self.inputs(self.prepared(obs), task))

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return self.body.layers[0].weight.device  # type: ignore[return-value]

    def outputs(self, obs: Obs, task: npt.NDArray[np.integer]) -> Tensor:
        """[N, P], for arrays as environments give them."""
        device = self.device
        seen = {key: torch.as_tensor(obs[key], device=device) for key in self.spec.spaces.obs}
        return self(seen, torch.as_tensor(task, dtype=torch.int64, device=device))  # type: ignore[no-any-return]

    def prepared(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Observations as `inputs` reads them: on a common scale, and where an encoder is frozen its features."""
        return {key: self._prepared(key, seen) for key, seen in obs.items()}

    def _prepared(self, key: str, seen: Tensor) -> Tensor:
        if key in self.frozen:
            return self.features(key, seen)
        scaled: Tensor = self.scales[key](seen) if key in self.scales else seen
        return scaled

    @torch.no_grad()
    def features(self, key: str, seen: Tensor) -> Tensor:
        """What the frozen encoder of `key` makes of [B, *shape]: [B, features]."""
        made: Tensor = self.frozen[key](seen)
        return made

    def inputs(self, prepared: Mapping[str, Tensor], task: Tensor) -> Tensor:
        """What trunk, body and critics read: [B, features + K], of `prepared` observations."""
        read = [
            self.encoders[key](prepared[key]) if key in self.encoders else prepared[key]
            for key in sorted(self.spec.spaces.obs)
        ]
        features = read[0] if len(read) == 1 else torch.cat(read, dim=-1)
        return with_task(features, task, len(self.spec.spaces.tasks))

    def of_inputs(self, inputs: Tensor) -> Tensor:
        """[B, P] parameters of the distribution."""
        return self.with_free(self.body(inputs if self.trunk is None else self.trunk(inputs)))

    def with_free(self, outputs: Tensor) -> Tensor:
        """[B, P]: the body's outputs, and the numbers that nothing changes."""
        return torch.cat([outputs, self.free.expand(len(outputs), -1)], dim=-1) if self.distribution.free else outputs

    @property
    def head(self) -> list[nn.Parameter]:
        """What is learned behind the encoders, but for `free`."""
        trunk = [] if self.trunk is None else list(self.trunk.parameters())
        return [*trunk, *self.body.parameters()]

    def learned_state(self) -> dict[str, Tensor]:
        """Its `state_dict` without what is frozen and came from a file."""
        return {name: tensor for name, tensor in self.state_dict().items() if not self._is_of_file(name)}

    def load_learned(self, tensors: Mapping[str, Tensor]) -> None:
        """Put `learned_state` back."""
        frozen = {name: tensor for name, tensor in self.state_dict().items() if self._is_of_file(name)}
        self.load_state_dict({**frozen, **tensors})

    def _is_of_file(self, name: str) -> bool:
        return name.startswith(FROZEN) and self.spec.network.encoder.weights_sha256 is not None


def frozen_tensors(spec: PolicySpec, folder: Path) -> dict[str, Tensor]:
    """What a policy has beside its `learned_state`, by the names of its `state_dict`: from the file of weights that a
    run keeps in `folder`. Errors: ConfigError where it is missing or damaged.
    """
    sha256 = spec.network.encoder.weights_sha256
    if sha256 is None:
        return {}
    file, frozen = weights.place_of(folder, sha256), PolicyNet(spec, None).frozen
    return {
        f"{FROZEN}{_module_name(key)}.{name}": tensor
        for key, array in spec.spaces.obs.items()
        if key in frozen
        for name, tensor in weights.tensors_for(frozen[key], file, arch_of(array, spec.network)).items()
    }
