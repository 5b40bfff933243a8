"""Proximal policy optimisation, with a clipped ratio (Schulman et al. 2017, arXiv 1707.06347).

The details are those of Huang et al. 2022, "The 37 implementation details of PPO", as stable-baselines3 has them: no
clipping of values, and a time limit is no end. How it plays and computes advantages: `common.rollouts`.

Shapes: B steps of one update.
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
from trainer.config.algorithms import Ppo
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Obs, Spaces
from trainer.nets.engine.plan import EnginePlan, doubles
from trainer.nets.policy import PolicyNet
from trainer.state import State

#: As far as `target_kl` may be passed (stable-baselines3).
_KL_SLACK = 1.5


class PPO(Algorithm):
    """Several epochs of small updates for each rollout."""

    METRICS: ClassVar[tuple[str, ...]] = ("policy_loss", "kl", "clip_fraction", "value_loss", "entropy")

    def __init__(self, context: Context) -> None:
        settings = self.settings = cast("Ppo", context.training.algorithm)
        self.nets = ActorCritic(context)
        self.rollouts = Rollouts(context, self.nets, settings.batch_size // settings.shards, settings.epochs)
        fused = context.device.type in {"cpu", "cuda"}
        self.optimizer = torch.optim.Adam(
            self.nets.groups, lr=settings.learning_rate, eps=settings.adam_eps, fused=fused
        )

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
        kl_exceeded = self.kl_exceeded(measured)
        if not kl_exceeded:
            self.nets.step(self.optimizer, rollouts.learning_rate(settings.learning_rate), settings.grad_clip)
        rollouts.advance(is_over=kl_exceeded)
        return measured

    def gradients(self, batch: Minibatch) -> Tensor:
        """Leave the gradients of policy_loss + value_coef · value_loss - entropy_coef · entropy in `nets.learned`.

        Returns `METRICS`, of the batch.
        """
        settings = self.settings
        now = self.nets.evaluate(batch.inputs, batch.action)
        advantage = normalised(batch.advantage) if settings.normalise_advantage else batch.advantage
        log_ratio = now.log_prob - batch.log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = (now.value - batch.returns).square().mean()
        entropy = now.entropy.mean()
        self.nets.backward(policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy)

        measured = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        # Schulman's estimate, which is never below 0 (joschu.net/blog/kl-approx.html).
        measured["kl"] = (ratio - 1 - log_ratio).mean()
        measured["clip_fraction"] = ((ratio - 1).abs() > settings.clip).float().mean()
        return self.metrics(measured).detach()

    def planned(self, plan: EnginePlan, nets: CompiledActorCritic, batch: Minibatch) -> Tensor:
        """`gradients` by the engine."""
        settings, rows = self.settings, len(batch.returns)
        measured = plan.sums(len(self.METRICS))
        now = nets.evaluate(plan, batch.inputs, batch.action)
        advantage = plan.column(batch.advantage)
        if settings.normalise_advantage:
            plan.add("standardise", (rows,), advantage)
        by_log_prob, by_value = torch.zeros(rows), torch.zeros(rows)
        ratio = now.log_prob, plan.column(batch.log_prob), advantage, doubles(settings.clip)
        plan.add("clipped_ratio", (rows,), *ratio, by_log_prob, measured)
        value = now.value, plan.column(batch.returns), doubles(settings.value_coef)
        plan.add("squared_error", (rows,), *value, by_value, measured[3:])
        plan.add("mean", (rows, 1), now.entropy, measured[4:])
        nets.backward(plan, now, by_log_prob, by_value, settings.entropy_coef)
        return measured

    def kl_exceeded(self, measured: Tensor) -> bool:
        """Whether the policy went too far from the one that played: then nothing more is learned from the rollout, nor
        from the steps that show it.
        """
        limit = self.settings.target_kl
        return limit > 0 and float(measured[self.METRICS.index("kl")]) > _KL_SLACK * limit

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
        return sizes_of(training, spaces, moments=2)

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """By the engine where nets are plain."""
        found = choose_way(training, spaces, device, recorded)
        return found or super().choose_launch_mode(training, spaces, device, recorded)
