"""A Gymnasium environment in the middle of its episode, as a JSON value: what its Python objects hold.

It works where the state is numbers, texts, arrays, lists and numpy generators (classic control, toy text, many of one's
own), through all wrappers, and for vectors of such (`SyncVectorEnv`). One that keeps its state elsewhere (MuJoCo, an
emulator) is refused: its episode cannot go on, and a new one has to begin.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import zip_longest
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

#: What an environment has beside its state; a new one of the same making has it too.
_CONSTANTS = (gymnasium.Space, EnvSpec, Enum)
_NAMES_OF_CONSTANTS = {"env", "env_fns", "metadata", "_metadata", "_saved_kwargs"}


def env_state(env: Any) -> list[dict[str, Any]]:
    """What `env` and each environment that it wraps hold, outermost first. Errors: TypeError: names what is unknown."""
    return [
        {name: _packed(value, f"{type(layer).__name__}.{name}") for name, value in _state_of(layer)}
        for layer in _layers(env)
    ]


def restore_env(env: Any, state: list[dict[str, Any]]) -> None:
    """Bring `env`, one of the same making that was reset once, to where `env_state` found the other one.

    Numbers that it was made with come back too: to change one of them, begin a run of its own. Errors: ValueError
    where it is made otherwise.
    """
    layers = list(_layers(env))
    if len(layers) != len(state):
        raise ValueError(f"the saved environment has {len(state)} layers, and this one {len(layers)}")
    for layer, values in zip(layers, state, strict=True):
        for name, packed in values.items():
            setattr(layer, name, _unpacked(packed, getattr(layer, name, None)))


def _layers(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = vars(env).get("env")


def _state_of(layer: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(layer).items():
        if name not in _NAMES_OF_CONSTANTS and not isinstance(value, _CONSTANTS) and not callable(value):
            yield name, value


def _packed(value: Any, where: str) -> Any:
    """`value` as JSON. What JSON does not have is an object with one key: its kind."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return {"array": [value.dtype.str, list(value.shape), value.tobytes().hex(), isinstance(value, np.generic)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        packed = [_packed(one, where) for one in value]
        return packed if isinstance(value, list) else {"tuple": packed}
    if isinstance(value, deque):
        return {"deque": [[_packed(one, where) for one in value], value.maxlen]}
    if isinstance(value, dict):
        return {"dict": [[_packed(key, where), _packed(one, where)] for key, one in value.items()]}
    if isinstance(value, np.random.Generator):
        return {"generator": _packed(value.bit_generator.state, where)}
    if isinstance(value, gymnasium.Env):
        return {"env": env_state(value)}
    raise TypeError(f"{where} is a {type(value).__module__}.{type(value).__name__}, which cannot be saved as it stands")


def _unpacked(packed: Any, there: Any) -> Any:
    """The value of `_packed`. `there`: what stands in its place now; environments are kept, and restored themselves."""
    if isinstance(packed, list):
        beside = there if isinstance(there, list) else []
        return [_unpacked(one, now) for one, now in zip_longest(packed, beside[: len(packed)])]
    if not isinstance(packed, dict):
        return packed
    [(kind, inner)] = packed.items()
    if kind == "array":
        dtype, shape, text, is_scalar = inner
        array = np.frombuffer(bytearray.fromhex(text), dtype=dtype).reshape(shape)
        return array[()] if is_scalar else array
    if kind == "float":
        return float(inner)
    if kind == "tuple":
        return tuple(_unpacked(one, None) for one in inner)
    if kind == "deque":
        return deque((_unpacked(one, None) for one in inner[0]), maxlen=inner[1])
    if kind == "dict":
        return {_unpacked(key, None): _unpacked(one, None) for key, one in inner}
    if kind == "generator":
        state = _unpacked(inner, None)
        generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
        generator.bit_generator.state = state
        return generator
    restore_env(there, inner)
    return there
