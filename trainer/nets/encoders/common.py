"""What the encoders of pictures and clips share.

Shapes: B rows, m cameras, T frames, C channels, H and W pixels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from trainer.config.network import RGB, refusal
from trainer.envs.spaces import ArraySpec
from trainer.nets.mlp import make_room

_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)  # noqa: SLF001 - the base of all three
_UINT8_WHITE = 255.0


def check(name: str, spec: ArraySpec) -> None:
    """Errors: FieldError where the encoder `name` reads no such observations."""
    if (why := refusal(name, spec.shape)) is not None:
        raise why


def brightness(observed: Tensor, spec: ArraySpec) -> Tensor:
    """float32 in [0, 1], of uint8 or of floats whose bounds are known; other floats are taken as they are."""
    if observed.dtype == torch.uint8:
        return observed.float() / _UINT8_WHITE
    if np.isfinite(spec.low) and np.isfinite(spec.high) and spec.high > spec.low:
        return (observed - spec.low) / (spec.high - spec.low)
    return observed


def cameras_of(spec: ArraySpec) -> int:
    """How many colour pictures lie behind each other in a frame; 1 where it has no colours."""
    channels = spec.frame[0]
    return 1 if channels % RGB else channels // RGB


def each_camera(clips: Tensor, cameras: int) -> Tensor:
    """[B, T, m · C, H, W] → [B · m, T, C, H, W]: one camera's clip a row."""
    rows, frames, channels, *size = clips.shape
    apart = clips.reshape(rows, frames, cameras, channels // cameras, *size)
    return apart.transpose(1, 2).flatten(0, 1)


def convolutions(channels: int, layers: Sequence[tuple[int, int, int]]) -> nn.Sequential:
    """Plain ones with ReLU behind each, on the meta device. `layers`: (channels out, kernel, stride) of each."""
    made = nn.Sequential()
    for out, kernel, stride in layers:
        made.append(nn.Conv2d(channels, out, kernel, stride, device="meta")).append(nn.ReLU())
        channels = out
    return made


def flat(net: nn.Module, shape: Sequence[int]) -> int:
    """How many numbers `net`, on the meta device, makes of one observation of `shape`.

    A copy is tried on zeros: a pass on the meta device would import torch's compiler, a second of each job's start.
    """
    tried = copy.deepcopy(net)
    make_room(tried)
    with torch.no_grad():
        made: Tensor = tried(torch.zeros(1, *shape))
    return made.numel()


def draw(
    module: nn.Module, generator: torch.Generator | None, weight: Callable[[nn.Module, torch.Generator], None]
) -> None:
    """Bring it from the meta device to the CPU and draw its numbers, layer by layer in its own order; nothing without a
    generator. Norms are 1 and 0, whatever `weight` does with other layers.
    """
    if generator is None:
        return
    make_room(module)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, _NORMS):
                layer.reset_parameters()
            elif isinstance(layer, nn.GRU):
                for parameter in layer.parameters():
                    parameter.uniform_(-(layer.hidden_size**-0.5), layer.hidden_size**-0.5, generator=generator)
            else:
                weight(layer, generator)


def orthogonal(layer: nn.Module, generator: torch.Generator) -> None:
    """Orthogonal weights of gain sqrt(2), no biases: as DrQ-v2, and as PPO's implementations have in common."""
    if isinstance(layer, nn.Linear | nn.Conv2d | nn.Conv3d):
        nn.init.orthogonal_(layer.weight, math.sqrt(2), generator=generator)
        if layer.bias is not None:
            layer.bias.zero_()


def uniform(layer: nn.Module, generator: torch.Generator) -> None:
    """Weights and biases uniform in ±1/sqrt(fan-in), torch's own default: where blocks are added to what goes past
    them, larger ones would grow from block to block.
    """
    if isinstance(layer, nn.Linear | nn.Conv2d):
        bound = layer.weight[0].numel() ** -0.5
        for parameter in layer.parameters(recurse=False):
            parameter.uniform_(-bound, bound, generator=generator)


def drawn_moves(count: int, most: int, generator: torch.Generator) -> Tensor:
    """[count, 2] whole pixels (down, right), up to `most` either way. `generator`: on the CPU.

    Pictures that are moved at random keep critics from learning them by heart (DrQ, Kostrikov et al. 2021, arXiv
    2004.13649), there by bilinear sampling; whole pixels need no interpolation, whose backward has no fixed order on a
    GPU.
    """
    return torch.randint(-most, most + 1, (2, count), generator=generator).T.contiguous()


def shifted(pictures: Tensor, moves: Tensor) -> Tensor:
    """[B, …, H, W], each row moved by its `moves` [B, 2], which are on the CPU; its border is repeated. All frames of a
    row are moved alike.
    """
    count, (height, width) = len(pictures), pictures.shape[-2:]
    if pictures.device.type == "cpu":  # one by one, which is quicker there than a look-up of each pixel
        moved = torch.empty_like(pictures)
        for row, (down, right) in enumerate(moves.tolist()):
            rows = torch.arange(down, down + height).clamp_(0, height - 1)
            columns = torch.arange(right, right + width).clamp_(0, width - 1)
            torch.index_select(pictures[row].index_select(-2, rows), -1, columns, out=moved[row])
        return moved
    rows, columns = (
        (torch.arange(size) + move[:, None]).clamp_(0, size - 1).to(pictures.device)
        for size, move in zip((height, width), moves.T, strict=True)
    )
    row_of = torch.arange(count, device=pictures.device)
    flat = pictures.reshape(count, -1, height, width).permute(0, 2, 3, 1)
    moved = flat[row_of[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).reshape(pictures.shape)
