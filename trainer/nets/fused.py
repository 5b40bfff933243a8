"""Nets of equal shape in one piece of memory: evaluated, differentiated and moved together.

Automatic differentiation of small nets costs as much as their products. Plain layers with ReLU need little of it, so
here both directions are written out, with every layer of all nets as one batched product; the optimizer sees one
parameter. The modules stay what they are: their parameters, and gradients, are windows into that memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from trainer.nets.mlp import MLP


class Stacked:
    """`nets` (n of them, plain, of one shape, on one device): their numbers move into `flat` [P].

    Shapes: B rows; the layers' values are [n, B, width]. A net that is moved to another device or deep-copied
    afterwards leaves the stack: stack last.
    """

    def __init__(self, nets: Sequence[MLP]) -> None:
        layers = [[cast("nn.Linear", net.layers[i]) for net in nets] for i in range(len(nets[0].layers))]
        count = len(nets)
        size = sum(parameter.numel() for net in nets for parameter in net.parameters())
        first = layers[0][0].weight
        self.flat = nn.Parameter(torch.empty(size, dtype=first.dtype, device=first.device), requires_grad=False)
        flat_gradient = torch.zeros_like(self.flat)
        self.flat.grad = flat_gradient
        self._weights: list[Tensor] = []
        self._biases: list[Tensor] = []
        self._weight_gradients: list[Tensor] = []
        self._bias_gradients: list[Tensor] = []
        at = 0
        for layer in layers:
            for windows, gradients, name in (
                (self._weights, self._weight_gradients, "weight"),
                (self._biases, self._bias_gradients, "bias"),
            ):
                parameters = [cast("nn.Parameter", getattr(linear, name)) for linear in layer]
                shape = (count, *(parameters[0].shape if name == "weight" else (1, *parameters[0].shape)))
                end = at + count * parameters[0].numel()
                window, gradient = self.flat.data[at:end].view(shape), flat_gradient[at:end].view(shape)
                for i, parameter in enumerate(parameters):
                    window[i].copy_(parameter.data)
                    parameter.data = window[i].view(parameter.shape)
                    parameter.grad = gradient[i].view(parameter.shape)
                windows.append(window)
                gradients.append(gradient)
                at = end

    @torch.no_grad()
    def forward(self, x: Tensor) -> list[Tensor]:
        """`x` [B, inputs] → every layer's values, [n, B, width]: the inputs, behind each ReLU, the outputs."""
        values = [x.expand(len(self._biases[0]), *x.shape)]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            values.append(torch.baddbmm(bias, values[-1], weight.mT).relu_())
        values.append(torch.baddbmm(self._biases[-1], values[-1], self._weights[-1].mT))
        return values

    @torch.no_grad()
    def backward(self, values: Sequence[Tensor], gradient: Tensor) -> None:
        """Leave in `flat.grad` the gradient of a loss whose derivative by the outputs is `gradient` [n, B, outputs]."""
        for i in reversed(range(len(self._weights))):
            torch.bmm(gradient.mT, values[i], out=self._weight_gradients[i])
            torch.sum(gradient, 1, keepdim=True, out=self._bias_gradients[i])
            if i:
                gradient = _through_relu(torch.bmm(gradient, self._weights[i]), values[i])

    @torch.no_grad()
    def input_gradient(self, net: int, hidden: Sequence[Tensor], gradient: Tensor) -> Tensor:
        """The derivative by the inputs [R, inputs] of net number `net` for some rows.

        `hidden`: these rows of the values behind each ReLU; `gradient` [R, outputs]: the derivative by the outputs.
        """
        gradient = gradient @ self._weights[-1][net]
        for weight, values in zip(reversed(self._weights[:-1]), reversed(hidden), strict=True):
            gradient = _through_relu(gradient, values) @ weight[net]
        return gradient


def _through_relu(gradient: Tensor, values: Tensor) -> Tensor:
    """`gradient` where `values` are positive, else 0; in place: a mask of booleans takes six times as long."""
    through: Tensor = torch.ops.aten.threshold_backward.grad_input(gradient, values, 0, grad_input=gradient)
    return through
