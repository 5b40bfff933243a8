"""One policy into one file: made, written beside its place, read back, compared, and only then put there.

Each of the three kinds is a whole policy: weights, what is computed with them (`.onnx`, `.pt2`; for `.safetensors` it
is in docs/watching.md), and the card. None of them names a folder or a line of source of the machine that made it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
import torch
from torch import Tensor, nn

from anchorleg.files import make_folder, write_bytes
from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, STATE, Box
from trainer.errors import ConfigError, NoGoodCheckpointError, SaveError
from trainer.evaluation.playable import Found
from trainer.exporting.card import F32, HEADS, I64, NAME, Card, Head
from trainer.nets.mlp import ACTIVATIONS
from trainer.nets.normalise import CLIP, Normaliser
from trainer.sharing.policies import Policy

#: Of the examples that a module is traced with: torch takes 0 and 1 for special numbers.
_TRACED_ROWS = 2
#: What every exported file calls its inputs and its output.
INPUTS = ("observation", "task")
OUTPUT = "action"


class Deterministic(nn.Module):
    """observation [N, O] float32, as the environment gives it, and task [N] int64 in 0 to K-1 → action [N, A] float32,
    or [N] int64 where the head is argmax.

    Numbers are scaled to the bounds `action_low` and `action_high` [A] and lie within them. `scale`: (shift, scale) [O]
    of observations, which are then cut at ±`CLIP`. A task that there is not is an error (IndexError), not a policy for
    no task.
    """

    one_hot: Tensor
    action_low: Tensor
    action_high: Tensor
    observation_shift: Tensor
    observation_scale: Tensor

    def __init__(
        self,
        layers: Sequence[nn.Module],
        tasks: int,
        low: Tensor | None = None,
        high: Tensor | None = None,
        *,
        activation: str = "relu",
        head: Head = "tanh",
        scale: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.activation, self.head, self.scales = ACTIVATIONS[activation], head, scale is not None
        self.register_buffer("one_hot", torch.eye(tasks), persistent=False)
        if low is not None and high is not None:
            self.register_buffer("action_low", low)
            self.register_buffer("action_high", high)
        if scale is not None:
            self.register_buffer("observation_shift", scale[0])
            self.register_buffer("observation_scale", scale[1])

    def forward(self, observation: Tensor, task: Tensor) -> Tensor:
        """Evaluate the policy."""
        if self.scales:
            observation = ((observation - self.observation_shift) * self.observation_scale).clamp(-CLIP, CLIP)
        x = torch.cat([observation, self.one_hot.index_select(0, task)], dim=-1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x = self.layers[-1](x)
        if self.head == "argmax":
            chosen: Tensor = x.argmax(-1)
            return chosen
        half = (self.action_high - self.action_low) / 2
        action = (torch.tanh(x) if self.head == "tanh" else x) * half + (self.action_low + half)
        return torch.minimum(torch.maximum(action, self.action_low), self.action_high)


def of_policy(policy: Policy) -> nn.Module:
    """What `policy.act_deterministic` does, as a module; a copy on the CPU. Nothing of how it explores is in it.

    Errors: ConfigError for a policy that cannot be exported.
    """
    spec, net = policy.spec, policy.net
    seen = spec.spaces.obs
    if set(seen) != {STATE} or net.encoders:
        raise ConfigError(
            "export.sees-pictures" if net.encoders else "export.other-observation", observations=", ".join(seen)
        )
    if net.trunk is not None or net.frozen:
        raise ConfigError("export.trunk-or-frozen")
    *body, last = copy.deepcopy(net.body.layers).cpu()
    assert isinstance(last, nn.Linear)  # noqa: S101 - for the type checker
    low = high = scale = None
    if isinstance(spec.spaces.action, Box):
        size = spec.spaces.action.shape[0]
        low, high = (torch.full((size,), bound) for bound in (ACTION_LOW, ACTION_HIGH))
        last = _first_rows(last, size)
    if STATE in net.scales:
        scaler = copy.deepcopy(net.scales[STATE]).cpu()
        assert isinstance(scaler, Normaliser)  # noqa: S101 - as above
        scale = scaler.shift.sum(0), scaler.scale.sum(0)
    head, activation = HEADS[spec.distribution], spec.network.activation
    module = Deterministic(
        [*body, last], len(spec.spaces.tasks), low, high, activation=activation, head=head, scale=scale
    )
    return module.eval().requires_grad_(requires_grad=False)


def _first_rows(layer: nn.Linear, size: int) -> nn.Linear:
    """The mean's outputs alone."""
    mean = nn.Linear(layer.in_features, size)
    with torch.no_grad():
        mean.weight.copy_(layer.weight[:size])
        mean.bias.copy_(layer.bias[:size])
    return mean


@dataclass(frozen=True)
class FileKind:
    """One kind of file. `make` gives its bytes; `play` reads a file and gives (its card, its actions for these rows).

    `play` is given the module for what the file does not hold itself. Errors of `make`: ModuleNotFoundError.
    """

    suffix: str
    make: Callable[[nn.Module, Card], bytes]
    play: Callable[[Path, nn.Module, F32, I64], tuple[str, F32]]


def kind_of(path: Path) -> FileKind:
    """The kind that `path` ends in. Errors: ConfigError with the kinds that there are."""
    for kind in KINDS:
        if path.suffix.lower() == kind.suffix:
            return kind
    known = [kind.suffix for kind in KINDS]
    raise ConfigError("export.out-suffix", out=path, suffixes=", ".join(known[:-1]), last=known[-1])


def make_safetensors(module: nn.Module, card: Card) -> bytes:
    """The module's tensors by name, and the card in the header."""
    tensors = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    data: bytes = safetensors.numpy.save(tensors, metadata={NAME: card.model_dump_json()})
    return data


def play_safetensors(path: Path, module: nn.Module, observation: F32, task: I64) -> tuple[str, F32]:
    """Put the file's tensors into a copy of the module."""
    # By its number: safetensors takes no path that is not UTF-8.
    with open(path, "rb") as opened, safetensors.safe_open(f"/dev/fd/{opened.fileno()}", "pt") as file:
        card = file.metadata()[NAME]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    module = copy.deepcopy(module)
    module.load_state_dict(tensors)
    return card, _acted(module, observation, task)


def make_pt2(module: nn.Module, card: Card) -> bytes:
    """A program of `torch.export` and the card as an extra file. Its tensors lie as bytes: nothing is pickled."""
    with _quiet():
        program = torch.export.export(module, _examples(card), dynamic_shapes=_any_rows(), strict=False)
    program.example_inputs = None
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(program, buffer, extra_files={f"{NAME}.json": card.model_dump_json()})
    return buffer.getvalue()


def play_pt2(path: Path, _module: nn.Module, observation: F32, task: I64) -> tuple[str, F32]:
    """Load the program."""
    card = {f"{NAME}.json": ""}
    with _quiet(), open(path, "rb") as file:
        module = torch.export.load(io.BytesIO(file.read()), extra_files=card).module()
    return card[f"{NAME}.json"], _acted(module, observation, task)


def make_onnx(module: nn.Module, card: Card) -> bytes:
    """An ONNX model and the card in its `metadata_props`. Errors: ModuleNotFoundError without onnx and onnxscript."""
    import onnx
    import onnxscript  # noqa: F401 - what torch translates with

    with _quiet():
        program = torch.onnx.export(
            module,
            _examples(card),
            dynamo=True,
            input_names=INPUTS,
            output_names=[OUTPUT],
            dynamic_shapes=_any_rows(),
            verbose=False,
        )
    if program is None:
        raise AssertionError("the exporter returned nothing")
    model = program.model_proto
    for part in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.graph.value_info):
        del part.metadata_props[:]  # where in our source it came from
    model.doc_string = f"{INPUTS[0]} [N, {card.observation.shape[0]}], {INPUTS[1]} [N] → {OUTPUT}; see {NAME}"
    onnx.helper.set_model_props(model, {NAME: card.model_dump_json()})
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data


def play_onnx(path: Path, _module: nn.Module, observation: F32, task: I64) -> tuple[str, F32]:
    """Evaluate the model by ONNX's own reference, which is numpy: onnxruntime may not be there."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load_from_string(path.read_bytes())
    card = {entry.key: entry.value for entry in model.metadata_props}[NAME]
    (actions,) = ReferenceEvaluator(model).run(None, dict(zip(INPUTS, (observation, task), strict=True)))
    return card, np.asarray(actions)


KINDS = (
    FileKind(".onnx", make_onnx, play_onnx),
    FileKind(".pt2", make_pt2, play_pt2),
    FileKind(".safetensors", make_safetensors, play_safetensors),
)


def _examples(card: Card) -> tuple[torch.Tensor, torch.Tensor]:
    observation = torch.zeros(_TRACED_ROWS, *card.observation.shape)
    return observation, torch.zeros(_TRACED_ROWS, dtype=torch.int64)


def _any_rows() -> tuple[dict[int, Any], ...]:
    """Any number of rows, the same in all inputs."""
    rows = torch.export.Dim("N")
    return tuple({0: rows} for _ in INPUTS)


@torch.no_grad()
def _acted(module: nn.Module, observation: F32, task: I64) -> F32:
    actions: npt.NDArray[np.float32] = module(torch.from_numpy(observation), torch.from_numpy(task)).numpy()
    return actions


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporters tell their own makers (torchvision is missing, a name is used twice)."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@dataclass(frozen=True)
class Exported:
    """A file that is there. `deviation`: how far its golden actions came out from the policy's, at most."""

    path: Path
    card: Card
    deviation: float


def export(found: Found, out: Path) -> Exported:
    """Write the deterministic policy `found` to `out`, whose name says the kind. Whole or not at all; replaces.

    Errors: ConfigError (an unknown kind, a folder); NoGoodCheckpointError (its weights are not finite); SaveError (the
    file cannot be written, or does not do what the policy does); ModuleNotFoundError.
    """
    kind = kind_of(out)
    if os.path.isdir(out):  # `Path.is_dir` raises for a name that is too long
        raise ConfigError("export.out-is-folder", out=out)
    module = of_policy(found.policy)
    if not all(tensor.isfinite().all() for tensor in module.state_dict().values()):
        raise NoGoodCheckpointError("export.not-finite", policy=found.name)
    card = Card.of(found)
    data = kind.make(module, card)
    observation, task = np.array(card.golden.observation, np.float32), np.array(card.golden.task, np.int64)
    deviation = math.inf

    def check(temporary: Path) -> None:
        nonlocal deviation
        text, actions = kind.play(temporary, module, observation, task)
        deviation = Card.model_validate_json(text).deviation(actions)
        if not deviation <= card.golden.tolerance:
            raise SaveError("export.acts-otherwise", out=out, deviation=deviation, tolerance=card.golden.tolerance)

    try:
        make_folder(out.absolute().parent)
        write_bytes(out, data, check=check)
    except OSError as error:
        raise SaveError("output.unwritable-file", path=out, why=error.strerror or error) from None
    return Exported(out, card, deviation)
