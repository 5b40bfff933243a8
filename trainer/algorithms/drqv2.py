"""DrQ-v2: a deterministic actor and two critics that learn from pictures.

Yarats et al. 2021 (arXiv 2107.09645; facebookresearch/drqv2: drqv2.py): pictures are moved by some pixels at random,
returns are of several steps, the noise that explores falls in a line, and the encoder learns from the critics' loss
alone. Actor and critics have a trunk each. For any observation. A penalty on what goes into the actor's tanh is ours.

Shapes: N environments, B transitions, P parameters of the distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.autograd import follow
from trainer.algorithms.common.descents import Descent
from trainer.algorithms.common.sample import Sample
from trainer.algorithms.common.tensors import named, under
from trainer.algorithms.common.twins import TwinOffPolicy, must_be_numbers
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Drqv2
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import ACTION_HIGH, ACTION_LOW, Actions, Spaces
from trainer.machine.device import on_device, to_device
from trainer.nets.mlp import MLP, orthogonal
from trainer.nets.twins import NetInputs
from trainer.state import State

_DISTRIBUTION = "tanh-noise"


class Algorithm(TwinOffPolicy):
    """The actor, two critics and their targets; how much noise there is goes by the steps that were made."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q")
    settings: Drqv2

    def __init__(self, context: Context) -> None:
        must_be_numbers(context.training, context.spaces)
        super().__init__(context, _DISTRIBUTION, 1)
        self.policy.free.requires_grad_(False)
        self._step = 0
        self.make_optimizers(torch.optim.Adam, lr=self.settings.learning_rate)

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The actor, and both critics together."""
        must_be_numbers(training, spaces)
        return cls.sizes_for(training, spaces, _DISTRIBUTION, 1)

    def begin_nets(self, init: torch.Generator) -> None:
        """Plain layers are orthogonal, as the authors have them."""
        for module in [*self.policy.modules(), *self.critics.modules()]:
            if isinstance(module, MLP):
                orthogonal(module, init, last=1.0, gain=1.0)

    @property
    def deviation(self) -> float:
        """Of the noise, now."""
        settings = self.settings
        share = min(1.0, self._step / settings.exploration_noise_steps)
        return settings.exploration_noise + share * (settings.exploration_noise_end - settings.exploration_noise)

    @torch.no_grad()
    def observe(self, transition: Transition, step: int) -> None:
        """As all; who plays with the policy explores as it does."""
        super().observe(transition, step)
        self._step = step + len(transition.step.task)
        self.policy.free.fill_(math.log(self.deviation))

    def tried(self, outputs: Tensor) -> Actions:
        """The actor's actions, with noise."""
        distribution = self.policy.distribution
        noise = distribution.noise(len(outputs), self._noise).to(self.device)
        actions: Actions = distribution.clip(distribution.mode(outputs) + self.deviation * noise).cpu().numpy()
        return actions

    def draw(self, batch: Batch) -> dict[str, Tensor]:
        """For the actions behind `next_obs` and behind `obs`, as large as noise is now."""
        next_moves, next_noise = self.drawn_moves(batch.next_obs), self._drawn_noise(len(batch.reward))
        moves, noise = self.drawn_moves(batch.obs), self._drawn_noise(len(batch.reward))
        return {"next_noise": next_noise, "noise": noise, **named("next_obs", next_moves), **named("obs", moves)}

    def descents(self, sample: Sample) -> Iterator[Descent]:
        """The critics with the encoder; then the actor."""
        critic_loss, q, inputs = self._judged(sample)
        yield self.down({"critics": critic_loss}, critic_loss=critic_loss, q=q.mean())

        of_actor = self.for_actor(inputs)
        outputs = self.acted(of_actor.policy)
        actor_loss = self._penalty(outputs, sample) - self._worth(of_actor, outputs, sample).mean()
        yield self.down({"actor": actor_loss}, actor_loss=actor_loss)

    def conclude(self, measured: Mapping[str, Tensor]) -> Tensor:
        """As all."""
        follow(self.targets, self.critics, self.settings.tau)
        return torch.stack([measured[name] for name in self.METRICS])

    def loss_and_worth(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """As above."""
        loss, _, inputs = self._judged(sample)
        return loss, self._worth(inputs, self.acted(inputs.policy), sample)

    def state(self) -> State:
        """As all, with the steps that were made."""
        common = super().state()
        return State(common.tensors, {**common.numbers, "step": self._step})

    def load(self, state: State) -> None:
        """Go on from there."""
        super().load(state)
        self._step = int(state.numbers["step"])

    def _judged(self, sample: Sample) -> tuple[Tensor, Tensor, NetInputs]:
        """(the critics' loss, Q [2, B] of the batch's actions, what the nets read)."""
        batch, drawn = sample.batch, sample.drawn
        action = on_device(batch.action, self.device)
        reward, discount = self.rewards(batch, self.settings.gamma)
        with torch.no_grad():
            following, _ = self.inputs(batch.next_obs, batch.task, under("next_obs", drawn))
            following_action = self._noisy(self.acted(following.policy), drawn["next_noise"])
            target = reward + discount * self.targets(following.critics, following_action).squeeze(-1).amin(0)

        inputs, _ = self.inputs(batch.obs, batch.task, under("obs", drawn))
        q = self.critics(inputs.critics, action).squeeze(-1)
        return (q - target).square().mean(1).sum(), q, inputs

    def _worth(self, inputs: NetInputs, outputs: Tensor, sample: Sample) -> Tensor:
        """The smaller Q of what the actor does with `outputs` [B, P], with its noise, [B]."""
        action = self._noisy(outputs, sample.drawn["noise"])
        worth: Tensor = self.critics(inputs.critics, action).squeeze(-1).amin(0)
        return worth

    def _penalty(self, outputs: Tensor, sample: Sample) -> Tensor:
        """On what goes into the actor's tanh, which is as many numbers as have noise."""
        before = outputs[:, : sample.drawn["noise"].shape[1]]
        return self.settings.preactivation_l2 * before.square().mean()

    def _drawn_noise(self, rows: int) -> Tensor:
        """[rows, A]: a little, and no more than is allowed."""
        limit = self.settings.noise_clip
        return (self.deviation * self.policy.distribution.noise(rows, self._noise)).clamp(-limit, limit)

    def _noisy(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """[B, A] what is done by `outputs` and the `noise`; beyond the bounds its derivative is that within."""
        moved = self.policy.distribution.mode(outputs) + to_device(noise, self.device)
        return moved + (moved.clamp(ACTION_LOW, ACTION_HIGH) - moved).detach()
