"""What a part of a training is, as a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class State:
    """Copies that nothing changes afterwards. `tensors`, torch's or NumPy's, go into safetensors, `numbers` into JSON.
    No pickle, ever.
    """

    tensors: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
