"""Where the state of an environment is, case by case: what can be put back without playing its episode again.

| what | its state |
| --- | --- |
| an environment that offers `snapshot()` and `restore(state)` | what it says |
| ALE without sticky actions | the emulator's system state, which has its random state |
| Gymnasium's own MuJoCo environments | the integration state, what MuJoCo derived from it, the few own numbers |
| one with an emulator at `pyboy` | the emulator's saved state, the own numbers |

With each the state of `np_random`, and the steps that a `TimeLimit` has counted. A state is put into an instance that
was reset with its episode's seed, so what an episode does not change is there already. Where a part is not known, such
as a wrapper with a memory, there is no way here, and the episode is played again (`trainer.envs.exact`).
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainer.state import State

#: Wrappers of Gymnasium of which everything is known: the first two only look on.
KNOWN_WRAPPERS = frozenset({"OrderEnforcing", "PassiveEnvChecker", "TimeLimit"})
#: Attributes that say what an instance is, not where its episode stands; `_np_random` is kept for all alike.
_OWN = frozenset({"_ezpickle_args", "_ezpickle_kwargs", "_np_random", "metadata", "spec"})
#: Packages whose objects are parts of an instance. MuJoCo's and PyBoy's change, and are kept by their own means.
_PARTS = frozenset({"gymnasium", "mujoco", "pathlib", "pyboy"})
#: ALE's system state lacks the action that it repeats with this probability [measured: 4 of 40 went on otherwise].
_STICKY = "repeat_action_probability"
_CODE = (BuiltinFunctionType, FunctionType, MethodType, ModuleType, type)
#: Arrays of `mjData` that have another size at each step: MuJoCo makes them anew before it reads them.
_MADE_ANEW = ("_", "efc_", "iefc")


class SnapshotWay(Protocol):
    """How the state of one instance is taken and put back. Errors of both: whatever they like."""

    @property
    def name(self) -> str:
        """What a state says of how it was taken."""

    def take(self) -> State:
        """Copies, as files can keep them."""

    def put(self, state: State) -> None:
        """Into an instance that was reset with the episode's seed."""


def way_of(env: Any) -> SnapshotWay | None:
    """The way of `env`, which has Gymnasium's interface; None where it is not sure that one would have everything."""
    core, limits = env.unwrapped, []
    while env is not core:
        kind = type(env)
        if kind.__name__ not in KNOWN_WRAPPERS or not kind.__module__.startswith("gymnasium.wrappers."):
            return None
        if kind.__name__ == "TimeLimit":
            limits.append(env)
        env = env.env
    inner = _inner(core)
    return None if inner is None else _Whole(core, limits, inner)


def _inner(core: Any) -> SnapshotWay | None:
    module = type(core).__module__
    if callable(getattr(core, "snapshot", None)) and callable(getattr(core, "restore", None)):
        return _OwnSnapshot(core)
    if module.startswith("ale_py.") and hasattr(core, "ale"):
        return _Ale(core) if core.ale.getFloat(_STICKY) == 0 else None
    if module.startswith("gymnasium.envs.mujoco.") and type(getattr(core, "data", None)).__name__ == "MjData":
        return _Mujoco(core) if _is_clear(core) else None
    emulator = getattr(core, "pyboy", None)
    if callable(getattr(emulator, "save_state", None)) and callable(getattr(emulator, "load_state", None)):
        return _GameBoy(core) if _is_clear(core, "pyboy") else None
    return None


class _Whole:
    """`inner`, and what every environment of Gymnasium has beside it."""

    def __init__(self, core: Any, limits: list[Any], inner: SnapshotWay) -> None:
        self.name = inner.name
        self._core, self._limits, self._inner = core, limits, inner

    def take(self) -> State:
        state = self._inner.take()
        rng = self._core.__dict__.get("_np_random")
        numbers = {
            "inner": dict(state.numbers),
            "rng": None if rng is None else rng.bit_generator.state,
            "elapsed": [limit._elapsed_steps for limit in self._limits],  # noqa: SLF001 - it has no other name
        }
        return State(state.tensors, numbers)

    def put(self, state: State) -> None:
        self._inner.put(State(state.tensors, state.numbers["inner"]))
        if state.numbers["rng"] is not None:
            self._core.np_random.bit_generator.state = state.numbers["rng"]
        for limit, steps in zip(self._limits, state.numbers["elapsed"], strict=True):
            limit._elapsed_steps = steps  # noqa: SLF001


class _OwnSnapshot:
    """An environment that knows best: a dict of arrays and of what JSON can say."""

    name = "own"

    def __init__(self, core: Any) -> None:
        self._core = core

    def take(self) -> State:
        told = self._core.snapshot()
        if not isinstance(told, Mapping):
            raise TypeError(f"snapshot() gives a {type(told).__name__}, not a dict of arrays and JSON values")
        arrays = {str(key): value for key, value in told.items() if isinstance(value, np.ndarray | np.generic)}
        return State(
            {key: np.array(value) for key, value in arrays.items()},
            {
                "values": _copied({str(key): value for key, value in told.items() if key not in arrays}),
                "scalars": _scalars(arrays),
            },
        )

    def put(self, state: State) -> None:
        scalars = state.numbers["scalars"]
        arrays = {key: array[()] if key in scalars else np.array(array) for key, array in state.tensors.items()}
        self._core.restore({**_copied(state.numbers["values"]), **arrays})


class _Ale:
    """Stella's memory, its processor, its random state; ale-py writes them as bytes of its own."""

    name = "ale"

    def __init__(self, core: Any) -> None:
        self._core = core

    def take(self) -> State:
        return State({"system": np.frombuffer(self._core.ale.cloneSystemState().serialize(), np.uint8)})

    def put(self, state: State) -> None:
        kind = sys.modules["ale_py"].ALEState
        self._core.ale.restoreSystemState(kind(state.tensors["system"].tobytes()))


class _Mujoco:
    """What MuJoCo integrates from, and what it derived before: some rewards are taken from where bodies were."""

    name = "mujoco"

    def __init__(self, core: Any) -> None:
        import mujoco

        self._core = core
        self._mujoco = mujoco
        self._what = mujoco.mjtState.mjSTATE_INTEGRATION
        self._attributes = _Attributes(core)
        data = core.data
        names = [name for name in dir(data) if not name.startswith(_MADE_ANEW)]
        arrays = {name: getattr(data, name) for name in names}
        self._derived = [
            name for name, array in arrays.items() if isinstance(array, np.ndarray) and array.dtype == np.float64
        ]

    def take(self) -> State:
        model, data = self._core.model, self._core.data
        physics = np.empty(self._mujoco.mj_stateSize(model, self._what))
        self._mujoco.mj_getState(model, data, physics, self._what)
        derived = np.concatenate([getattr(data, name).ravel() for name in self._derived])
        own = self._attributes.take()
        return State({**own.tensors, "physics": physics, "derived": derived}, own.numbers)

    def put(self, state: State) -> None:
        model, data = self._core.model, self._core.data
        tensors = dict(state.tensors)
        physics, derived = tensors.pop("physics"), tensors.pop("derived")
        fields = [getattr(data, name) for name in self._derived]
        sizes = [field.size for field in fields]
        if physics.shape != (self._mujoco.mj_stateSize(model, self._what),) or derived.shape != (sum(sizes),):
            raise ValueError("its state belongs to another version of MuJoCo or another model")
        self._attributes.put(State(tensors, state.numbers))
        self._mujoco.mj_setState(model, data, np.ascontiguousarray(physics), self._what)
        for field, values in zip(fields, np.split(derived, np.cumsum(sizes)[:-1]), strict=True):
            field[...] = values.reshape(field.shape)


class _GameBoy:
    """An emulator that saves its state into a file."""

    name = "pyboy"

    def __init__(self, core: Any) -> None:
        self._core = core
        self._attributes = _Attributes(core, "pyboy")

    def take(self) -> State:
        file = io.BytesIO()
        self._core.pyboy.save_state(file)
        own = self._attributes.take()
        return State({**own.tensors, "emulator": np.frombuffer(file.getvalue(), np.uint8)}, own.numbers)

    def put(self, state: State) -> None:
        tensors = dict(state.tensors)
        self._core.pyboy.load_state(io.BytesIO(tensors.pop("emulator").tobytes()))
        self._attributes.put(State(tensors, state.numbers))


class _Attributes:
    """The plain attributes of an instance: numbers, text, arrays, and lists of them."""

    def __init__(self, core: Any, *parts: str) -> None:
        """`parts`: attributes that are kept by other means."""
        self._core = core
        self._parts = frozenset(parts)
        self._tuples = {name: value for name, value in vars(core).items() if isinstance(value, tuple)}

    def take(self) -> State:
        """Errors: TypeError for one that has become something else."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        values: dict[str, Any] = {}
        tuples = []
        for name, value in vars(self._core).items():
            match "part" if name in self._parts else _kind(name, value):
                case "array" | "scalar":
                    arrays[f"attribute.{name}"] = np.array(value)
                case "tuple":
                    values[name] = _copied(list(value))
                    tuples.append(name)
                case "limits" if value is self._tuples.get(name):
                    continue  # as it was made
                case "json":
                    values[name] = _copied(value)
                case "limits" | "unknown":
                    raise TypeError(f"its attribute {name!r} is a {type(value).__name__}")
        scalars = [name for name in arrays if isinstance(vars(self._core)[name.removeprefix("attribute.")], np.generic)]
        return State(arrays, {"values": values, "tuples": tuples, "scalars": scalars})

    def put(self, state: State) -> None:
        core, told = self._core, state.numbers
        for name, value in _copied(told["values"]).items():
            setattr(core, name, tuple(value) if name in told["tuples"] else value)
        for key, array in state.tensors.items():
            name = key.removeprefix("attribute.")
            before = vars(core).get(name)
            if key in told["scalars"]:
                setattr(core, name, array[()])
            elif isinstance(before, np.ndarray) and before.flags.writeable and _is_alike(before, array):
                before[...] = array  # it may be a window into the simulator's memory
            else:
                setattr(core, name, np.array(array))


def _is_clear(core: Any, *parts: str) -> bool:
    """Whether of every attribute but `parts` it is known how it is kept."""
    return all(_kind(name, value) != "unknown" for name, value in vars(core).items() if name not in parts)


def _kind(name: str, value: Any) -> str:
    """array, scalar, tuple, json; limits: a tuple that may have an infinite one; part: it is kept by other means, or
    never changes; else unknown.
    """
    if name in _OWN:
        return "part"
    if isinstance(value, np.ndarray | np.generic):
        return ("array" if isinstance(value, np.ndarray) else "scalar") if value.dtype.kind in "fiub" else "unknown"
    if _is_json(value):
        return "json"
    if isinstance(value, tuple) and _is_json(list(value)):
        return "tuple"
    if isinstance(value, tuple) and all(isinstance(one, float | int) for one in value):
        return "limits"
    if isinstance(value, _CODE) or type(value).__module__.partition(".")[0] in _PARTS:
        return "part"
    return "unknown"


def _copied(value: Any) -> Any:
    """As it is read back from a file: the environment goes on with its own. Errors: TypeError, ValueError."""
    return json.loads(json.dumps(value, allow_nan=False))


def _is_json(value: Any) -> bool:
    """Whether it comes out of a file as it went in."""
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False


def _is_alike(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _scalars(arrays: Mapping[str, Any]) -> list[str]:
    return [key for key, value in arrays.items() if isinstance(value, np.generic)]
