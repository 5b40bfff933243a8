"""The streams of chance that a program draws from, as JSON values: Python's, numpy's global one, torch's.

What is not loaded yet is not asked and not loaded. Generators of one's own are one's own to save.
"""

from __future__ import annotations

import random
import sys
from typing import Any


def random_state() -> dict[str, Any]:
    """Where each stream stands. Errors: ValueError where numpy's is of another kind than its default."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(words), gauss]}
    if (numpy := sys.modules.get("numpy")) is not None:
        found = numpy.random.get_state(legacy=False)
        if found["bit_generator"] != "MT19937":
            raise ValueError(f"numpy draws from {found['bit_generator']}; only its default, MT19937, can be saved")
        state["numpy"] = {**found, "state": {**found["state"], "key": found["state"]["key"].tolist()}}
    if (torch := sys.modules.get("torch")) is not None:
        state["torch"] = _hex(torch.get_rng_state())
        if torch.cuda.is_available():
            state["cuda"] = [_hex(one) for one in torch.cuda.get_rng_state_all()]
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Put each stream where `random_state` found it. Errors: KeyError, TypeError, ValueError: it is none of ours."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in state:
        import numpy as np

        key = np.array(state["numpy"]["state"]["key"], dtype=np.uint32)
        np.random.set_state({**state["numpy"], "state": {**state["numpy"]["state"], "key": key}})  # noqa: NPY002
    if "torch" in state:
        import torch

        torch.set_rng_state(_bytes(torch, state["torch"]))
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([_bytes(torch, one) for one in state["cuda"]])


def _hex(tensor: Any) -> str:
    return bytes(tensor.numpy()).hex()


def _bytes(torch: Any, text: str) -> Any:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
