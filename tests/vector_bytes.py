"""What a vector of environments gives, as bytes to compare, and its state by way of files."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from trainer.envs.step import VectorState


def as_bytes(record: Any) -> dict[str, bytes]:
    return {field.name: getattr(record, field.name).tobytes() for field in fields(record)}


def info_bytes(info: dict[str, Any]) -> dict[str, tuple[type, bytes]]:
    """Upstream's `info`, whose values are of Python's and of NumPy's kinds."""
    return {name: (type(value), np.asarray(value).tobytes()) for name, value in info.items()}


def through_files(state: VectorState) -> VectorState:
    return VectorState(load(save(state.arrays)), json.loads(json.dumps(state.meta, allow_nan=False)))
