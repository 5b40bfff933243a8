"""What a part of a training is, as a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class State:
    """Copies that nothing changes afterwards. `tensors`, torch's or NumPy's, go into safetensors, `numbers` into JSON.
    No pickle, ever.
    """

    tensors: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


class Stateful(Protocol):
    """A part of a training. Whoever writes checkpoints knows no part by name."""

    def state(self) -> State:
        """All that `load` needs. Changes nothing."""

    def load(self, state: State) -> None:
        """Go on from there. Errors: KeyError, ValueError, RuntimeError where names, shapes or types differ."""
