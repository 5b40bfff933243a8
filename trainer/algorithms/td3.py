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
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common import categorical
from trainer.algorithms.common.autograd import follow
from trainer.algorithms.common.cuda_graph import Record, Updates, choose_launch_mode, not_recorded, record_cuda_graph
from trainer.algorithms.common.descents import Descent, descend_all
from trainer.algorithms.common.graph_check import leaves_same_bits
from trainer.algorithms.common.precision import rounding
from trainer.algorithms.common.sample import Sample
from trainer.algorithms.common.tensors import copied, named, under
from trainer.algorithms.common.twins import TwinOffPolicy, must_be_numbers, nets_of
from trainer.buffers.experience import Experience
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Td3
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, Actions, Spaces
from trainer.machine.device import on_device, to_device
from trainer.nets.encoders.base import kept_spaces
from trainer.nets.twins import NetInputs
from trainer.state import State

_DISTRIBUTION = "tanh-noise"


@dataclass(frozen=True)
class UpdateInputs:
    """What one update works on, all on the learner's device: what policy and critics read of B transitions, and of what
    follows them; `discount`: what counts of that; `noise` [B, A], standard normal.
    """

    policy: Tensor
    critics: Tensor
    next_policy: Tensor
    next_critics: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    noise: Tensor


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
        rates["capturable"] = self.device.type == "cuda"
        self.make_optimizers(torch.optim.AdamW, **rates)
        self._values = (
            categorical.grid(settings.value_limit, settings.value_bins, self.device)
            if settings.critic_loss == "categorical"
            else None
        )
        self._updates = 0
        self._actor_loss = torch.zeros((), device=self.device)
        self._deviations = self._drawn_deviations(context.num_envs)
        self._way = context.way
        self.launch(context.way)

    def launch(self, way: str, record: Record = record_cuda_graph) -> None:
        """Make updates that `way` from here on: those with a step of the actor, and those without."""
        self._made = {moves: Updates(partial(self._update, moves), self.device, way, record) for moves in (True, False)}

    @classmethod
    def choose_launch_mode(
        cls,
        training: Training,
        spaces: Spaces,
        device: torch.device,
        recorded: str | None,  # noqa: ARG003 - as the protocol has it
    ) -> tuple[str, str | None]:
        """A CUDA graph where that is asked for and leaves the same bits; never where an encoder learns along."""

        def is_same() -> bool:
            kept = kept_spaces(spaces, training.network)  # of rows: where an encoder is frozen, what it makes of them
            return leaves_same_bits(partial(made_alone, training, spaces, device), training, kept)

        if nets_of(training, spaces, _DISTRIBUTION, 1, None)[0].encoders:
            return not_recorded(training, device, "encoders that learn")
        wanted, shards = training.cuda_graph, training.algorithm.shards
        with rounding(training.off_policy, device):
            return choose_launch_mode(is_same, device, wanted=wanted, shards=shards)

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
        return self._descents(self._inputs_of(sample), moves_actor=self._moves_actor)

    def learn_whole(self, sample: Sample) -> Tensor:
        """As recorded, where it is."""
        made = self._made[self._moves_actor]
        self._updates += 1
        return made.update(self._inputs_of(sample))

    def conclude(self, measured: Mapping[str, Tensor]) -> Tensor:
        """The targets move with the actor. `actor_loss` is that of the last step of the actor, 0 before the first."""
        self._updates += 1
        return self._concluded(measured)

    def loss_and_worth(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """As above."""
        of = self._inputs_of(sample)
        loss, _ = self._judged(of)
        return loss, self._climbed(NetInputs(of.policy, of.critics))

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
        self._actor_loss.copy_(tensors["actor_loss"])
        self.launch(self._way)  # what was recorded would go on with moments that are no longer there
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

    @property
    def _moves_actor(self) -> bool:
        """Whether the next update does."""
        return (self._updates + 1) % self.settings.policy_delay == 0

    def _inputs_of(self, sample: Sample) -> UpdateInputs:
        batch, drawn = sample.batch, sample.drawn
        action, noise = on_device(batch.action, self.device), to_device(drawn["noise"], self.device)
        reward, discount = self.rewards(batch, self.settings.gamma)
        with torch.no_grad():
            following, _ = self.inputs(batch.next_obs, batch.task, under("next_obs", drawn))
        inputs, _ = self.inputs(batch.obs, batch.task, under("obs", drawn))
        return UpdateInputs(*inputs, *following, action, reward, discount, noise)

    def _update(self, moves_actor: bool, of: UpdateInputs) -> Tensor:
        """An update from where everything is on the device: nothing in here reads a number back, or draws one."""
        return self._concluded(descend_all(self._descents(of, moves_actor=moves_actor), self.descend))

    def _descents(self, of: UpdateInputs, *, moves_actor: bool) -> Iterator[Descent]:
        critic_loss, q = self._judged(of)
        yield self.down({"critics": critic_loss}, critic_loss=critic_loss, q=q.detach().mean())

        if moves_actor:
            actor_loss = -self._climbed(self.for_actor(NetInputs(of.policy, of.critics))).mean()
            yield self.down({"actor": actor_loss}, actor_loss=actor_loss)

    def _concluded(self, measured: Mapping[str, Tensor]) -> Tensor:
        if "actor_loss" in measured:
            follow(self.targets, self.critics, self.settings.tau)
            follow(self.target_actor, self._behind, self.settings.tau)
            self._actor_loss.copy_(measured["actor_loss"])
        return torch.stack([measured["critic_loss"], self._actor_loss, measured["q"]])

    def _judged(self, of: UpdateInputs) -> tuple[Tensor, Tensor]:
        """(the critics' loss, Q [2, B] of the batch's actions)."""
        with torch.no_grad():
            target = self._target(of)
        outputs = self.critics(of.critics, of.action)
        if self._values is None:
            q = outputs.squeeze(-1)
            return (q - target).square().mean(1).sum(), q
        loss = categorical.cross_entropy(outputs, target).mean(1).sum()
        return loss, categorical.mean(outputs.detach(), self._values)

    def _target(self, of: UpdateInputs) -> Tensor:
        """What the critics are to say: values [B], or where they are categorical probabilities [B, V].

        What follows counts by the discount of as many steps as lie between, and not at all after a true end.
        """
        settings, distribution = self.settings, self.policy.distribution
        limit = settings.target_noise_clip
        noise = (settings.target_noise * of.noise).clamp(-limit, limit)
        shaken = torch.tanh(self.target_actor(of.next_policy).float()) + noise
        outputs = self.targets(of.next_critics, distribution.clip(shaken))
        if self._values is None:
            target: Tensor = of.reward + of.discount * outputs.squeeze(-1).amin(0)
            return target
        # FastTD3 compares after the projection, which is another only where a value leaves the grid.
        return categorical.target(categorical.smaller(outputs, self._values), of.reward, of.discount, self._values)

    def _climbed(self, inputs: NetInputs) -> Tensor:
        """The first critic's Q of what the actor does, [B]."""
        action = self.policy.distribution.mode(self.acted(inputs.policy))
        outputs = self.critics.first(inputs.critics, action)
        q: Tensor = outputs.squeeze(-1) if self._values is None else categorical.mean(outputs, self._values)
        return q


def made_alone(training: Training, spaces: Spaces, device: torch.device, way: str) -> Algorithm:
    """To try updates with: its replay stays empty, and takes no memory."""
    apart = training.model_copy(update={"replay_on": "host"})
    return Algorithm(Context(apart, spaces, 1, device, Experience(apart, spaces), way))


def middle_deviation(settings: Td3) -> float:
    """Of the noise of those who play with a published policy: in the middle of what the environments draw from."""
    low, high = settings.exploration_noise, settings.exploration_noise_max
    return low if high is None else (low + high) / 2


def _outputs(settings: Td3) -> int:
    """How many numbers each critic says."""
    return settings.value_bins if settings.critic_loss == "categorical" else 1
