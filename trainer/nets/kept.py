"""What learning keeps of each row of a batch until its gradient is known: what a batch takes in memory, beforehand."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from trainer.envs.spaces import ArraySpec

#: Of one row some views need no copy that more rows need, so that two are the fewest that are like all others.
_FEWEST = 2


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
