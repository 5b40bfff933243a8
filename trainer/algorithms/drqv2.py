"""DrQ-v2: a deterministic actor and two critics that learn from pictures.

Yarats et al. 2021 (arXiv 2107.09645; facebookresearch/drqv2: drqv2.py): pictures are moved by some pixels at random,
returns are of several steps, the noise that explores falls in a line, and the encoder learns from the critics' loss
alone. Actor and critics have a trunk each. For any observation. A penalty on what goes into the actor's tanh is ours.

Shapes: N environments, B transitions, A of an action, P parameters of the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from trainer.algorithms.base import Algorithm, Context, NetSize
from trainer.algorithms.common.off_policy import OffPolicyUpdates, must_be_finite
from trainer.algorithms.common.optimizers import polyak_update
from trainer.algorithms.common.parts import named, torch_generator, under
from trainer.algorithms.common.sharding import OptimizerStep, Sample
from trainer.algorithms.common.twins import TwinNets, must_be_numbers, sizes_of
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Drqv2
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, I32, Actions, Obs, Spaces
from trainer.machine.device import on_device, to_device
from trainer.nets.critics import NetInputs
from trainer.nets.mlp import MLP, orthogonal
from trainer.streams import RandomStream

_DISTRIBUTION = "tanh-noise"


class DrQv2(Algorithm):
    """The actor, two critics and their targets; how much noise there is goes by the steps that were made."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q")

    def __init__(self, context: Context) -> None:
        must_be_numbers(context.training, context.spaces)
        self.settings = cast("Drqv2", context.training.algorithm)
        self.off_policy = OffPolicyUpdates(context)
        self.nets = TwinNets(context, _DISTRIBUTION, draw=_orthogonal)
        self.policy = self.nets.policy
        self.policy.free.requires_grad_(False)
        self.noise = torch_generator(context.training.seed, RandomStream.NOISE)
        self.step = 0
        self.nets.create_optimizers(torch.optim.Adam, lr=self.settings.learning_rate)

    @property
    def deviation(self) -> float:
        """Of the noise, now."""
        settings = self.settings
        share = min(1.0, self.step / settings.exploration_noise_steps)
        return settings.exploration_noise + share * (settings.exploration_noise_end - settings.exploration_noise)

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        if step < self.settings.random_steps:
            return self.off_policy.random_actions(len(task))
        outputs, distribution = self.nets.act(obs, task), self.policy.distribution
        noise = distribution.noise(len(outputs), self.noise).to(outputs.device)
        action = distribution.clip(distribution.mode(outputs) + self.deviation * noise)
        return must_be_finite(action.cpu().numpy(), step)

    @torch.no_grad()
    def observe(self, transition: Transition, step: int) -> None:
        self.off_policy.observe(self.nets.features.transition(transition), step)
        self.step = step + len(transition.step.task)
        self.policy.free.fill_(math.log(self.deviation))  # who plays with the policy explores as it does

    @property
    def owed(self) -> int:
        return self.off_policy.owed

    def update(self) -> Tensor:
        return self.learn(self.off_policy.sample(self.draw, self.noise))

    def draw(self, batch: Batch, noise: torch.Generator) -> dict[str, Tensor]:
        """For the actions behind `next_obs` and behind `obs`, as large as noise is now."""
        next_moves, next_noise = self.nets.drawn_moves(batch.next_obs, noise), self.clipped_noise(batch, noise)
        moves, now = self.nets.drawn_moves(batch.obs, noise), self.clipped_noise(batch, noise)
        return {"next_noise": next_noise, "noise": now, **named("next_obs", next_moves), **named("obs", moves)}

    def clipped_noise(self, batch: Batch, noise: torch.Generator) -> Tensor:
        """[B, A]: a little, and no more than is allowed."""
        limit, drawn = self.settings.noise_clip, self.policy.distribution.noise(len(batch.reward), noise)
        return (self.deviation * drawn).clamp(-limit, limit)

    def learn(self, sample: Sample) -> Tensor:
        measured = self.off_policy.take_steps(self.optimizer_steps, sample, self.nets.step_optimizer)
        polyak_update(self.nets.target_critics, self.nets.critics, self.settings.tau)
        return self.metrics(measured)

    def optimizer_steps(self, sample: Sample) -> Iterator[OptimizerStep]:
        """The critics with the encoder; then the actor, with critics that have taken their step."""
        critic_loss, q, inputs = self.critic_loss(sample)
        yield self.nets.step_down({"critics": critic_loss}, critic_loss=critic_loss, q=q.mean())

        inputs, noise = self.nets.for_actor(inputs), sample.drawn["noise"]
        outputs = self.nets.actor(inputs.policy)
        before_tanh = outputs[:, : noise.shape[1]]
        penalty = self.settings.preactivation_l2 * before_tanh.square().mean()
        actor_loss = penalty - self.q_value(inputs, outputs, noise).mean()
        yield self.nets.step_down({"actor": actor_loss}, actor_loss=actor_loss)

    def critic_loss(self, sample: Sample) -> tuple[Tensor, Tensor, NetInputs]:
        """(the critics' loss, Q [2, B] of the batch's actions, what the nets read)."""
        batch, drawn, nets = sample.batch, sample.drawn, self.nets
        action = on_device(batch.action, nets.device)
        reward, discount = nets.n_step_returns(batch)
        with torch.no_grad():
            next_inputs, _ = nets.inputs(batch.next_obs, batch.task, under("next_obs", drawn))
            next_action = self.noisy_action(nets.actor(next_inputs.policy), drawn["next_noise"])
            q_target = reward + discount * nets.target_critics(next_inputs.critics, next_action).squeeze(-1).amin(0)

        inputs, _ = nets.inputs(batch.obs, batch.task, under("obs", drawn))
        q = nets.critics(inputs.critics, action).squeeze(-1)
        return (q - q_target).square().mean(1).sum(), q, inputs

    def q_value(self, inputs: NetInputs, outputs: Tensor, noise: Tensor) -> Tensor:
        """[B] the smaller Q of what the actor does with `outputs` [B, P] and `noise`."""
        q: Tensor = self.nets.critics(inputs.critics, self.noisy_action(outputs, noise)).squeeze(-1).amin(0)
        return q

    def noisy_action(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """[B, A] what is done by `outputs` and the `noise`; beyond the bounds its derivative is that within."""
        moved = self.policy.distribution.mode(outputs) + to_device(noise, self.nets.device)
        return moved + (moved.clamp(ACTION_LOW, ACTION_HIGH) - moved).detach()

    @torch.no_grad()
    def probe(self, step: int) -> tuple[float, Tensor]:
        sample = self.off_policy.probe(self.draw, step)
        loss, _, inputs = self.critic_loss(sample)
        return float(loss), self.q_value(inputs, self.nets.actor(inputs.policy), sample.drawn["noise"]).cpu()

    def weights(self) -> Mapping[str, Tensor]:
        return self.nets.weights()

    def parts(self) -> Mapping[str, Any]:
        return {**self.nets.parts(), "noise": self.noise, "step": self.step, **self.off_policy.parts()}

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        must_be_numbers(training, spaces)
        return sizes_of(training, spaces, _DISTRIBUTION)


def _orthogonal(modules: Sequence[nn.Module], init: torch.Generator) -> None:
    """Plain layers are orthogonal, as the authors have them."""
    for module in modules:
        if isinstance(module, MLP):
            orthogonal(module, init, last=1.0, gain=1.0)
