"""An update of soft actor-critic by the engine, as `trainer/algorithms/sac.py` has it: read that one first.

Shapes: B transitions, I numbers that the policy reads, C that critics read, A of an action, or one of n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer.algorithms.common.compiled import CompiledTwins
from trainer.nets.engine.plan import EnginePlan, doubles


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
        twins, rows = self.twins, len(of.reward)
        measured, temperature = plan.sums(5), torch.zeros(rows)
        twins.pack(plan)
        plan.add("temperatures", (rows,), self.log_temperature, of.task, temperature)

        # r + discount (min Q'(s', a') - temperature log pi(a'|s'))
        next_x, next_log_prob, _ = self._drawn(plan, of.next_policy, of.next_critics, of.next_noise)
        next_q, target = [twins.q(plan, net, next_x, of.task)[0] for net in twins.targets], torch.zeros(rows)
        next_value, _ = twins.smaller(plan, *next_q)
        plan.add("soft_target", (rows,), of.reward, of.discount, next_value, temperature, next_log_prob, target)

        # Both critics towards it.
        x = plan.beside(of.critics, of.action)
        self._step_critics(plan, x, of.task, target, measured)

        # The actor towards high Q, by critics that have taken their step, and high entropy.
        x, log_prob, drawn = self._drawn(plan, of.policy, of.critics, of.noise)
        of_critics = [twins.q(plan, net, x, of.task) for net in twins.critics]
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

        self._end(plan, of, log_prob, measured)
        return measured

    def planned_choice(self, plan: EnginePlan, of: SoftInputs) -> Tensor:
        """As `planned`, where actions are one of several: means over them are sums."""
        twins, rows = self.twins, len(of.reward)
        measured, temperature = plan.sums(5), torch.zeros(rows)
        twins.pack(plan)
        plan.add("temperatures", (rows,), self.log_temperature, of.task, temperature)

        _, log = self._choices(plan, of.next_policy)
        next_q, next_value, density, target = torch.zeros_like(log), *torch.zeros(3, rows)
        plan.add("smaller", (log.numel(),), *(net.forward(plan, of.next_critics)[-1] for net in twins.targets), next_q)
        plan.add("expected", log.shape, log, next_q, next_value)
        plan.add("expected", log.shape, log, log, density)
        plan.add("soft_target", (rows,), of.reward, of.discount, next_value, temperature, density, target)
        self._step_critics(plan, of.critics, of.action, target, measured)

        values, log = self._choices(plan, of.policy)
        q, by_logits, log_prob = torch.zeros_like(log), torch.zeros_like(log), torch.zeros(rows)
        plan.add("smaller", (log.numel(),), *(net.forward(plan, of.critics)[-1] for net in twins.critics), q)
        told = log_prob, measured[1:], measured[4:]
        plan.add("soft_choice", log.shape, temperature, log, q, by_logits, *told)
        twins.actor.backward(plan, values, by_logits)
        twins.step(plan, self.optimizers["actor"], self.grad_clip)
        self._end(plan, of, log_prob, measured)
        return measured

    def _step_critics(self, plan: EnginePlan, x: Tensor, chosen: Tensor, target: Tensor, measured: Tensor) -> None:
        to = target, measured, measured[3:]
        self.twins.step_critics(plan, self.optimizers["critics"], self.grad_clip, x, chosen, *to)

    def _end(self, plan: EnginePlan, of: SoftInputs, log_prob: Tensor, measured: Tensor) -> None:
        """Each task's temperature up where its entropy is below the target; the targets follow the critics."""
        by_temperature = self.log_temperature, of.task, log_prob, doubles(self.target_entropy)
        sizes = (len(log_prob), len(self.log_temperature), int(self.shared_temperature))
        plan.add("temperature_loss", sizes, *by_temperature, self.log_temperature.grad, measured[2:])
        self.twins.step(plan, self.optimizers["temperature"], 0.0)
        for weight, follower in self.targets:
            plan.add("polyak", (weight.numel(),), weight, follower, doubles(self.tau))

    def _choices(self, plan: EnginePlan, policy: Tensor) -> tuple[list[Tensor], Tensor]:
        """The values of the actor's layers, and the log density of every action [B, n]."""
        values = self.twins.actor.forward(plan, policy)
        log, entropy = torch.zeros_like(values[-1]), torch.zeros(len(policy))
        plan.add("categorical", log.shape, values[-1], None, log, None, entropy)
        return values, log

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
