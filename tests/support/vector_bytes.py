"""What a vector of environments gives, as bytes to compare, and its state by way of files."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from trainer.state import State


def as_bytes(record: Any) -> dict[str, bytes]:
    """Of each field that is there."""
    found = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: to_bytes(value) for name, value in found.items() if value is not None}


def to_bytes(value: Any) -> bytes:
    """An array, or observations by key, which must be in order."""
    return b"".join(array.tobytes() for array in value.values()) if isinstance(value, dict) else value.tobytes()


def info_bytes(info: dict[str, Any]) -> dict[str, tuple[type, bytes]]:
    """Upstream's `info`, whose values are of Python's and of NumPy's kinds."""
    return {name: (type(value), np.asarray(value).tobytes()) for name, value in info.items()}


def through_files(state: State) -> State:
    return State(load(save(state.tensors)), json.loads(json.dumps(state.numbers, allow_nan=False)))
