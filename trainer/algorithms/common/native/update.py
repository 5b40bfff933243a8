"""One update of multi-task SAC on a CPU, as `trainer/algorithms/mtsac.py` has it: read that one first.

Nets of 256 units are so small that some 180 calls of torch take as long as all matrix products. Here torch computes the
products alone, into the same memory each time, one net after another so that it stays in the cache; kernels.c
does what is between them. Numbers differ from the other path's in their last digits, so a run keeps to one of them.
With two threads what belongs to one critic is done beside what belongs to the other: the same numbers, sooner.

Shapes: B rows, K tasks, O observation numbers, A action numbers; widths are those of the hidden layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.common.multitask import Inputs, Learner
from trainer.algorithms.common.native.library import Adam, ThreadPair, load
from trainer.nets.fused import Layer

_INDEX_BYTES = 8


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


@dataclass
class Stepped:
    """What one optimizer moves, and what it remembers: the addresses of the first of `size` numbers each."""

    how: Adam
    size: int
    weight: int
    gradient: int
    mean: int
    square: int
    step: int
    keep: list[Tensor]

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer, parameter: Tensor, gradient: Tensor) -> Stepped:
        """The one `parameter` of a torch optimizer, whose state it makes as that would."""
        group, state = optimizer.param_groups[0], optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        how = Adam(group["lr"], *group["betas"], group["eps"], group["weight_decay"])
        keep = [parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"]]
        weight, grad, mean, square, step = (tensor.data_ptr() for tensor in keep)
        return cls(how, parameter.numel(), weight, grad, mean, square, step, keep)


def _as_read(inputs: Inputs) -> Inputs:
    """`inputs` as the kernels read them, row by row. Errors: TypeError for numbers of another kind."""
    found = {}
    for field in fields(inputs):
        tensor, kind = getattr(inputs, field.name), torch.int64 if field.name == "task" else torch.float32
        if tensor.dtype != kind:
            raise TypeError(f"{field.name} is {tensor.dtype}, not {kind}")
        found[field.name] = tensor.contiguous()
    return Inputs(**found)


class NativeUpdates:
    """Updates of one learner, whose tensors stay where they are from the first one on. `threads`: one, or two,
    which leave the same bits.

    Errors: NoLibraryError where kernels.c is not to be had.
    """

    def __init__(self, learner: Learner, threads: ThreadPair | None = None) -> None:
        self._learner = learner
        self._kernels = load()
        (self._actor,) = self._nets("actor", 1)
        self._critics, self._targets = self._nets("critics", 2), self._nets("targets", 2)
        self._steps: dict[str, Stepped] = {}
        self._work: Workspace | None = None
        self._threads = threads or ThreadPair(1)
        tasks = learner.num_tasks
        self._temperature, self._temperature_gradient = Pinned.of(tasks), Pinned.of(tasks)
        self._sums = np.zeros(7)
        *self._critic_sums, self._actor_sums, self._temperature_sum = (
            self._sums[first:].ctypes.data for first in (0, 2, 4, 6)
        )

    @torch.no_grad()
    def learn(self, inputs: Inputs) -> Tensor:
        """As MTSAC's `update_of`."""
        inputs = _as_read(inputs)
        rows = len(inputs.reward)
        if self._work is None or self._work.rows != rows:
            width = inputs.obs.shape[1] + self._learner.num_tasks
            nets = self._actor.widths, self._critics[0].widths
            self._work = Workspace(rows, width, inputs.action.shape[1], *nets)
        if not self._steps:
            self._begin()
        self._sums[:] = 0
        self._kernels.temperatures(
            self._learner.num_tasks, self._learner.log_temperature.data_ptr(), self._temperature.at
        )
        work = self._work
        self._threads.both(
            partial(self._draw, work.next, inputs, inputs.next_obs, inputs.next_noise),
            partial(self._draw, work.now, inputs, inputs.obs, inputs.current_noise),
        )
        self._td_target(work, inputs)
        self._critic_step(work, inputs)
        self._actor_step(work, inputs)
        self._temperature_step(work, inputs)
        one, its_q, other, other_q, actor_loss, log_prob, temperature_loss = self._sums.tolist()
        return torch.tensor([one + other, actor_loss, temperature_loss, its_q + other_q, -log_prob])

    def _nets(self, which: str, count: int) -> list[Net]:
        stack = self._learner.stacks[which]
        return [Net(self._kernels, stack.layers_of(net)) for net in range(count)]

    def _begin(self) -> None:
        stacks = self._learner.stacks
        stepped = {name: (stacks[name].flat, stacks[name].gradient) for name in ("actor", "critics")}
        stepped["temperature"] = self._learner.log_temperature, self._temperature_gradient.tensor
        self._steps = {name: Stepped.of(self._learner.optimizers[name], *both) for name, both in stepped.items()}

    def _fill(self, inputs: Inputs, obs: Tensor, action: Tensor | None, into: Pinned) -> None:
        rows, numbers = obs.shape
        where = obs.data_ptr(), inputs.task.data_ptr(), None if action is None else action.data_ptr(), into.at
        self._kernels.fill_inputs(rows, numbers, self._learner.num_tasks, inputs.action.shape[1], *where)

    def _draw(self, own: ActorScratch, inputs: Inputs, obs: Tensor, noise: Tensor) -> None:
        """Actions by the actor, as it is before the update."""
        seen = own.seen
        self._fill(inputs, obs, None, seen)
        self._actor.forward(seen.by_actor, own.hidden, own.outputs.tensor)
        self._kernels.draw_actions(
            seen.rows, inputs.action.shape[1], own.outputs.at, self._actor.last_bias, noise.data_ptr(), seen.action,
            seen.width, own.log_prob.at, own.step.at, own.within.at,
        )  # fmt: skip

    def _smaller(self, work: Workspace, inputs: Inputs, nets: Sequence[Net]) -> int:
        """Of what two critics left: the smaller Q, and whose it is; how many are the first's."""
        one, other = zip(work.q, nets, strict=True)
        found: int = self._kernels.smaller(
            work.rows, nets[0].widths[-1], inputs.task.data_ptr(), one[0].at, one[1].last_bias, other[0].at,
            other[1].last_bias, work.value.at, work.picked.at,
        )  # fmt: skip
        return found

    def _of_both(self, do: Callable[[int, CriticScratch], None], scratch: Sequence[CriticScratch]) -> None:
        """What is to be done for each critic."""
        self._threads.both(partial(do, 0, scratch[0]), partial(do, 1, scratch[1]))

    def _apart(self, work: Workspace) -> Sequence[CriticScratch]:
        """Scratch of what nobody needs afterwards."""
        return work.scratch if self._threads.threads > 1 else work.by_turns

    def _td_target(self, work: Workspace, inputs: Inputs) -> None:
        """The target into `work.value`."""

        def value(which: int, own: CriticScratch) -> None:
            self._targets[which].forward(work.next.seen.tensor, own.hidden, work.q[which].tensor)

        self._of_both(value, self._apart(work))
        self._smaller(work, inputs, self._targets)
        self._kernels.td_target(
            work.rows, inputs.task.data_ptr(), inputs.reward.data_ptr(), inputs.terminated.data_ptr(),
            self._learner.settings.gamma, self._temperature.at, work.next.log_prob.at, work.value.at,
        )  # fmt: skip

    def _critic_step(self, work: Workspace, inputs: Inputs) -> None:
        """Both critics towards it, then a step; the targets follow at once: nobody asks them."""
        self._fill(inputs, inputs.obs, inputs.action, work.seen)
        task, x = inputs.task.data_ptr(), work.seen.tensor

        def descend(which: int, own: CriticScratch) -> None:
            net, q = self._critics[which], work.q[which]
            net.forward(x, own.hidden, q.tensor)
            self._kernels.critic_gradient(
                work.rows, net.widths[-1], task, q.at, net.last_bias, work.value.at, own.by_q.at, own.gradient.at,
                self._critic_sums[which],
            )  # fmt: skip
            net.critic_backward(x, own.hidden, task, own.gradient, own.by_q, own.back)

        self._of_both(descend, self._apart(work))
        self._step("critics", target=self._learner.stacks["targets"].flat.data_ptr())

    def _actor_step(self, work: Workspace, inputs: Inputs) -> None:
        task, actions, now = inputs.task.data_ptr(), work.actions, work.now
        seen = now.seen

        def value(which: int, own: CriticScratch) -> None:
            self._critics[which].forward(seen.tensor, own.hidden, work.q[which].tensor)

        def climb(which: int, own: CriticScratch) -> None:
            """Up the rows of which its Q is the smaller one."""
            begin, count = (0, first) if which == 0 else (first, work.rows - first)
            if count:
                picked = work.picked.at + begin * _INDEX_BYTES
                self._critics[which].by_action(picked, count, own.hidden, task, own.back, own.found.tensor[:count])
                self._kernels.put_rows(count, picked, actions, own.found.at, work.by_action.at)

        self._of_both(value, work.scratch)
        first = self._smaller(work, inputs, self._critics)
        self._of_both(climb, work.scratch)
        self._kernels.actor_gradient(
            work.rows, actions, seen.action, seen.width, work.by_action.at, now.step.at, now.within.at, task,
            self._temperature.at, now.log_prob.at, work.value.at, work.actor_gradient.at, self._actor_sums,
        )  # fmt: skip
        self._actor.backward(seen.by_actor, now.hidden, work.actor_gradient, work.actor_back)
        self._step("actor")

    def _temperature_step(self, work: Workspace, inputs: Inputs) -> None:
        settings, log_temperature = self._learner.settings, self._learner.log_temperature
        self._kernels.temperature_gradient(
            work.rows, self._learner.num_tasks, settings.shared_temperature, inputs.task.data_ptr(),
            work.now.log_prob.at, self._learner.target_entropy, log_temperature.data_ptr(),
            self._temperature_gradient.at, self._temperature_sum,
        )  # fmt: skip
        self._step("temperature", clip=False)

    def _step(self, name: str, *, clip: bool = True, target: int | None = None) -> None:
        """One Adam step, along gradients that are clipped first where that is asked for."""
        it, limit = self._steps[name], self._learner.settings.grad_clip
        scale = self._kernels.clip_scale(it.size, it.gradient, limit) if clip and limit > 0 else 1.0
        self._kernels.adam(
            it.how, it.size, scale, it.weight, it.gradient, it.mean, it.square, it.step, target,
            self._learner.settings.tau,
        )  # fmt: skip
