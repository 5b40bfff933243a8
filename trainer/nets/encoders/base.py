"""What every encoder offers, which one reads an observation, and what it takes. `trainer/nets/encoders/<name>.py` calls
its own `Encoder`; others are found as `trainer.config.find` says. Numbers of a state need none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from anchorleg.places import user_path
from anchorleg.words import did_you_mean
from trainer.config.find import ENCODERS, find
from trainer.config.network import AUTO, AUTO_CLIPS, AUTO_PICTURES, Network
from trainer.envs.spaces import ArraySpec, Spaces
from trainer.errors import FieldError
from trainer.nets import weights

#: Of one row some views need no copy that more rows need, so that two are the fewest that are like all others.
_FEWEST = 2


class Encoder(Protocol):
    """An `nn.Module` that reads one key of the observation: [B, *shape] → [B, features] float32.

    It scales uint8 itself, and draws its weights from the generator, on the CPU; without one it stays on torch's `meta`
    device: shapes, and neither numbers nor memory.
    """

    features: int

    def __init__(self, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> None:
        """Errors: ValueError for a shape that it cannot read."""

    def __call__(self, observed: Tensor) -> Tensor:
        """Evaluate it."""


def encoder_for(key: str, spec: ArraySpec, network: Network, generator: torch.Generator | None) -> nn.Module | None:
    """The encoder of `key`, as `network` names it; None where the numbers are taken as they are.

    Where `network.encoder` names a file of weights, they are in the one that it names; without a generator nothing is
    read. Errors: ValueError; ConfigError for the file.
    """
    named = network.encoders.get(key)
    if named is None and len(spec.shape) == 1:
        return None
    name = arch_of(spec, network) if named is None else named
    kind = find(ENCODERS, name)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise FieldError("encoder.no-module", name=name)
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


def check_encoders(network: Network, spaces: Spaces) -> None:
    """Only an environment itself knows all that the policy sees. Errors: FieldError where there is an encoder for a key
    that it does not see, or a file of weights that nothing reads.
    """
    seen = spaces.of_policy.obs
    for key in network.encoders:
        if key not in seen:
            raise FieldError("encoder.unseen-key", key=key, hint=did_you_mean(key, seen))
    reads = any(len(spec.shape) != 1 for key, spec in seen.items() if key not in network.encoders)
    if network.encoder.weights is not None and not reads:
        raise FieldError("weights.read-by-nothing", seen=", ".join(sorted(seen)))


def kept_bytes(module: nn.Module, spec: ArraySpec) -> int:
    """Bytes that autograd keeps of one row's forward pass through `module`, [B, *spec.shape] → anything: measured on
    torch's `meta` device, wherever `module` is, without its numbers and without memory. Storage is counted once,
    weights are not. 0 where nothing of it learns, and of a module that cannot be evaluated without numbers.

    What a processor needs beside it (workspaces, gradients) is not in it.
    """
    try:
        fewest, more = (_kept(module, spec, rows) for rows in (_FEWEST, _FEWEST + 1))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):  # an encoder of a user's own may read numbers
        return 0
    return more - fewest


def _kept(module: nn.Module, spec: ArraySpec, rows: int) -> int:
    """Bytes that are kept of `rows`, with what does not depend on them."""
    kept: list[Tensor] = []  # tensors, so that no storage is freed, and its place taken by another one

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.detach())
        return tensor

    shapes: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        shapes[name] = torch.empty_like(parameter, device="meta").requires_grad_(parameter.requires_grad)
    for name, buffer in module.named_buffers():
        shapes[name] = torch.empty_like(buffer, device="meta")
    seen = torch.empty(rows, *spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
    with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        made = torch.func.functional_call(module, shapes, (seen,))
    del made
    storages = {storage._cdata: storage.nbytes() for storage in (t.untyped_storage() for t in kept)}  # noqa: SLF001
    return sum(storages.values())
