"""Nets of equal shape in one piece of memory: evaluated, differentiated and moved together.

Automatic differentiation of small nets costs as much as their products. Plain layers need little of it, so
here both directions are written out, with every layer of all nets as one batched product; the optimizer sees one
parameter. The modules stay what they are: their parameters, and gradients, are windows into that memory.

Beside them what an actor needs of the way back: through its draw of an action, and through the smallest of its critics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.nets.distributions import gaussian, log_prob
from trainer.nets.mlp import MLP

#: Rows times the numbers of the largest layer: OpenBLAS takes a second thread from 2^18 products on.
_FEW = 2**17


class Layer(NamedTuple):
    """Of one net, windows into the memory of its stack: weight [outputs, inputs], bias [outputs], and gradients."""

    weight: Tensor
    bias: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor


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
        self.gradient = torch.zeros_like(self.flat)
        self.flat.grad = self.gradient
        self._weights: list[Tensor] = []
        self._biases: list[Tensor] = []
        self._weight_gradients: list[Tensor] = []
        self._bias_gradients: list[Tensor] = []
        self._activate, self._back, self._activate_few = _IN_PLACE[nets[0].activation]
        at = 0
        for layer in layers:
            for windows, gradients, name in (
                (self._weights, self._weight_gradients, "weight"),
                (self._biases, self._bias_gradients, "bias"),
            ):
                parameters = [cast("nn.Parameter", getattr(linear, name)) for linear in layer]
                shape = (count, *(parameters[0].shape if name == "weight" else (1, *parameters[0].shape)))
                end = at + count * parameters[0].numel()
                window, gradient = self.flat.data[at:end].view(shape), self.gradient[at:end].view(shape)
                for i, parameter in enumerate(parameters):
                    window[i].copy_(parameter.data)
                    parameter.data = window[i].view(parameter.shape)
                    parameter.grad = gradient[i].view(parameter.shape)
                windows.append(window)
                gradients.append(gradient)
                at = end
        is_one = count == 1 and first.device.type == "cpu"
        self._largest = max(weight.numel() for weight in self._weights) if is_one else 0
        pairs = zip(self._weights, self._biases, strict=True)
        self._views = [(weight[0].numpy().T, bias[0].numpy()) for weight, bias in pairs] if is_one else []

    def layers_of(self, net: int) -> list[Layer]:
        """Of net number `net`, the first layer first."""
        parts = self._weights, self._biases, self._weight_gradients, self._bias_gradients
        return [Layer(w[net], b[net, 0], gw[net], gb[net, 0]) for w, b, gw, gb in zip(*parts, strict=True)]

    @torch.no_grad()
    def forward(self, x: Tensor) -> list[Tensor]:
        """`x` [B, inputs] → every layer's values, [n, B, width]: the inputs, behind each activation, the outputs."""
        values = [x.expand(len(self._biases[0]), *x.shape)]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            values.append(self._activate(torch.baddbmm(bias, values[-1], weight.mT)))
        values.append(torch.baddbmm(self._biases[-1], values[-1], self._weights[-1].mT).float())
        return values

    def is_quick_for(self, rows: int) -> bool:
        """Whether `forward_few` is the quicker one: on a CPU, for one net and products that NumPy's library makes on
        one thread, so that their bits depend on no number of cores.
        """
        return 0 < rows * self._largest <= _FEW

    def forward_few(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """`x` [B, inputs] → the outputs [B, outputs] of the one net, by NumPy: for few rows torch's calls cost three
        times as much as what they do.
        """
        for layer, (weight, bias) in enumerate(self._views):
            x = x @ weight
            x += bias
            if layer < len(self._views) - 1:
                self._activate_few(x, x)
        return x

    @torch.no_grad()
    def backward(self, values: Sequence[Tensor], gradient: Tensor, *, to_inputs: bool = False) -> Tensor:
        """Leave in `flat.grad` the gradient of a loss whose derivative by the outputs is `gradient` [n, B, outputs].

        Returns the derivative by the inputs [n, B, inputs] where it is wanted, else nothing of use.
        """
        for i in reversed(range(len(self._weights))):
            _product(gradient.mT, values[i], self._weight_gradients[i])
            torch.sum(gradient, 1, keepdim=True, dtype=self.flat.dtype, out=self._bias_gradients[i])
            if i:
                gradient = self._back(torch.bmm(gradient, self._weights[i]), values[i])
        return torch.bmm(gradient, self._weights[0]) if to_inputs else gradient

    @torch.no_grad()
    def input_gradient(self, net: int, hidden: Sequence[Tensor], gradient: Tensor) -> Tensor:
        """The derivative by the inputs [R, inputs] of net number `net` for some rows.

        `hidden`: these rows of the values behind each ReLU; `gradient` [R, outputs]: the derivative by the outputs.
        """
        gradient = gradient @ self._weights[-1][net]
        for weight, values in zip(reversed(self._weights[:-1]), reversed(hidden), strict=True):
            gradient = self._back(gradient, values) @ weight[net]
        return gradient.float()


@dataclass(frozen=True)
class Draw:
    """What `draw` made, and what `output_gradient` needs of the way there. All but `log_prob` [B] are [B, A]."""

    action: Tensor
    log_prob: Tensor
    step: Tensor
    """Standard deviation times noise."""
    within: Tensor
    """1 where log_std is what the net gave, 0 where that was cut off."""


def draw(outputs: Tensor, noise: Tensor) -> Draw:
    """As `distributions.gaussian` and `sample`, from the outputs [B, 2 A] of the actor's body."""
    mean, log_std = gaussian(outputs)
    within = (log_std == outputs[..., log_std.shape[-1] :]).to(outputs.dtype)
    step = log_std.exp().mul_(noise)
    u = mean + step
    return Draw(torch.tanh(u), log_prob(u, log_std, noise), step, within)


def output_gradient(drawn: Draw, action_gradient: Tensor, density_gradient: Tensor) -> Tensor:
    """The derivative by the body's outputs [B, 2 A] of a loss with `action_gradient` [B, A] and `density_gradient` [B].

    With a = tanh u the log density changes by 2 a with u (the squashing) and by -1 with log_std besides.
    """
    action, density = drawn.action, density_gradient.unsqueeze(-1)
    by_u = action_gradient * (1 - action.square()) + 2 * density * action
    by_log_std = by_u * drawn.step - density
    return torch.cat([by_u, by_log_std.mul_(drawn.within)], dim=-1)


@torch.no_grad()
def min_q_input_gradient(
    stack: Stacked, layers: Sequence[Tensor], q: Tensor, by_outputs: Tensor, *, pick_rows: bool | None = None
) -> Tensor:
    """The derivative of the smallest Q of each row by the inputs, [B, inputs].

    `layers` are the values of `stack.forward`, `q` [n, B] what came of them, `by_outputs` [B, outputs] the
    derivative by the outputs. Automatic differentiation goes back through every critic with every row, and multiplies
    by zero the rows for which another critic is the smallest. Here each critic gets only the rows that are its own:
    with two critics half of the products backward. Rows summed in other groups differ in the last digits (1e-7).
    Picking rows would make a GPU wait for its host, so there every critic takes all rows and the rest is zeroed;
    `pick_rows` decides otherwise.
    """
    pick_rows = q.device.type == "cpu" if pick_rows is None else pick_rows
    owner = q.argmin(0)
    gradient = torch.zeros_like(layers[0][0])
    for net in range(q.shape[0]):
        mine = owner == net
        hidden = [values[net] for values in layers[1:-1]]
        if pick_rows:
            rows = mine.nonzero().squeeze(-1)
            gradient[rows] = stack.input_gradient(net, [values[rows] for values in hidden], by_outputs[rows])
        else:
            gradient += stack.input_gradient(net, hidden, by_outputs) * mine.unsqueeze(-1)
    return gradient


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """`a` [n, x, y] times `b` [n, y, z] into `out`. Where torch is told the place of a result it rounds nothing by
    itself, and takes one type alone.
    """
    if a.dtype == b.dtype == out.dtype:
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))


def _through_relu(gradient: Tensor, values: Tensor) -> Tensor:
    """`gradient` where `values` are positive, else 0; in place: a mask of booleans takes six times as long."""
    through: Tensor = torch.ops.aten.threshold_backward.grad_input(gradient, values, 0, grad_input=gradient)
    return through


def _through_tanh(gradient: Tensor, values: Tensor) -> Tensor:
    """`gradient` times 1 - `values`², in place."""
    through: Tensor = torch.ops.aten.tanh_backward.grad_input(gradient, values, grad_input=gradient)
    return through


def _relu(values: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    np.maximum(values, 0, out=out)


def _tanh(values: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    np.tanh(values, out=out)


#: Activation → (it in place, the way back through it from its values, it by NumPy).
_IN_PLACE = {torch.relu: (torch.relu_, _through_relu, _relu), torch.tanh: (torch.tanh_, _through_tanh, _tanh)}
