"""A Gymnasium environment in the middle of its episode, as a JSON value: what its Python objects hold.

It works where the state is numbers, texts, enums, arrays, lists and numpy generators, through all wrappers, and for
vectors of such (`SyncVectorEnv`). What has two names (`self.rng = self.np_random`) is one thing again afterwards; an
array that shows a part of another one becomes one of its own. An environment that keeps its state elsewhere (MuJoCo, an
emulator, an object that can be called) is refused. Functions and its own methods are those of the new one.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator
from enum import Enum, Flag
from functools import partial
from itertools import zip_longest
from types import FunctionType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

#: What an environment has beside its state; a new one of the same making has it too.
_CONSTANTS = (gymnasium.Space, EnvSpec, type, FunctionType, np.ufunc)
_NAMES_OF_CONSTANTS = {"env", "env_fns", "metadata", "_metadata", "_saved_kwargs"}
#: What may have several names, and change under all of them.
_SHARED = (np.ndarray, np.random.Generator, list, dict, deque)


def env_state(env: Any) -> list[dict[str, Any]]:
    """What `env` and each environment that it wraps hold, outermost first. The order of its keys counts: keep it.

    Errors: TypeError: names what is unknown.
    """
    return _Packer().layers(env)


def restore_env(env: Any, state: list[dict[str, Any]]) -> None:
    """Bring `env`, one of the same making that was reset once, to where `env_state` found the other one.

    Numbers that it was made with come back too: to change one of them, begin a run of its own. Errors: ValueError,
    KeyError where it is made otherwise.
    """
    _Unpacker().restore(env, state)


def _layers(env: Any) -> Iterator[Any]:
    while env is not None:
        yield env
        env = vars(env).get("env")


def _is_constant(value: Any) -> bool:
    """Spaces, classes, functions and methods of environments. What else is called may have a state of its own."""
    if isinstance(value, _CONSTANTS) or not callable(value):
        return isinstance(value, _CONSTANTS)
    if isinstance(value, partial):
        given = (*value.args, *value.keywords.values())
        return _is_constant(value.func) and all(
            one is None or isinstance(one, bool | int | float | str) or _is_constant(one) for one in given
        )
    if isinstance(getattr(value, "__self__", None), gymnasium.Env | VectorEnv):
        return True
    return _named(getattr(value, "__module__", None), getattr(value, "__qualname__", "")) is value


def _named(module: str | None, name: str) -> Any:
    """What a module that is loaded has under a name with dots; None where there is no such thing."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


class _Packer:
    """One pass over an environment: what is met again is packed as the number that `_Unpacker` counts to it."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, Any]] = {}  # with the thing itself: another one shall not get its id

    def layers(self, env: Any) -> list[dict[str, Any]]:
        state: list[dict[str, Any]] = []
        for layer in _layers(env):
            state.append({})
            for name, value in vars(layer).items():
                if name not in _NAMES_OF_CONSTANTS and not _is_constant(value):
                    state[-1][name] = self._packed(value, f"{type(layer).__name__}.{name}")
        return state

    def _packed(self, value: Any, where: str) -> Any:
        if not isinstance(value, _SHARED):
            return self._whole(value, where)
        thing = value.bit_generator if isinstance(value, np.random.Generator) else value
        if id(thing) in self._met:
            return {"same": self._met[id(thing)][0]}
        packed = self._whole(value, where)
        self._met[id(thing)] = len(self._met), thing
        return packed

    def _whole(self, value: Any, where: str) -> Any:
        """`value` as JSON. What JSON does not have is an object with one key: its kind."""
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            return {"array": [value.dtype.str, list(value.shape), value.tobytes().hex(), isinstance(value, np.generic)]}
        if isinstance(value, Enum) and _named(type(value).__module__, type(value).__qualname__) is type(value):
            key = value.value if isinstance(value, Flag) else value.name  # a flag may be several: it has no name
            return {"enum": [type(value).__module__, type(value).__qualname__, key]}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
            return value
        if isinstance(value, list | tuple):
            packed = [self._packed(one, where) for one in value]
            return packed if isinstance(value, list) else {"tuple": packed}
        if isinstance(value, deque):
            return {"deque": [[self._packed(one, where) for one in value], value.maxlen]}
        if isinstance(value, dict):
            return {"dict": [[self._packed(key, where), self._packed(one, where)] for key, one in value.items()]}
        if isinstance(value, np.random.Generator):
            return {"generator": self._packed(value.bit_generator.state, where)}
        if isinstance(value, gymnasium.Env):
            return {"env": self.layers(value)}
        kind = f"{type(value).__module__}.{type(value).__name__}"
        raise TypeError(f"{where} is a {kind}, which cannot be saved")


class _Unpacker:
    """The same pass over what was packed, in the same order."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def restore(self, env: Any, state: list[dict[str, Any]]) -> None:
        layers = list(_layers(env))
        if len(layers) != len(state):
            raise ValueError(f"the saved environment has {len(state)} layers, but this one has {len(layers)}")
        for layer, values in zip(layers, state, strict=True):
            for name, packed in values.items():
                setattr(layer, name, self._unpacked(packed, getattr(layer, name, None)))

    def _unpacked(self, packed: Any, there: Any) -> Any:
        """`there`: what stands in its place now; environments are kept, and restored themselves."""
        if isinstance(packed, dict) and "same" in packed:
            return self._made[packed["same"]]
        value = self._whole(packed, there)
        if isinstance(value, _SHARED):
            self._made.append(value)
        return value

    def _whole(self, packed: Any, there: Any) -> Any:
        if isinstance(packed, list):
            beside = there if isinstance(there, list) else []
            return [self._unpacked(one, now) for one, now in zip_longest(packed, beside[: len(packed)])]
        if not isinstance(packed, dict):
            return packed
        [(kind, inner)] = packed.items()
        if kind == "array":
            dtype, shape, text, is_scalar = inner
            array = np.frombuffer(bytearray.fromhex(text), dtype=dtype).reshape(shape)
            return array[()] if is_scalar else array
        if kind == "enum":
            module, name, key = inner
            if (members := _named(module, name)) is None:
                raise ValueError(f"the saved environment has a {module}.{name}, which is unknown here")
            return members[key] if isinstance(key, str) else members(key)
        if kind == "float":
            return float(inner)
        if kind == "tuple":
            return tuple(self._unpacked(one, None) for one in inner)
        if kind == "deque":
            return deque((self._unpacked(one, None) for one in inner[0]), maxlen=inner[1])
        if kind == "dict":
            return {self._unpacked(key, None): self._unpacked(one, None) for key, one in inner}
        if kind == "generator":
            state = self._unpacked(inner, None)
            generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
            generator.bit_generator.state = state
            return generator
        self.restore(there, inner)
        return there
