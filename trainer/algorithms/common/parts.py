"""What an algorithm is made of, as a checkpoint keeps it: every part by its name.

| a part | its tensors | its numbers |
|---|---|---|
| a net (`PolicyNet`: without what came from a file) | `name.<parameter>` | |
| an optimizer | `name.<parameter>.<moment>` | |
| torch's generator, a tensor | `name` | |
| an array [N] of numbers of each environment | `name` | |
| NumPy's generator, a plain number | | `name` |
| what has `as_json` and `load_json` | | `name` |
| what has `state` and `load` | `name.<its tensors>` | `name` |

A plain number is an attribute of the algorithm that is called as the part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainer.nets.policy import PolicyNet
from trainer.state import State
from trainer.streams import seeds_of


def state_of(parts: Mapping[str, Any]) -> State:
    """Copies of `parts` on the CPU, for the run goes on while they are written."""
    tensors: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for name, part in parts.items():
        match part:
            case PolicyNet():
                tensors |= copied(named(name, part.learned_state()))
            case nn.Module():
                tensors |= copied(named(name, part.state_dict()))
            case torch.optim.Optimizer():
                tensors |= copied(named(name, moments_of(part)))
            case torch.Generator():
                tensors[name] = part.get_state()
            case Tensor():
                tensors |= copied({name: part})
            case np.ndarray():
                tensors[name] = torch.from_numpy(part.copy())
            case np.random.Generator():
                numbers[name] = part.bit_generator.state
            case int() | float() | None:
                numbers[name] = part
            case _ if hasattr(part, "as_json"):
                numbers[name] = part.as_json()
            case _:
                state = part.state()
                tensors |= named(name, {key: torch.as_tensor(value) for key, value in state.tensors.items()})
                numbers[name] = dict(state.numbers)
    return State(tensors, numbers)


def load_state(owner: object, parts: Mapping[str, Any], state: State) -> None:
    """Put `state_of` these parts back; plain numbers become attributes of `owner`. Environments that were not there
    keep their numbers. Errors: KeyError, RuntimeError where names or shapes differ.
    """
    tensors, numbers = state.tensors, state.numbers
    for name, part in parts.items():
        match part:
            case PolicyNet():
                part.load_learned(under(name, tensors))
            case nn.Module():
                part.load_state_dict(under(name, tensors))
            case torch.optim.Optimizer():
                load_moments(part, name, under(name, tensors))
            case torch.Generator():
                part.set_state(tensors[name])
            case Tensor():
                part.data.copy_(tensors[name])
            case np.ndarray():
                kept = tensors[name].numpy()[: len(part)]
                part[: len(kept)] = kept
            case np.random.Generator():
                part.bit_generator.state = numbers[name]
            case int() | float() | None:
                setattr(owner, name, numbers[name])
            case _ if hasattr(part, "as_json"):
                part.load_json(numbers[name])
            case _:
                own = {key: tensor.numpy() for key, tensor in under(name, tensors).items()}
                part.load(State(own, numbers[name]))


def moments_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What `optimizer` remembers of each parameter: `<parameter>.<moment>`, whatever optimizer it is."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": value
        for index, moments in state.items()
        for key, value in moments.items()
        if isinstance(value, Tensor)
    }


def load_moments(optimizer: torch.optim.Optimizer, name: str, tensors: Mapping[str, Tensor]) -> None:
    """Put `moments_of` back. Errors: RuntimeError where one is neither a number nor of its parameter's shape."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for key, tensor in tensors.items():
        index, _, moment = key.partition(".")
        if tensor.ndim and tensor.shape != parameters[int(index)].shape:
            raise RuntimeError(f"{name}.{key} has the shape {list(tensor.shape)}, unlike its parameter")
        state.setdefault(int(index), {})[moment] = tensor.clone()  # the optimizer would go on writing to ours
    groups: Any = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def named(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """`tensors` as `prefix.name`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Those that `named` called so, by their own names."""
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def torch_generator(seed: int, stream: int, *more: int) -> torch.Generator:
    """Torch's generator of a `trainer.streams.RandomStream`, at its beginning, on the CPU; `more`: as `seeds_of`."""
    words = seeds_of(seed, stream, *more).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))


def count(net: nn.Module) -> int:
    """How many numbers it learns."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)
