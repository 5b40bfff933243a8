"""The precision of an update's products ("Automatic Mixed Precision" in torch's notes).

With bf16 what goes into matrix products is rounded to bfloat16, which has float32's range and 8 bits of its mantissa:
so no loss needs to be scaled. Parameters, moments, targets and sums over a batch stay float32.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from trainer.config.settings import OffPolicySettings
from trainer.errors import ConfigError

#: Whether the GPU here has instructions for it.
_ON_GPU: Callable[[], bool] = partial(torch.cuda.is_bf16_supported, including_emulation=False)


def rounding(settings: OffPolicySettings, device: torch.device) -> AbstractContextManager[object]:
    """In which updates are made. Rounded weights are not kept: a CUDA graph would go on with the first ones."""
    if settings.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def must_be_had(settings: OffPolicySettings, device: torch.device, on_gpu: Callable[[], bool] = _ON_GPU) -> None:
    """Errors: ConfigError where the GPU has no bfloat16."""
    if settings.precision == "bf16" and device.type == "cuda" and not on_gpu():
        raise ConfigError("algorithm.no-bf16")
