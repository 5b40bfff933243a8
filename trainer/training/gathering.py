"""What a checkpoint and a row of metrics need of all ranks, brought to rank 0, which writes them.

One writer means one temporary folder and one rename, as with one rank: no half of a checkpoint can be there. What goes
over is what is written to the disk anyway, at checkpoints alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from torch import Tensor

from trainer.machine.group import Group
from trainer.state import State, shared_of, united

_LENGTH_BYTES = 8


def gathered(group: Group, parts: Mapping[str, State]) -> dict[str, State]:
    """`parts`, each with the shards of all ranks, on rank 0; elsewhere as they are.

    What the shards share must be the same everywhere. Errors: RanksError, naming the ranks where it is not.
    """
    if group.size == 1:
        return dict(parts)
    shared = {name: shared_of(state) for name, state in parts.items()}
    must_be_the_same(group, shared)
    own = parts if group.is_first else {name: _own_of(state, shared[name]) for name, state in parts.items()}
    others = [unpacked(data) for data in group.collect(b"" if group.is_first else packed(own))[1:]]
    return {name: united([state, *(other[name] for other in others)]) for name, state in parts.items()}


def gathered_numbers(group: Group, own: Mapping[int, State]) -> dict[int, State]:
    """States without tensors of all shards in their order, on rank 0; elsewhere nothing."""
    told = group.collect(json.dumps({str(shard): dict(state.numbers) for shard, state in own.items()}).encode())
    return {int(shard): State({}, numbers) for data in told for shard, numbers in json.loads(data).items()}


def must_be_the_same(group: Group, parts: Mapping[str, State]) -> None:
    """Errors: RanksError, naming the ranks where `parts` differ from those of rank 0."""
    if group.size > 1:
        group.must_agree("the parameters, or what belongs to them,", _digest(parts))


def _own_of(state: State, shared: State) -> State:
    tensors = {name: tensor for name, tensor in state.tensors.items() if name not in shared.tensors}
    return State(tensors, {name: value for name, value in state.numbers.items() if name not in shared.numbers})


def _digest(shared: Mapping[str, State]) -> bytes:
    sha = hashlib.sha256()
    for part, state in sorted(shared.items()):
        for name in sorted(state.tensors):
            array = _array(state.tensors[name])
            sha.update(f"{part} {name} {array.dtype} {array.shape}".encode() + array.tobytes())
        sha.update(json.dumps(state.numbers, sort_keys=True).encode())
    return sha.digest()


def packed(parts: Mapping[str, State]) -> bytes:
    """For `unpacked`."""
    numbers = json.dumps({name: dict(state.numbers) for name, state in parts.items()}).encode()
    tensors = {f"{name}/{key}": _array(t) for name, state in parts.items() for key, t in state.tensors.items()}
    kinds = {name: any(isinstance(t, Tensor) for t in state.tensors.values()) for name, state in parts.items()}
    head = json.dumps([len(numbers), kinds]).encode()
    return len(head).to_bytes(_LENGTH_BYTES, "little") + head + numbers + safetensors.numpy.save(tensors)


def unpacked(data: bytes) -> dict[str, State]:
    """As it was packed: torch's tensors are torch's again."""
    at = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    length, of_torch = json.loads(data[_LENGTH_BYTES:at])
    numbers = json.loads(data[at : at + length])
    tensors: dict[str, dict[str, Any]] = {name: {} for name in numbers}
    for name, array in safetensors.numpy.load(data[at + length :]).items():
        part, _, key = name.partition("/")
        tensors[part][key] = torch.from_numpy(array.copy()) if of_torch[part] else array
    return {name: State(tensors[name], numbers[name]) for name in numbers}


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    return np.asarray(tensor.numpy() if isinstance(tensor, Tensor) else tensor, order="C")
