"""What every encoder offers. `trainer/nets/encoders/<name>.py` calls its own `Encoder`; others are found as
`trainer.config.find` says. Numbers of a state need none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from anchorleg.places import user_path
from trainer.config.find import ENCODERS, find
from trainer.config.network import AUTO, AUTO_CLIPS, AUTO_PICTURES, Network
from trainer.envs.spaces import ArraySpec, Spaces
from trainer.nets import weights


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

    Where `network.encoder` names a file of weights, they are in the one that it names; without a generator nothing is
    read. Errors: ValueError, a sentence; ConfigError for the file.
    """
    named = network.encoders.get(key)
    if named is None and len(spec.shape) == 1:
        return None
    name = arch_of(spec, network) if named is None else named
    kind = find(ENCODERS, name)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(  # noqa: TRY004 - as for every other name that cannot be used
            f"the encoder {name!r} is no class of torch.nn.Module: see the protocol Encoder in "
            "trainer/nets/encoders/base.py"
        )
    made: nn.Module = kind(spec, network, generator)
    if named is None and network.encoder.weights is not None and generator is not None:
        weights.load(made, user_path(network.encoder.weights), name)
    return made


def arch_of(spec: ArraySpec, network: Network) -> str:
    """Which encoder `network.encoder` is for an observation."""
    arch = network.encoder.arch
    if arch == AUTO:
        arch = AUTO_CLIPS if spec.is_clip else AUTO_PICTURES
    return arch


def kept_spaces(spaces: Spaces, network: Network) -> Spaces:
    """What is kept of observations to learn from: in place of pictures what a frozen encoder makes of them."""
    kept = dict(spaces.obs)
    for key, spec in spaces.obs.items():
        if not spec.privileged and network.freezes(key):
            encoder = encoder_for(key, spec, network, None)
            if encoder is not None:
                kept[key] = ArraySpec((int(encoder.features),))  # type: ignore[arg-type]
    return replace(spaces, obs=kept)
