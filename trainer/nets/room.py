"""Memory for nets that were built of shapes alone, on torch's meta device."""

from __future__ import annotations

import torch
from torch import nn


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
