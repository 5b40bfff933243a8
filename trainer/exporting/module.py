"""What a policy does, as one torch module: the seam between how a policy was trained and how it is written down.

`trainer.exporting.export` writes any module of this signature. It knows no algorithm and no network.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, STATE, Box
from trainer.errors import ConfigError
from trainer.nets.mlp import ACTIVATIONS
from trainer.nets.normalise import CLIP, Normaliser
from trainer.sharing.policies import Policy

#: What every exported file calls its inputs and its output.
INPUTS = ("observation", "task")
OUTPUT = "action"

#: How actions come of the last layer: its tanh, or itself, both to the bounds and within them; or its largest place.
Head = Literal["tanh", "clip", "argmax"]
#: By the name of the policy's distribution.
HEADS: dict[str, Head] = {"squashed-normal": "tanh", "tanh-noise": "tanh", "normal": "clip", "categorical": "argmax"}


class Deterministic(nn.Module):
    """observation [N, O] float32, as the environment gives it, and task [N] int64 in 0 to K-1 → action [N, A] float32,
    or [N] int64 where the head is argmax.

    Numbers are scaled to the bounds `action_low` and `action_high` [A] and lie within them. `scale`: (shift, scale) [O]
    of observations, which are then cut at ±`CLIP`. A task that there is not is an error (IndexError), not a policy for
    no task.
    """

    one_hot: Tensor
    action_low: Tensor
    action_high: Tensor
    observation_shift: Tensor
    observation_scale: Tensor

    def __init__(
        self,
        layers: Sequence[nn.Module],
        tasks: int,
        low: Tensor | None = None,
        high: Tensor | None = None,
        *,
        activation: str = "relu",
        head: Head = "tanh",
        scale: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.activation, self.head, self.scales = ACTIVATIONS[activation], head, scale is not None
        self.register_buffer("one_hot", torch.eye(tasks), persistent=False)
        if low is not None and high is not None:
            self.register_buffer("action_low", low)
            self.register_buffer("action_high", high)
        if scale is not None:
            self.register_buffer("observation_shift", scale[0])
            self.register_buffer("observation_scale", scale[1])

    def forward(self, observation: Tensor, task: Tensor) -> Tensor:
        """Evaluate the policy."""
        if self.scales:
            observation = ((observation - self.observation_shift) * self.observation_scale).clamp(-CLIP, CLIP)
        x = torch.cat([observation, self.one_hot.index_select(0, task)], dim=-1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x = self.layers[-1](x)
        if self.head == "argmax":
            chosen: Tensor = x.argmax(-1)
            return chosen
        half = (self.action_high - self.action_low) / 2
        action = (torch.tanh(x) if self.head == "tanh" else x) * half + (self.action_low + half)
        return torch.minimum(torch.maximum(action, self.action_low), self.action_high)


def of_policy(policy: Policy) -> nn.Module:
    """What `policy.act_deterministic` does, as a module; a copy on the CPU. Nothing of how it explores is in it.

    Errors: ConfigError for a policy that cannot be exported.
    """
    spec, net = policy.spec, policy.net
    seen = spec.spaces.obs
    if set(seen) != {STATE} or net.encoders:
        raise ConfigError("export.other-observation", observations=", ".join(seen))
    if net.trunk is not None or net.frozen:
        raise ConfigError("export.trunk-or-frozen")
    *body, last = copy.deepcopy(net.body.layers).cpu()
    assert isinstance(last, nn.Linear)  # noqa: S101 - for the type checker
    low = high = scale = None
    if isinstance(spec.spaces.action, Box):
        size = spec.spaces.action.shape[0]
        low, high = (torch.full((size,), bound) for bound in (ACTION_LOW, ACTION_HIGH))
        last = _first_rows(last, size)
    if STATE in net.scales:
        scaler = copy.deepcopy(net.scales[STATE]).cpu()
        assert isinstance(scaler, Normaliser)  # noqa: S101 - as above
        scale = scaler.shift.sum(0), scaler.scale.sum(0)
    head, activation = HEADS[spec.distribution], spec.network.activation
    module = Deterministic(
        [*body, last], len(spec.spaces.tasks), low, high, activation=activation, head=head, scale=scale
    )
    return module.eval().requires_grad_(requires_grad=False)


def _first_rows(layer: nn.Linear, size: int) -> nn.Linear:
    """The mean's outputs alone."""
    mean = nn.Linear(layer.in_features, size)
    with torch.no_grad():
        mean.weight.copy_(layer.weight[:size])
        mean.bias.copy_(layer.bias[:size])
    return mean
