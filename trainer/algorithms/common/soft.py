"""An update of soft actor-critic by the engine, for actions that are numbers: what SAC and MTSAC have in common.

Shapes: B transitions, I numbers that the policy reads, C that critics read, K tasks, A of an action, H outputs of a
critic: 1, or one a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer.algorithms.common.compiled import CompiledTwins
from trainer.nets.engine.plan import EnginePlan, PlainNet, doubles


@dataclass(frozen=True)
class SoftInputs:
    """What one update works on: what policy and critics read of B transitions, and of what follows them, with the
    `discount` of that; standard normal noise [B, A] for the actions that the update draws.
    """

    policy: Tensor
    critics: Tensor
    next_policy: Tensor
    next_critics: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    task: Tensor
    next_noise: Tensor
    noise: Tensor


@dataclass(frozen=True)
class SoftUpdate:
    """What an update changes, and by which settings. `optimizers`: "actor", "critics" and "temperature"."""

    twins: CompiledTwins
    log_temperature: nn.Parameter
    optimizers: Mapping[str, torch.optim.Optimizer]
    targets: Sequence[tuple[Tensor, Tensor]]
    """Each number of the critics, and the target that follows it."""
    target_entropy: float
    tau: float
    grad_clip: float
    shared_temperature: bool = False

    def planned(self, plan: EnginePlan, of: SoftInputs) -> Tensor:
        """Metrics: critic_loss, actor_loss, temperature_loss, q, entropy."""
        twins, rows, tasks = self.twins, len(of.reward), len(self.log_temperature)
        measured = plan.sums(5)
        temperature = torch.zeros(rows)
        twins.pack(plan)
        plan.add("temperatures", (rows,), self.log_temperature, of.task, temperature)

        # r + discount (min Q'(s', a') - temperature log pi(a'|s'))
        next_x, next_log_prob, _ = self._drawn(plan, of.next_policy, of.next_critics, of.next_noise)
        next_q, target = [self._q(plan, net, next_x, of.task)[0] for net in twins.targets], torch.zeros(rows)
        next_value, _ = twins.smaller(plan, *next_q)
        plan.add("soft_target", (rows,), of.reward, of.discount, next_value, temperature, next_log_prob, target)

        # Both critics towards it.
        x = plan.beside(of.critics, of.action)
        for net in twins.critics:
            q, values = self._q(plan, net, x, of.task)
            by_q, by_outputs = torch.zeros(rows), torch.zeros_like(values[-1])
            plan.add("squared_error", (rows,), q, target, doubles(1.0), by_q, measured)
            plan.add("mean", (rows, 2), q, measured[3:])
            plan.add("choose_back", by_outputs.shape, by_q, of.task, by_outputs)
            net.backward(plan, values, by_outputs)
        twins.step(plan, self.optimizers["critics"], self.grad_clip)
        for net in twins.critics:
            net.pack(plan)

        # The actor towards high Q, by critics that have taken their step, and high entropy.
        x, log_prob, drawn = self._drawn(plan, of.policy, of.critics, of.noise)
        of_critics = [self._q(plan, net, x, of.task) for net in twins.critics]
        value, picked = twins.smaller(plan, *(q for q, _ in of_critics))
        by_log_prob, by_outputs = torch.zeros(rows), torch.zeros_like(of_critics[0][1][-1])
        plan.add("soft_loss", (rows,), temperature, log_prob, value, by_log_prob, measured[1:], measured[4:])
        plan.add("choose_back", by_outputs.shape, torch.full((rows,), -1 / rows), of.task, by_outputs)
        first = of.critics.shape[1]
        by_action = twins.climb(plan, [values for _, values in of_critics], by_outputs, picked, first)
        outputs, step, within = drawn
        back = x[:, first:], step, within, by_action, by_log_prob, torch.zeros_like(outputs[-1])
        plan.add("squashed_normal_back", (*by_action.shape, x.stride(0)), *back)
        twins.actor.backward(plan, outputs, back[-1])
        twins.step(plan, self.optimizers["actor"], self.grad_clip)

        # Each task's temperature up where its entropy is below the target.
        by_temperature = self.log_temperature, of.task, log_prob, doubles(self.target_entropy)
        sizes = (rows, tasks, int(self.shared_temperature))
        plan.add("temperature_loss", sizes, *by_temperature, self.log_temperature.grad, measured[2:])
        twins.step(plan, self.optimizers["temperature"], 0.0)
        for weight, follower in self.targets:
            plan.add("polyak", (weight.numel(),), weight, follower, doubles(self.tau))
        return measured

    def _drawn(
        self, plan: EnginePlan, policy: Tensor, critics: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, tuple[list[Tensor], Tensor, Tensor]]:
        """What critics read with an action that the policy draws [B, C + A], its log density [B], and what its way back
        needs.
        """
        values, log_prob = self.twins.actor.forward(plan, policy), torch.zeros(len(noise))
        x = plan.beside(critics, noise)  # in whose place the action comes
        step, within = torch.zeros_like(noise), torch.zeros_like(noise)
        action = x[:, critics.shape[1] :]
        sizes = (*noise.shape, x.stride(0))
        plan.add("squashed_normal", sizes, values[-1], noise, action, log_prob, step, within)
        return x, log_prob, (values, step, within)

    def _q(self, plan: EnginePlan, net: PlainNet, x: Tensor, task: Tensor) -> tuple[Tensor, list[Tensor]]:
        values, q = net.forward(plan, x), torch.zeros(len(x))
        plan.add("choose", values[-1].shape, values[-1], task, q)
        return q, values
