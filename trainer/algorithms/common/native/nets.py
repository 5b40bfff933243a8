"""What an update in C is made of: nets as their products and kernels, and the memory between these.

Shapes: B rows, K tasks, O observation numbers, A action numbers; widths are those of the hidden layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.nets.fused import Layer


class Pinned:
    """A tensor that stays where it is, and what each update needs of it, as asking torch takes as long as a kernel: its
    address, its first and its last length, and itself transposed.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.at = tensor.data_ptr()
        self.rows, self.width = tensor.shape[0], tensor.shape[-1]
        self.transposed = tensor.t()

    @classmethod
    def of(cls, *shape: int, kind: torch.dtype = torch.float32) -> Pinned:
        """One with nothing in it yet."""
        return cls(torch.zeros(shape, dtype=kind))


class CriticInputs(Pinned):
    """What critics read, [B, O + K + A]: `by_actor` [B, O + K] is its part that an actor reads, `action` the address of
    the first row's action.
    """

    def __init__(self, tensor: Tensor, actions: int) -> None:
        super().__init__(tensor)
        self.by_actor = tensor[:, : self.width - actions]
        self.action = self.at + tensor.element_size() * (self.width - actions)


class Net:
    """One plain net: the addresses of its layers, and its products. `hidden`: what its ReLUs leave, [B, width] each."""

    def __init__(self, kernels: Any, layers: Sequence[Layer]) -> None:
        self._kernels = kernels
        self._weights = [layer.weight for layer in layers]
        self._transposed = [layer.weight.t() for layer in layers]
        self._biases = [layer.bias.data_ptr() for layer in layers]
        self._weight_gradients = [layer.weight_gradient for layer in layers]
        self._bias_gradients = [layer.bias_gradient.data_ptr() for layer in layers]
        self.widths = [len(layer.bias) for layer in layers]
        self.last_bias = self._biases[-1]
        self.last_weight = self._weights[-1].data_ptr()

    def forward(self, x: Tensor, hidden: Sequence[Pinned], outputs: Tensor) -> None:
        """`x` [B, inputs] → `hidden` and `outputs`, which lack the last bias."""
        for place, weight, bias in zip(hidden, self._transposed, self._biases, strict=False):
            torch.mm(x, weight, out=place.tensor)
            x = place.tensor
            self._kernels.bias_relu(place.rows, place.width, bias, place.at)
        torch.mm(x, self._transposed[-1], out=outputs)

    def backward(self, x: Tensor, hidden: Sequence[Pinned], gradient: Pinned, back: Sequence[Pinned]) -> None:
        """Leave the gradients of weights and biases, from the derivative by the outputs. `back`: shaped as `hidden`."""
        last = back[-1]
        torch.mm(gradient.tensor, self._weights[-1], out=last.tensor)
        self._last_backward(hidden, gradient)
        self._kernels.through_relu(last.rows, last.width, hidden[-1].at, last.at, self._bias_gradients[-2])
        self._hidden_backward(x, hidden, back)

    def critic_backward(
        self, x: Tensor, hidden: Sequence[Pinned], task: int, gradient: Pinned, by_q: Pinned, back: Sequence[Pinned]
    ) -> None:
        """As `backward`, where `gradient` is `by_q` [B] at the head of each row's `task`, and 0 elsewhere."""
        self._last_backward(hidden, gradient)
        last, heads = back[-1], self.widths[-1]
        rows, width = last.rows, last.width
        self._kernels.through_head(rows, None, heads, task, width, self.last_weight, hidden[-1].at, by_q.at, last.at)
        self._kernels.sum_rows(rows, width, last.at, self._bias_gradients[-2])
        self._hidden_backward(x, hidden, back)

    def by_action(
        self, picked: int, rows: int, hidden: Sequence[Pinned], task: int, back: Sequence[Pinned], found: Tensor
    ) -> None:
        """The derivative of Q by the action, `found` [rows, A], of as many rows as `picked` points to."""
        width, heads = self.widths[-2:]
        self._kernels.through_head(rows, picked, heads, task, width, self.last_weight, hidden[-1].at, None, back[-1].at)
        gradient = back[-1].tensor[:rows]
        for i in reversed(range(len(hidden) - 1)):
            lower = back[i].tensor[:rows]
            torch.mm(gradient, self._weights[i + 1], out=lower)
            gradient = lower
            self._kernels.through_relu_of(rows, picked, self.widths[i], hidden[i].at, back[i].at)
        torch.mm(gradient, self._weights[0][:, -found.shape[1] :], out=found)

    def _last_backward(self, hidden: Sequence[Pinned], gradient: Pinned) -> None:
        torch.mm(gradient.transposed, hidden[-1].tensor, out=self._weight_gradients[-1])
        self._kernels.sum_rows(gradient.rows, gradient.width, gradient.at, self._bias_gradients[-1])

    def _hidden_backward(self, x: Tensor, hidden: Sequence[Pinned], back: Sequence[Pinned]) -> None:
        for i in reversed(range(len(hidden))):
            gradient = back[i]
            torch.mm(gradient.transposed, hidden[i - 1].tensor if i else x, out=self._weight_gradients[i])
            if i:
                under, lower = hidden[i - 1], back[i - 1]
                torch.mm(gradient.tensor, self._weights[i], out=lower.tensor)
                self._kernels.through_relu(lower.rows, lower.width, under.at, lower.at, self._bias_gradients[i - 1])


class ActorScratch:
    """Actions of the actor, drawn into `seen`, and what its gradient needs of them."""

    def __init__(self, rows: int, inputs: int, actions: int, widths: Sequence[int]) -> None:
        *hidden, outputs = widths
        self.seen = CriticInputs(torch.zeros(rows, inputs + actions), actions)
        self.hidden = [Pinned.of(rows, width) for width in hidden]
        self.outputs, self.log_prob = Pinned.of(rows, outputs), Pinned.of(rows)
        self.step, self.within = Pinned.of(rows, actions), Pinned.of(rows, actions)


class CriticScratch:
    """What one critic leaves on its way from a loss back to its weights, or to the action."""

    def __init__(self, rows: int, actions: int, widths: Sequence[int]) -> None:
        *hidden, heads = widths
        self.hidden, self.back = ([Pinned.of(rows, width) for width in hidden] for _ in range(2))
        self.gradient, self.by_q, self.found = Pinned.of(rows, heads), Pinned.of(rows), Pinned.of(rows, actions)


class Workspace:
    """What is between one update's products, of B rows: the same memory for every update.

    `scratch`: of each critic. `by_turns`: the same for both, who take turns; it stays in the cache.
    """

    def __init__(self, rows: int, inputs: int, actions: int, actor: Sequence[int], critic: Sequence[int]) -> None:
        self.rows, self.actions = rows, actions
        self.seen = CriticInputs(torch.zeros(rows, inputs + actions), actions)
        self.next, self.now = (ActorScratch(rows, inputs, actions, actor) for _ in range(2))
        self.actor_back = [Pinned.of(rows, width) for width in actor[:-1]]
        self.actor_gradient = Pinned.of(rows, actor[-1])
        one, other = (CriticScratch(rows, actions, critic) for _ in range(2))
        self.scratch, self.by_turns = (one, other), (one, one)
        self.q = [Pinned.of(rows, critic[-1]) for _ in range(2)]
        self.value, self.by_action = Pinned.of(rows), Pinned.of(rows, actions)
        self.picked = Pinned.of(rows, kind=torch.int64)
