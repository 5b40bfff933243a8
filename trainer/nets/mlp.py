"""Plain multi-layer perceptrons, initialised from an explicit generator, and what they read beside observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

#: What stands between the layers, by the name that a config has for it.
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class MLP(nn.Module):
    """Linear layers with an activation between them: [B, inputs] → [B, outputs].

    Weights and biases are uniform in ±1/sqrt(fan-in), torch's own default for `nn.Linear`, drawn from `generator`
    instead of the global stream. Without one it stays on the meta device: shapes, and neither numbers nor memory.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        generator: torch.Generator | None,
        *,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        widths = [inputs, *hidden, outputs]
        self.activation = ACTIVATIONS[activation]
        self.layers = nn.ModuleList(nn.Linear(a, b, device="meta") for a, b in pairwise(widths))
        if generator is None:
            return
        make_room(self)
        with torch.no_grad():
            for layer, fan_in in zip(self.layers, widths, strict=False):
                for parameter in layer.parameters():
                    parameter.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        out: Tensor = self.layers[-1](x)
        return out


def orthogonal(net: MLP, generator: torch.Generator, last: float, gain: float = math.sqrt(2)) -> None:
    """Draw its weights anew: orthogonal, of `gain`, in the last layer of gain `last`; no biases.

    What PPO's implementations have in common (Huang et al. 2022, "The 37 implementation details of PPO", detail 2).
    """
    with torch.no_grad():
        for layer in cast("list[nn.Linear]", list(net.layers)):
            nn.init.orthogonal_(layer.weight, last if layer is net.layers[-1] else gain, generator=generator)
            layer.bias.zero_()


def flattened(nets: Sequence[MLP]) -> nn.Parameter:
    """The numbers of plain `nets` of one shape, on one device, in one piece [P], into which they move: layer by layer,
    of each the weights of all nets, then their biases. So are the gradients, in its `grad`.

    An optimizer has one parameter then. A net that is moved to another device or deep-copied afterwards leaves it.
    """
    first = cast("nn.Linear", nets[0].layers[0]).weight
    size = sum(parameter.numel() for net in nets for parameter in net.parameters())
    flat = nn.Parameter(torch.empty(size, dtype=first.dtype, device=first.device), requires_grad=False)
    flat.grad, at = torch.zeros_like(flat), 0
    for layers in zip(*(cast("list[nn.Linear]", list(net.layers)) for net in nets), strict=True):
        for name in ("weight", "bias"):
            for parameter in (cast("nn.Parameter", getattr(layer, name)) for layer in layers):
                end = at + parameter.numel()
                window = flat.data[at:end].view(parameter.shape)
                window.copy_(parameter.data)
                parameter.data, parameter.grad = window, flat.grad[at:end].view(parameter.shape)
                at = end
    return flat


class Trunk(nn.Module):
    """[B, inputs] → [B, outputs] between -1 and 1: linear, layer normalisation, tanh. It brings many features down to a
    few before plain layers (DrQ-v2, Yarats et al. 2021, arXiv 2107.09645).

    Without a generator it has shapes and no numbers, as an `MLP`.
    """

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.linear = MLP(inputs, (), outputs, generator)
        self.norm = nn.LayerNorm(outputs, device="meta" if generator is None else "cpu")

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.linear(features)))


def with_task(obs: Tensor, task: Tensor, num_tasks: int) -> Tensor:
    """[B, O] and [B] → [B, O + K]: the observation and the one-hot task."""
    # Not by `one_hot`, which reads the smallest and the largest task back.
    one_hot = task.unsqueeze(-1) == torch.arange(num_tasks, device=task.device)
    return torch.cat([obs, one_hot.to(obs.dtype)], dim=-1)


def make_room(module: nn.Module) -> None:
    """Memory on the CPU, with whatever is in it, for what of `module` is on the meta device.

    As `nn.Module.to_empty`, which imports sympy for it: 800 modules at each job's start.
    """
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if parameter.is_meta:
                room = torch.empty(parameter.shape, dtype=parameter.dtype)
                setattr(part, name, nn.Parameter(room, requires_grad=parameter.requires_grad))
        for name, buffer in list(part.named_buffers(recurse=False)):
            if buffer.is_meta:
                setattr(part, name, torch.empty(buffer.shape, dtype=buffer.dtype))
