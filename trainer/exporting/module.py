"""What a policy does, as one torch module: the seam between how a policy was trained and how it is written down.

`trainer.exporting.files` writes any module of this signature. It knows no algorithm and no network.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, STATE
from trainer.errors import ConfigError
from trainer.nets.distributions import TanhNormal
from trainer.sharing.policies import Policy

#: What every exported file calls its inputs and its output.
INPUTS = ("observation", "task")
OUTPUT = "action"


class Deterministic(nn.Module):
    """observation [N, O] float32, as the environment gives it, and task [N] int64 in 0 to K-1 → action [N, A] float32.

    The action is tanh of the net's mean, scaled to the bounds `action_low` and `action_high` [A] and within them. A
    task that there is not is an error (IndexError), not a policy for no task.
    """

    one_hot: Tensor
    action_low: Tensor
    action_high: Tensor

    def __init__(self, layers: Sequence[nn.Module], tasks: int, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.register_buffer("one_hot", torch.eye(tasks), persistent=False)
        self.register_buffer("action_low", low)
        self.register_buffer("action_high", high)

    def forward(self, observation: Tensor, task: Tensor) -> Tensor:
        """Evaluate the policy."""
        x = torch.cat([observation, self.one_hot.index_select(0, task)], dim=-1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        half = (self.action_high - self.action_low) / 2
        action = torch.tanh(self.layers[-1](x)) * half + (self.action_low + half)
        return torch.minimum(torch.maximum(action, self.action_low), self.action_high)


def of_policy(policy: Policy) -> nn.Module:
    """What `policy.act_deterministic` does, as a module; a copy on the CPU. Nothing of how it explores is in it.

    Errors: ConfigError for a policy of other spaces.
    """
    spaces, distribution = policy.spec.spaces, policy.net.distribution
    if set(spaces.obs) != {STATE} or policy.net.encoders or not isinstance(distribution, TanhNormal):
        raise ConfigError("only a policy that reads one row of numbers and gives real ones can be exported yet")
    *body, last = copy.deepcopy(policy.net.body.layers).cpu()
    assert isinstance(last, nn.Linear)  # noqa: S101 - for the type checker
    mean = nn.Linear(last.in_features, distribution.size)
    with torch.no_grad():
        mean.weight.copy_(last.weight[: distribution.size])
        mean.bias.copy_(last.bias[: distribution.size])
    low, high = (torch.full((distribution.size,), bound) for bound in (ACTION_LOW, ACTION_HIGH))
    return Deterministic([*body, mean], len(spaces.tasks), low, high).eval().requires_grad_(requires_grad=False)
