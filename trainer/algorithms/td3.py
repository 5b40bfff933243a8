"""TD3: a deterministic actor, two critics, and targets that are slow, noisy and take the smaller of both.

Fujimoto et al. 2018 (arXiv 1802.09477). As settings what FastTD3 adds (Seo et al. 2025, arXiv 2505.22642): categorical
critics, returns of several steps, and for each environment a noise of its own. What reads pictures:
`trainer.algorithms.common.twins`.

Shapes: N environments, B transitions, I numbers that the nets read, A of an action, V values of a categorical critic.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common import categorical
from trainer.algorithms.common.autograd import follow
from trainer.algorithms.common.descents import Descent
from trainer.algorithms.common.sample import Sample
from trainer.algorithms.common.tensors import copied, named, under
from trainer.algorithms.common.twins import TwinOffPolicy, must_be_numbers
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Td3
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, Actions, Spaces
from trainer.nets.twins import NetInputs
from trainer.state import State

_DISTRIBUTION = "tanh-noise"


class Algorithm(TwinOffPolicy):
    """The actor, two critics, the targets of all three; the noise of each environment, and rows that are not whole."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q")
    settings: Td3

    def __init__(self, context: Context) -> None:
        settings = cast("Td3", context.training.algorithm)
        must_be_numbers(context.training, context.spaces)
        super().__init__(context, _DISTRIBUTION, _outputs(settings))
        self.policy.free.requires_grad_(False).fill_(math.log(middle_deviation(settings)))
        # What an encoder makes of pictures is not the actor's to learn: its target is of what comes behind.
        self._behind = nn.Sequential(*(each for each in (self.policy.trunk, self.policy.body) if each is not None))
        self.target_actor = copy.deepcopy(self._behind).requires_grad_(requires_grad=False)
        rates = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
        self.make_optimizers(torch.optim.AdamW, **rates)
        self._values = (
            categorical.grid(settings.value_limit, settings.value_bins, self.device)
            if settings.critic_loss == "categorical"
            else None
        )
        self._updates = 0
        self._actor_loss = torch.zeros((), device=self.device)
        self._deviations = self._drawn_deviations(context.num_envs)

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The actor, and both critics together; both have targets."""
        must_be_numbers(training, spaces)
        actor, critics = cls.sizes_for(training, spaces, _DISTRIBUTION, _outputs(cast("Td3", training.algorithm)))
        return [replace(actor, targets=1), critics]

    def tried(self, outputs: Tensor) -> Actions:
        """The actor's actions, each environment's with noise of its own deviation."""
        distribution = self.policy.distribution
        noise = distribution.noise(len(outputs), self._noise) * torch.from_numpy(self._deviations).unsqueeze(-1)
        actions: Actions = distribution.clip(distribution.mode(outputs) + noise.to(self.device)).cpu().numpy()
        return actions

    def observe(self, transition: Transition, step: int) -> None:
        """As all; an environment whose episode has ended gets another deviation."""
        super().observe(transition, step)
        ended = transition.step.finished
        if self.settings.exploration_noise_max is not None and ended.any():
            self._deviations[ended] = self._drawn_deviations(int(ended.sum()))

    def draw(self, batch: Batch) -> dict[str, Tensor]:
        """For the targets' actions."""
        noise = self.policy.distribution.noise(len(batch.reward), self._noise)
        moves = named("next_obs", self.drawn_moves(batch.next_obs)) | named("obs", self.drawn_moves(batch.obs))
        return {"noise": noise, **moves}

    def descents(self, sample: Sample) -> Iterator[Descent]:
        """The critics; at every `policy_delay`-th update the actor, too."""
        critic_loss, q, inputs = self._judged(sample)
        yield self.down({"critics": critic_loss}, critic_loss=critic_loss, q=q.detach().mean())

        if (self._updates + 1) % self.settings.policy_delay == 0:
            actor_loss = -self._climbed(self.for_actor(inputs)).mean()
            yield self.down({"actor": actor_loss}, actor_loss=actor_loss)

    def conclude(self, measured: Mapping[str, Tensor]) -> Tensor:
        """The targets move with the actor. `actor_loss` is that of the last step of the actor, 0 before the first."""
        self._updates += 1
        if "actor_loss" in measured:
            follow(self.targets, self.critics, self.settings.tau)
            follow(self.target_actor, self._behind, self.settings.tau)
            self._actor_loss = measured["actor_loss"]
        return torch.stack([measured["critic_loss"], self._actor_loss, measured["q"]])

    def loss_and_worth(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """As above."""
        loss, _, inputs = self._judged(sample)
        return loss, self._climbed(inputs)

    def weights(self) -> Mapping[str, Tensor]:
        """As all, and the actor's target."""
        target = {name: each.data for name, each in self.target_actor.named_parameters()}
        return {**super().weights(), **named("target_actor", target)}

    def tensors(self) -> Mapping[str, Tensor]:
        """As all, with the actor's target and the deviations."""
        more = {
            **named("target_actor", self.target_actor.state_dict()),
            "actor_loss": self._actor_loss,
            "deviations": torch.from_numpy(self._deviations),
        }
        return {**super().tensors(), **copied(more)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back; environments that are new have the deviations that they drew."""
        super().load_tensors(tensors)
        self.target_actor.load_state_dict(under("target_actor", tensors))
        self._actor_loss = tensors["actor_loss"].to(self.device, copy=True)
        kept = tensors["deviations"].numpy()[: len(self._deviations)]
        self._deviations[: len(kept)] = kept

    def state(self) -> State:
        """As all, with how many updates were made."""
        common = super().state()
        return State(common.tensors, {**common.numbers, "updates": self._updates})

    def load(self, state: State) -> None:
        """Go on from there."""
        super().load(state)
        self._updates = int(state.numbers["updates"])

    def _drawn_deviations(self, environments: int) -> F32:
        """Of the noise of each, [N]: drawn where there is a choice."""
        low, high = self.settings.exploration_noise, self.settings.exploration_noise_max
        if high is None:
            return np.full(environments, low, np.float32)
        return self._exploration.uniform(low, high, environments).astype(np.float32)

    def _judged(self, sample: Sample) -> tuple[Tensor, Tensor, NetInputs]:
        """(the critics' loss, Q [2, B] of the batch's actions, what the nets read)."""
        batch, drawn = sample.batch, sample.drawn
        action = torch.from_numpy(batch.action).to(self.device)
        with torch.no_grad():
            following, _ = self.inputs(batch.next_obs, batch.task, under("next_obs", drawn))
            target = self._target(batch, following, drawn["noise"].to(self.device))

        inputs, _ = self.inputs(batch.obs, batch.task, under("obs", drawn))
        outputs = self.critics(inputs.critics, action)
        if self._values is None:
            q = outputs.squeeze(-1)
            return (q - target).square().mean(1).sum(), q, inputs
        loss = categorical.cross_entropy(outputs, target).mean(1).sum()
        return loss, categorical.mean(outputs, self._values), inputs

    def _target(self, batch: Batch, following: NetInputs, noise: Tensor) -> Tensor:
        """What the critics are to say: values [B], or where they are categorical probabilities [B, V].

        What follows counts by the discount of as many steps as lie between, and not at all after a true end.
        """
        settings, distribution = self.settings, self.policy.distribution
        reward, discount = self.rewards(batch, settings.gamma)
        limit = settings.target_noise_clip
        shaken = torch.tanh(self.target_actor(following.policy)) + (settings.target_noise * noise).clamp(-limit, limit)
        outputs = self.targets(following.critics, distribution.clip(shaken))
        if self._values is None:
            target: Tensor = reward + discount * outputs.squeeze(-1).amin(0)
            return target
        # FastTD3 compares after the projection, which is another only where a value leaves the grid.
        smaller = categorical.mean(outputs, self._values).argmin(0)
        probabilities = torch.softmax(outputs[smaller, torch.arange(len(smaller), device=self.device)], -1)
        return categorical.target(probabilities, reward, discount, self._values)

    def _climbed(self, inputs: NetInputs) -> Tensor:
        """The first critic's Q of what the actor does, [B]."""
        action = self.policy.distribution.mode(self.policy.of_inputs(inputs.policy))
        outputs = self.critics.first(inputs.critics, action)
        q: Tensor = outputs.squeeze(-1) if self._values is None else categorical.mean(outputs, self._values)
        return q


def middle_deviation(settings: Td3) -> float:
    """Of the noise of those who play with a published policy: in the middle of what the environments draw from."""
    low, high = settings.exploration_noise, settings.exploration_noise_max
    return low if high is None else (low + high) / 2


def _outputs(settings: Td3) -> int:
    """How many numbers each critic says."""
    return settings.value_bins if settings.critic_loss == "categorical" else 1
