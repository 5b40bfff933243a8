"""Advantage actor-critic, synchronous (Mnih et al. 2016, arXiv 1602.01783): one update for each short rollout.

PPO with one epoch of one update and no clipping is the same (Huang et al. 2022, arXiv 2205.09123). How it plays and
computes advantages: `common.rollouts`.

Shapes: B steps of a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from trainer.algorithms.base import Algorithm, Context, NetSize
from trainer.algorithms.common.actor_critic import ActorCritic, choose_way, sizes_of
from trainer.algorithms.common.compiled import CompiledActorCritic
from trainer.algorithms.common.rollouts import Minibatch, Rollouts, normalised
from trainer.config.algorithms import A2c
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Obs, Spaces
from trainer.nets.engine.plan import EnginePlan, doubles
from trainer.nets.policy import PolicyNet
from trainer.state import State


class A2C(Algorithm):
    """One update of a whole rollout."""

    METRICS: ClassVar[tuple[str, ...]] = ("policy_loss", "value_loss", "entropy")

    def __init__(self, context: Context) -> None:
        settings = self.settings = cast("A2c", context.training.algorithm)
        self.nets = ActorCritic(context)
        steps = settings.rollout_steps * context.training.num_envs // settings.shards
        self.rollouts = Rollouts(context, self.nets, batch_size=steps, epochs=1)
        rate, alpha = settings.learning_rate, settings.rms_alpha
        self.optimizer = torch.optim.RMSprop(self.nets.groups, lr=rate, alpha=alpha, eps=settings.rms_eps)

    @property
    def policy(self) -> PolicyNet:  # type: ignore[override]
        return self.nets.policy

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        return self.rollouts.act(obs, task, step)

    def observe(self, transition: Transition, step: int) -> None:
        self.rollouts.observe(transition, step)

    @property
    def must_learn(self) -> bool:
        return self.rollouts.is_full

    def update(self) -> Tensor:
        settings, rollouts = self.settings, self.rollouts
        measured = rollouts.mean_over_shards(self.gradients, self.planned)
        self.nets.step(self.optimizer, rollouts.learning_rate(settings.learning_rate), settings.grad_clip)
        rollouts.advance(is_over=True)
        return measured

    def gradients(self, batch: Minibatch) -> Tensor:
        """Leave the gradients of policy_loss + value_coef · value_loss - entropy_coef · entropy in `nets.learned`.

        Returns `METRICS`, of the batch.
        """
        settings = self.settings
        now = self.nets.evaluate(batch.inputs, batch.action)
        advantage = normalised(batch.advantage) if settings.normalise_advantage else batch.advantage
        policy_loss = -(now.log_prob * advantage).mean()
        value_loss = (now.value - batch.returns).square().mean()
        entropy = now.entropy.mean()
        self.nets.backward(policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy)
        return self.metrics({"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}).detach()

    def planned(self, plan: EnginePlan, nets: CompiledActorCritic, batch: Minibatch) -> Tensor:
        """`gradients` by the engine."""
        settings, rows = self.settings, len(batch.returns)
        measured = plan.sums(len(self.METRICS))
        now = nets.evaluate(plan, batch.inputs, batch.action)
        advantage = plan.column(batch.advantage)
        if settings.normalise_advantage:
            plan.add("standardise", (rows,), advantage)
        by_log_prob, by_value = torch.zeros(rows), torch.zeros(rows)
        plan.add("policy_gradient", (rows,), now.log_prob, advantage, by_log_prob, measured)
        value = now.value, plan.column(batch.returns), doubles(settings.value_coef)
        plan.add("squared_error", (rows,), *value, by_value, measured[1:])
        plan.add("mean", (rows, 1), now.entropy, measured[2:])
        nets.backward(plan, now, by_log_prob, by_value, settings.entropy_coef)
        return measured

    def parts(self) -> Mapping[str, Any]:
        return self.nets.parts(self.optimizer)

    def state(self) -> State:
        return self.rollouts.with_state(super().state())

    def load(self, state: State) -> None:
        super().load(state)
        self.nets.forget()
        self.rollouts.load(state)

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        return sizes_of(training, spaces, moments=1)

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """By the engine where nets are plain."""
        found = choose_way(training, spaces, device, recorded)
        return found or super().choose_launch_mode(training, spaces, device, recorded)
