"""What a part of a training is, as a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: What belongs to shard s alone: tensors named `shard.<s>.…`, and numbers under "shards" by `<s>`.
_SHARD, _SHARDS = "shard", "shards"


@dataclass(frozen=True)
class State:
    """Copies that nothing changes afterwards. `tensors`, torch's or NumPy's, go into safetensors, `numbers` into JSON.
    No pickle, ever.
    """

    tensors: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


def of_shards(own: Mapping[int, State], shared: State | None = None) -> State:
    """What all shards share, and each one's own."""
    shared = shared or State()
    tensors = {f"{_SHARD}.{k}.{name}": value for k, state in own.items() for name, value in state.tensors.items()}
    numbers = {str(k): dict(state.numbers) for k, state in own.items()}
    return State({**shared.tensors, **tensors}, {**shared.numbers, _SHARDS: numbers})


def shard_of(state: State, shard: int) -> State:
    """What shard number `shard` has of its own."""
    prefix = f"{_SHARD}.{shard}."
    tensors = {name.removeprefix(prefix): value for name, value in state.tensors.items() if name.startswith(prefix)}
    return State(tensors, state.numbers[_SHARDS][str(shard)])


def shared_of(state: State) -> State:
    """What all shards share."""
    return State(
        {name: value for name, value in state.tensors.items() if not name.startswith(f"{_SHARD}.")},
        {name: value for name, value in state.numbers.items() if name != _SHARDS},
    )


def united(states: Sequence[State]) -> State:
    """One state of several that share what the first has, and have the shards of all."""
    shared = shared_of(states[0])
    tensors = {name: value for state in states for name, value in state.tensors.items() if name not in shared.tensors}
    shards = {k: numbers for state in states for k, numbers in state.numbers[_SHARDS].items()}
    own = {name: value for name, value in tensors.items() if name.startswith(f"{_SHARD}.")}
    return State({**shared.tensors, **own}, {**shared.numbers, _SHARDS: shards})
