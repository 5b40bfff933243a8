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

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.common.multitask import Inputs, Learner
from trainer.algorithms.common.native.library import Adam, ThreadPair, load
from trainer.algorithms.common.native.nets import ActorScratch, CriticScratch, Net, Pinned, Workspace

_INDEX_BYTES = 8


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
            raise TypeError(f"{field.name} is {tensor.dtype}, and {kind} is read")
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
