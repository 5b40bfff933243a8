"""What algorithms learn, as named tensors in a checkpoint, and the random streams that they draw from."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainer.streams import seeds_of

#: How often moments are looked through, in steps: that takes as long as a step.
_LOOKED_THROUGH = 100
#: torch counts them in float32, which stays at this number: from there on they are looked through at each step.
_COUNTED = 2**24
_NOTHING = 1e-30
#: What Adam remembers of a parameter.
_ADAM = ("step", "exp_avg", "exp_avg_sq")


def torch_generator(seed: int, stream: int, *more: int) -> torch.Generator:
    """Torch's generator of a `trainer.streams.RandomStream`, at its beginning, on the CPU; `more`: as `seeds_of`."""
    words = seeds_of(seed, stream, *more).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))


def named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` as `prefix.name`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that `named` called so, by their own names."""
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


def moments_of(name: str, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What `optimizer` remembers of each parameter: `adam.<name>.<parameter>.<moment>`, whatever optimizer it is."""
    state = optimizer.state_dict()["state"]
    return {
        f"adam.{name}.{index}.{key}": value
        for index, moments in state.items()
        for key, value in moments.items()
        if isinstance(value, Tensor)
    }


def load_moments(name: str, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put `moments_of` back. Errors: RuntimeError where one is neither a number nor of its parameter's shape."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for key, tensor in under(f"adam.{name}", tensors).items():
        index, _, moment = key.partition(".")
        if tensor.ndim and tensor.shape != parameters[int(index)].shape:
            raise RuntimeError(f"adam.{name}.{key} has the shape {list(tensor.shape)}, which its parameter has not")
        state.setdefault(int(index), {})[moment] = tensor.clone()  # the optimizer would go on writing to ours
    groups: Any = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


@torch.no_grad()
def bare_step(optimizer: torch.optim.Optimizer) -> None:
    """`optimizer.step()` without what torch lays around it: a profiler, hooks, and the import of torch's compiler (more
    than a second at a job's first update), which is used nowhere here. The same operations, so the same bits.
    """
    inspect.unwrap(type(optimizer).step)(optimizer)


@torch.no_grad()
def take_step(optimizer: torch.optim.Optimizer) -> None:
    """One step of `optimizer`; each hundredth on a CPU makes moments below 1e-30 zeros.

    Those of a unit that never fires would else shrink to denormals and stay there, as 0.9 of the smallest is the
    smallest again, and processors take many times as long over each.
    """
    bare_step(optimizer)
    for parameter, moments in optimizer.state.items():
        if parameter.device.type != "cpu":
            return  # as all others; and on a GPU nothing may be read while a graph is recorded
        step = int(moments["step"])
        if step % _LOOKED_THROUGH and step < _COUNTED:
            return
        for moment in moments.values():
            if moment.ndim:
                moment.masked_fill_(moment.abs() < _NOTHING, 0.0)  # NaN stays


def check_moments(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Whether the moments among `given` can take the place of `own` ones: for each optimizer, of the same parameters
    the same, or none at all; where it has made no step, Adam's, of each parameter from the first on. Counts and mean
    squares are not below 0. Errors: ValueError.
    """
    theirs, ours = ({name for name in tensors if name.startswith("adam.")} for tensors in (given, own))
    for optimizer in {name.split(".")[1] for name in theirs}:
        prefix = f"adam.{optimizer}."
        names, had = ({name for name in these if name.startswith(prefix)} for these in (theirs, ours))
        count = len({name.removeprefix(prefix).partition(".")[0] for name in names})
        if names != (had or {f"{prefix}{index}.{kind}" for index in range(count) for kind in _ADAM}):
            raise ValueError(f"the moments of {optimizer} are not those of its parameters")
    for name in theirs:
        if name.endswith((".step", "_sq", ".square_avg")) and bool((given[name] < 0).any()):
            raise ValueError(f"{name} is below 0")


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU, for the run goes on while they are written."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def count(net: nn.Module) -> int:
    """How many numbers it learns."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)


def clip_gradients(parameters: Sequence[nn.Parameter], limit: float) -> None:
    """As `nn.utils.clip_grad_norm_`, in a third of its calls."""
    found = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([torch.linalg.vector_norm(gradient) for gradient in found]).norm()
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for gradient in found:
        gradient.mul_(scale)
