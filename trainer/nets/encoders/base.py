"""What every encoder offers. `trainer/nets/encoders/<name>.py` calls its own `Encoder`; others are found as
`trainer.config.find` says. Numbers of a state need none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from trainer.config.find import ENCODERS, find
from trainer.config.settings import Network
from trainer.envs.spaces import ArraySpec, Spaces

#: What reads pictures, and clips, where nobody says what.
AUTO_PICTURES, AUTO_CLIPS = "nature", "simple3dcnn"


class Encoder(Protocol):
    """An `nn.Module` that reads one key of the observation: [B, *shape] → [B, features] float32.

    It scales uint8 itself, and draws its weights from the generator, on the CPU; without one it stays on torch's `meta`
    device: shapes, and neither numbers nor memory.
    """

    features: int

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        """Errors: ValueError, a sentence, for a shape that it cannot read."""

    def __call__(self, observed: Tensor) -> Tensor:
        """Evaluate it."""


def encoder_for(key: str, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> nn.Module | None:
    """The encoder of `key`, as `network` names it; None where the numbers are taken as they are.

    Errors: ValueError, a sentence.
    """
    name = network.encoders.get(key)
    if name is None and len(spec.shape) == 1:
        return None
    if name is None:
        name = network.encoder.arch
        name = name if name != "auto" else AUTO_CLIPS if spec.is_clip else AUTO_PICTURES
    made: nn.Module = find(ENCODERS, name)(spec, network, generator)
    return made


def is_frozen(key: str, network: Network) -> bool:
    """Whether the encoder of `key`, which has one, learns nothing."""
    return key not in network.encoders and network.encoder.is_frozen


def kept_spaces(spaces: Spaces, network: Network) -> Spaces:
    """What is kept of observations to learn from: in place of pictures what a frozen encoder makes of them."""
    kept = dict(spaces.obs)
    for key, spec in spaces.obs.items():
        if not spec.privileged and is_frozen(key, network):
            encoder = encoder_for(key, spec, network, None)
            if encoder is not None:
                kept[key] = ArraySpec((int(encoder.features),))  # type: ignore[arg-type]
    return replace(spaces, obs=kept)
