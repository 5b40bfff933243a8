"""TimeSformer, attention over time and then over space (Bertasius et al. 2021, arXiv 2102.05095), in its base size.

Tensors have the names of Hugging Face's `TimesformerModel` (transformers/models/timesformer, Apache-2.0), so that its
files are read as they are; its `classifier` is not part of this.

Shapes: M clips, T frames, P squares of a frame, D numbers of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.config.network import ARCHES, RGB, Network
from trainer.envs.spaces import ArraySpec
from trainer.nets.encoders import common

#: Of brightness in [0, 1], the same for every colour (facebookresearch/TimeSformer, `timesformer/config/defaults.py`).
MEAN, DEVIATION = 0.45, 0.225
_NORM_EPS = 1e-6
_DRAWN_DEVIATION = 0.02
_PLACES, _MOMENTS = "embeddings.position_embeddings", "embeddings.time_embeddings"


class Encoder(nn.Module):
    """[B, T, C, H, W] → [B, features of each camera]: one net for all cameras; the token that stands for all."""

    NAME: ClassVar[str] = "timesformer"
    WIDTH: ClassVar[int] = 768
    LAYERS: ClassVar[int] = 12
    HEADS: ClassVar[int] = 12

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:  # noqa: ARG002
        super().__init__()
        common.check(self.NAME, spec)
        self.spec = spec
        self.cameras = common.cameras_of(spec)
        self.features = self.cameras * self.WIDTH
        square = ARCHES[self.NAME].square(min(spec.frame[1:]))
        self.grid = (spec.frame[1] // square, spec.frame[2] // square)
        self.embeddings = _Embeddings(self.WIDTH, square, math.prod(self.grid), spec.shape[0])
        layers = nn.ModuleList(_Layer(self.WIDTH, self.HEADS) for _ in range(self.LAYERS))
        self.encoder = nn.ModuleDict({"layer": layers})
        self.layernorm = _norm(self.WIDTH)
        common.draw(self, generator, _narrow)

    def forward(self, observed: Tensor) -> Tensor:
        clips = common.each_camera(common.brightness(observed, self.spec), self.cameras)
        token, tokens = self.embeddings((clips - MEAN) / DEVIATION)
        for layer in self.encoder["layer"].children():
            token, tokens = layer(token, tokens)
        features: Tensor = self.layernorm(token)
        return features.reshape(len(observed), self.features)

    @property
    def config(self) -> Mapping[str, Any]:
        """What Hugging Face's description of this net says, as far as no shape shows it."""
        return {
            "model_type": "timesformer",
            "attention_type": "divided_space_time",
            "num_attention_heads": self.HEADS,
            "hidden_act": "gelu",
            "layer_norm_eps": _NORM_EPS,
        }

    def fitted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`tensors`, those of places brought to this grid (bicubic) and those of moments to this length (linear).

        transformers does neither for a clip that is longer than its config says, and is silently wrong.
        """
        found = dict(tensors)
        places, moments = found.get(_PLACES), found.get(_MOMENTS)
        if places is not None and places.dim() == 3 and places.shape[1] - 1 != math.prod(self.grid):
            side = math.isqrt(max(0, places.shape[1] - 1))
            if side and side * side == places.shape[1] - 1:
                grid = places[:, 1:].float().transpose(1, 2).reshape(1, -1, side, side)
                there = functional.interpolate(grid, self.grid, mode="bicubic", align_corners=False)
                found[_PLACES] = torch.cat([places[:, :1].float(), there.flatten(2).transpose(1, 2)], 1)
        if moments is not None and moments.dim() == 3 and moments.shape[1] != self.spec.shape[0]:
            line = moments.float().transpose(1, 2)
            then = functional.interpolate(line, self.spec.shape[0], mode="linear", align_corners=False)
            found[_MOMENTS] = then.transpose(1, 2)
        return found


class _Embeddings(nn.Module):
    """[M, T, 3, H, W] → the token of all [M, D], and [M, P, T, D]."""

    def __init__(self, width: int, square: int, places: int, frames: int) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.empty(1, 1, width, device="meta"))
        self.position_embeddings = nn.Parameter(torch.empty(1, 1 + places, width, device="meta"))
        self.time_embeddings = nn.Parameter(torch.empty(1, frames, width, device="meta"))
        self.patch_embeddings = nn.ModuleDict({"projection": nn.Conv2d(RGB, width, square, square, device="meta")})

    def forward(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        squares = self.patch_embeddings["projection"](clips.flatten(0, 1)).flatten(2)  # [M · T, D, P]
        tokens = squares.reshape(*clips.shape[:2], *squares.shape[1:]).permute(0, 3, 1, 2)
        tokens = tokens + self.position_embeddings[0, 1:].unsqueeze(1) + self.time_embeddings[0]
        token = (self.cls_token + self.position_embeddings[:, :1])[0]
        return token.expand(len(clips), -1), tokens


class _Layer(nn.Module):
    """The token of all [M, D] and [M, P, T, D] → the same shapes."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.temporal_layernorm = _norm(width)
        self.temporal_attention = _Attention(width, heads)
        self.temporal_dense = nn.Linear(width, width, device="meta")
        self.layernorm_before = _norm(width)
        self.attention = _Attention(width, heads)
        self.layernorm_after = _norm(width)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, 4 * width, device="meta")})
        self.output = nn.ModuleDict({"dense": nn.Linear(4 * width, width, device="meta")})

    def forward(self, token: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        clips, places, frames, width = tokens.shape
        over_time = self.temporal_attention(self.temporal_layernorm(tokens.flatten(0, 1)))
        tokens = tokens + self.temporal_dense(over_time).view(tokens.shape)
        # A frame's squares, and before them the token of all, as every frame sees it.
        each = torch.cat([token.view(clips, 1, 1, width).expand(-1, frames, -1, -1), tokens.transpose(1, 2)], 2)
        over_space = self.attention(self.layernorm_before(each.flatten(0, 1))).view(clips, frames, 1 + places, width)
        token = token + over_space[:, :, 0].mean(1)
        tokens = tokens + over_space[:, :, 1:].transpose(1, 2)
        return token + self._mixed(token), tokens + self._mixed(tokens)

    def _mixed(self, tokens: Tensor) -> Tensor:
        inner = functional.gelu(self.intermediate["dense"](self.layernorm_after(tokens)))
        mixed: Tensor = self.output["dense"](inner)
        return mixed


class _Attention(nn.Module):
    """[rows, n, D] → the same shape: each of n tokens looks at all of its row."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width, device="meta")})
        self.output = nn.ModuleDict({"dense": nn.Linear(width, width, device="meta")})

    def forward(self, tokens: Tensor) -> Tensor:
        rows, count, width = tokens.shape
        qkv = self.attention["qkv"](tokens).reshape(rows, count, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each [rows, heads, n, D / heads]
        # Written out: torch's fused kernels have no deterministic way back on a GPU.
        weights = (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5).softmax(-1)
        seen: Tensor = self.output["dense"]((weights @ value).transpose(1, 2).flatten(2))
        return seen


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=_NORM_EPS, device="meta")


def _narrow(layer: nn.Module, generator: torch.Generator) -> None:
    """As its authors draw it: truncated normal, of deviation 0.02, and no biases."""
    drawn: list[Tensor] = []
    if isinstance(layer, nn.Linear | nn.Conv2d):
        drawn = [layer.weight]
        if layer.bias is not None:
            layer.bias.zero_()
    elif isinstance(layer, _Embeddings):
        drawn = [layer.cls_token, layer.position_embeddings, layer.time_embeddings]
    for tensor in drawn:
        nn.init.trunc_normal_(tensor, std=_DRAWN_DEVIATION, generator=generator)
