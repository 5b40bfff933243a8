"""A plan is an update of plain nets as a list of compiled steps (engine.c) on memory that stays where it is. It is
written once, in the order of the computation, and run as often as there are batches: what changes between two runs is
what lies in its tensors.

Shapes: B rows; tensors may be windows into others, whose rows lie apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.nets.engine.library import Engine, load
from trainer.nets.mlp import MLP

#: What activations are called in engine.c.
_KINDS: Mapping[Any, int] = {None: 0, torch.relu: 1, torch.tanh: 2}


class EnginePlan:
    """Steps, and what they work on."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or load()
        self._steps: list[tuple[str, Sequence[int], list[int | None]]] = []
        self._kept: list[object] = []
        self._made: Any = None

    def add(self, step: str, sizes: Sequence[int], *places: Tensor | None) -> None:
        """One more step, named as its function in engine.c: with its `n`, and tensors for its `p`."""
        self._steps.append((step, sizes, [None if place is None else place.data_ptr() for place in places]))
        self._kept.append(places)

    def run(self) -> None:
        """Make all steps."""
        if self._made is None:
            self._made = self.engine.steps(self._steps)
        self.engine.run(self._made, len(self._steps))

    def sums(self, count: int) -> Tensor:
        """Numbers (float64) that are 0 here, and to which steps add."""
        made = torch.zeros(count, dtype=torch.float64)
        self.add("reset", (count,), made)
        return made

    def column(self, source: Tensor) -> Tensor:
        """[B] numbers that lie apart, side by side."""
        made = torch.zeros(len(source))
        self.add("copy_rows", (len(made), 1, source.stride(0), 1), source, made)
        return made

    def rows(self, source: Tensor) -> Tensor:
        """[B, width] of rows that lie apart, one after the other."""
        made = torch.zeros(source.shape)
        self.add("copy_rows", (*made.shape, source.stride(0), made.stride(0)), source, made)
        return made

    def beside(self, one: Tensor, other: Tensor) -> Tensor:
        """[B, n + m] of [B, n] and [B, m]."""
        width = one.shape[1]
        made = torch.zeros(len(one), width + other.shape[1])
        for part, to in ((one, made), (other, made[:, width:])):
            sizes = (len(one), part.shape[1], part.stride(0), made.stride(0))
            self.add("copy_rows", sizes, part, to)
        return made

    def integers(self, source: Tensor) -> Tensor:
        """[B] whole numbers that lie apart, as integers."""
        made = torch.zeros(len(source), dtype=torch.int64)
        self.add("as_integers", (len(made), 1, source.stride(0)), source, made)
        return made

    def clip_norm(self, gradients: Sequence[Tensor], limit: float) -> None:
        """Make the norm of all `gradients` together at most `limit`; 0 does not."""
        if not limit:
            return
        squares, most = self.sums(1), doubles(limit)
        for gradient in gradients:
            self.add("sum_squares", (gradient.numel(),), gradient, squares)
        for gradient in gradients:
            self.add("clip", (gradient.numel(),), gradient, squares, most)


def doubles(*numbers: float) -> Tensor:
    """Settings and sums, as steps read them."""
    return torch.tensor(numbers, dtype=torch.float64)


class PlainLayer(NamedTuple):
    """weight [outputs, inputs], bias [outputs], and where their gradients go."""

    weight: Tensor
    bias: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor


def layers_of(net: MLP) -> list[PlainLayer]:
    """The first layer first. Parameters get gradients that stay where they are."""
    found = []
    for linear in net.layers:
        parts = [linear.weight, linear.bias]
        for parameter in parts:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        found.append(PlainLayer(*(part.data for part in parts), *(part.grad for part in parts)))  # type: ignore[arg-type]
    return found


class PlainNet:
    """One MLP in plans. Its weights are packed once after each change, and read by every product until the next."""

    def __init__(self, net: MLP, engine: Engine | None = None) -> None:
        self._engine = engine or load()
        self.layers, self._kind = layers_of(net), _KINDS[net.activation]
        self._forward = [self._panels(*layer.weight.shape[::-1]) for layer in self.layers]
        self._backward = [self._panels(*layer.weight.shape) for layer in self.layers]

    def pack(self, plan: EnginePlan, *, backward: bool = True) -> None:
        """The weights as they are now: whatever changed them."""
        for layer, forward, back in zip(self.layers, self._forward, self._backward, strict=True):
            outputs, inputs = layer.weight.shape
            plan.add("pack", (inputs, outputs, 1, inputs), layer.weight, forward)
            if backward:
                plan.add("pack", (outputs, inputs, inputs, 1), layer.weight, back)

    def forward(self, plan: EnginePlan, x: Tensor, last: Any = None) -> list[Tensor]:
        """`x` [B, inputs] → every layer's values [B, width]: the inputs, behind each activation, the outputs behind
        `last`, an activation or None.
        """
        values = [x]
        for at, (layer, panels) in enumerate(zip(self.layers, self._forward, strict=True)):
            x, (outputs, inputs) = values[-1], layer.weight.shape
            y = torch.zeros(len(x), outputs)
            plan.add("product", (len(x), outputs, inputs, x.stride(0), 1, outputs), x, panels, y)
            plan.add(
                "activate", (len(x), outputs, self._kind if at < len(self.layers) - 1 else _KINDS[last]), layer.bias, y
            )
            values.append(y)
        return values

    def backward(self, plan: EnginePlan, values: Sequence[Tensor], gradient: Tensor, last: Any = None) -> None:
        """Leave the gradients of weights and biases, from the derivative by the outputs [B, outputs]: it is used up.
        `last`: as in `forward`.
        """
        rows = len(gradient)
        for at in reversed(range(len(self.layers))):
            layer, x = self.layers[at], values[at]
            outputs, inputs = layer.weight.shape
            kind = self._kind if at < len(self.layers) - 1 else _KINDS[last]
            plan.add("activate_back", (rows, outputs, kind), values[at + 1], gradient, layer.bias_gradient)
            panels = self._panels(rows, inputs)
            plan.add("pack", (rows, inputs, x.stride(0), 1), x, panels)
            plan.add("product", (outputs, inputs, rows, 1, outputs, inputs), gradient, panels, layer.weight_gradient)
            if at:
                lower = torch.zeros(rows, inputs)
                plan.add("product", (rows, inputs, outputs, outputs, 1, inputs), gradient, self._backward[at], lower)
                gradient = lower

    def by_inputs(
        self, plan: EnginePlan, values: Sequence[Tensor], gradient: Tensor, first: int, picked: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The derivative by the inputs from number `first` on, of some rows, from that by the outputs [B, outputs].

        `picked`: which rows [B] (int64), and how many of them now. Returns as many [B, inputs - first], closed up.
        """
        which, count = picked
        rows, outputs = gradient.shape
        g = torch.zeros_like(gradient)
        plan.add("copy_rows", (rows, outputs, outputs, outputs), gradient, g, which, count)
        for at in reversed(range(1, len(self.layers))):
            outputs, inputs = self.layers[at].weight.shape
            lower = torch.zeros(rows, inputs)
            plan.add("product", (rows, inputs, outputs, outputs, 1, inputs), g, self._backward[at], lower, count)
            plan.add("activate_back", (rows, inputs, self._kind), values[at], lower, None, count, which)
            g = lower
        weight = self.layers[0].weight
        outputs, columns = weight.shape[0], weight.shape[1] - first
        panels, found = self._panels(outputs, columns), torch.zeros(rows, columns)
        plan.add("pack", (outputs, columns, weight.shape[1], 1), weight[:, first:], panels)
        plan.add("product", (rows, columns, outputs, outputs, 1, columns), g, panels, found, count)
        return found

    def _panels(self, depth: int, columns: int) -> Tensor:
        width = self._engine.panel_width
        return torch.zeros(depth * -(-columns // width) * width)


def optimizer_steps(plan: EnginePlan, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Add a step of torch's Adam, AdamW or RMSprop with all its parameters, whose gradients are there: its numbers and
    its state go on as torch's. Returns the numbers of each group (float64), whose first one is the rate.

    Errors: TypeError for another optimizer, or one with other options.
    """
    found = []
    for group in optimizer.param_groups:
        is_adam = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
        if not is_adam and not isinstance(optimizer, torch.optim.RMSprop):
            raise TypeError(type(optimizer).__name__)
        if is_adam and group["weight_decay"] and not isinstance(optimizer, torch.optim.AdamW):
            raise TypeError("Adam's weight decay")
        names = ("exp_avg", "exp_avg_sq") if is_adam else ("square_avg",)
        numbers = (*group["betas"], group["eps"], group["weight_decay"]) if is_adam else (group["alpha"], group["eps"])
        found.append(doubles(group["lr"], *numbers))
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state.update({name: torch.zeros_like(parameter) for name in names})
            moments = [state[name] for name in names]
            step = "adam" if is_adam else "rmsprop"
            plan.add(step, (parameter.numel(),), found[-1], parameter, parameter.grad, *moments, state["step"])
    return found
