"""TD3: a deterministic actor, two critics, and targets that are slow, noisy and take the smaller of both.

Fujimoto et al. 2018 (arXiv 1802.09477). As settings what FastTD3 adds (Seo et al. 2025, arXiv 2505.22642): categorical
critics, returns of several steps, and for each environment a noise of its own. For any observation; where something
reads pictures, it learns from the critics' loss alone (Yarats et al. 2021, arXiv 2107.09645).

Shapes: N environments, B transitions, I numbers that the nets read, A of an action, V values of a categorical critic.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common import categorical
from trainer.algorithms.common.autograd import descend, follow, optimizers_of, read
from trainer.algorithms.common.offpolicy import OffPolicy
from trainer.algorithms.common.tensors import copied, count, load_moments, moments_of, named, torch_generator, under
from trainer.buffers.nstep import NStep
from trainer.buffers.rows import Batch, Rows
from trainer.config.algorithms import Td3
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, I32, Actions, Box, Obs, Spaces
from trainer.errors import ConfigError
from trainer.nets.mlp import MLP
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.state import State
from trainer.streams import RandomStream


class Algorithm(OffPolicy):
    """The actor, two critics, the targets of all three; the noise of each environment, and rows that are not whole."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q")
    settings: Td3

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        training, spaces, settings = context.training, context.spaces, self.settings
        self.device = context.device
        init, self._noise = (torch_generator(training.seed, key) for key in (RandomStream.NETS, RandomStream.NOISE))
        self.policy, self.critics = actor_and_critics(training, spaces, init)
        self.policy.free.requires_grad_(False).fill_(math.log(middle_deviation(settings)))
        self.policy.to(self.device)
        self.critics.to(self.device)
        self.targets = copy.deepcopy(self.critics).requires_grad_(requires_grad=False)
        self.target_actor = copy.deepcopy(self.policy.body).requires_grad_(requires_grad=False)
        self._learned = {
            "actor": list(self.policy.body.parameters()),
            "critics": [*self.critics.parameters(), *self.policy.encoders.parameters()],
        }
        rates = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
        self._optimizers = optimizers_of(self._learned, self.device, torch.optim.AdamW, **rates)
        self._values = (
            categorical.grid(settings.value_limit, settings.value_bins, self.device)
            if settings.critic_loss == "categorical"
            else None
        )
        self._updates = 0
        self._actor_loss = torch.zeros((), device=self.device)
        self._deviations = self._drawn_deviations(context.num_envs)
        self._sums = (
            NStep(spaces, settings.n_step, context.num_envs, settings.gamma)
            if settings.sums_steps and not self.keeps_frames
            else None
        )

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The actor, and both critics together."""
        actor, critics = actor_and_critics(training, spaces, None)
        network = training.network
        hidden = network.critic_hidden
        return [
            NetSize("the actor", "network.actor_hidden", network.actor_hidden, count(actor), 1),
            NetSize("the critics", "network.critic_hidden", hidden, count(critics), 1, values=2 * sum(hidden)),
        ]

    @torch.no_grad()
    def sampled(self, obs: Obs, task: I32) -> Actions:
        """The actor's, each environment's with noise of its own deviation."""
        distribution = self.policy.distribution
        wanted = distribution.mode(self.policy(*read(obs, task, self.device)))
        noise = distribution.noise(len(task), self._noise) * torch.from_numpy(self._deviations).unsqueeze(-1)
        actions: Actions = distribution.clip(wanted + noise.to(self.device)).cpu().numpy()
        return actions

    def kept(self, transition: Transition) -> Iterable[tuple[I32, Rows]]:
        """The step, or the rows of several that it makes whole."""
        return super().kept(transition) if self._sums is None else self._sums.add(transition)

    def observe(self, transition: Transition, step: int) -> None:
        """As all; an environment whose episode has ended gets another deviation."""
        super().observe(transition, step)
        ended = transition.step.finished
        if self.settings.exploration_noise_max is not None and ended.any():
            self._deviations[ended] = self._drawn_deviations(int(ended.sum()))

    def learn(self, batch: Batch) -> Tensor:
        """One step of the critics; at every `policy_delay`-th of actor and targets, too.

        `actor_loss` is that of the last step of the actor, 0 before the first.
        """
        settings, policy = self.settings, self.policy
        obs, task = read(batch.obs, batch.task, self.device)
        action = torch.from_numpy(batch.action).to(self.device)
        noise = policy.distribution.noise(len(task), self._noise).to(self.device)
        with torch.no_grad():
            next_inputs = policy.inputs(*read(batch.next_obs, batch.task, self.device))
            target = self._target(batch, next_inputs, noise)

        inputs = policy.inputs(obs, task)
        outputs = self._judged(self.critics, inputs, action)
        if self._values is None:
            q = outputs.squeeze(-1)
            critic_loss = (q - target).square().mean(1).sum()
        else:
            q = categorical.mean(outputs, self._values)
            critic_loss = categorical.cross_entropy(outputs, target).mean(1).sum()
        self._descend("critics", critic_loss)

        self._updates += 1
        if self._updates % settings.policy_delay == 0:
            actor_loss = -self._climbed(inputs.detach()).mean()
            self._descend("actor", actor_loss)
            follow(self.targets, self.critics, settings.tau)
            follow(self.target_actor, policy.body, settings.tau)
            self._actor_loss = actor_loss.detach()
        return torch.stack([critic_loss.detach(), self._actor_loss, q.detach().mean()])

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Nothing of a task."""
        return {}

    def diagnose(self, step: int) -> None:
        """Nothing yet."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:  # noqa: ARG002 - as the protocol has it
        """Nothing yet."""
        return {}

    def tensors(self) -> Mapping[str, Tensor]:
        """Nets, targets, optimizers, noise."""
        learned = {
            **named("policy", self.policy.state_dict()),
            **named("critics", self.critics.state_dict()),
            **named("targets", self.targets.state_dict()),
            **named("target_actor", self.target_actor.state_dict()),
            "actor_loss": self._actor_loss,
            "deviations": torch.from_numpy(self._deviations),
        }
        for name, optimizer in self._optimizers.items():
            learned |= moments_of(name, optimizer)
        return {**copied(learned), "noise": self._noise.get_state()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back; environments that are new have the deviations that they drew."""
        for name, net in (
            ("policy", self.policy),
            ("critics", self.critics),
            ("targets", self.targets),
            ("target_actor", self.target_actor),
        ):
            net.load_state_dict(under(name, tensors))
        self._actor_loss = tensors["actor_loss"].to(self.device, copy=True)
        kept = tensors["deviations"].numpy()[: len(self._deviations)]
        self._deviations[: len(kept)] = kept
        for name, optimizer in self._optimizers.items():
            load_moments(name, optimizer, tensors)
        self._noise.set_state(tensors["noise"])

    def state(self) -> State:
        """As all, with how many updates were made, and the rows that are not whole."""
        common = super().state()
        tensors, numbers = common.tensors, {**common.numbers, "updates": self._updates}
        if self._sums is not None:
            begun = self._sums.state()
            tensors = {**tensors, **named("sums", {name: torch.from_numpy(x) for name, x in begun.tensors.items()})}
            numbers["sums"] = dict(begun.numbers)
        return State(tensors, numbers)

    def load(self, state: State) -> None:
        """Go on from there."""
        super().load(state)
        self._updates = int(state.numbers["updates"])
        if self._sums is not None:
            begun = {name: tensor.numpy() for name, tensor in under("sums", state.tensors).items()}
            self._sums.load(State(begun, state.numbers["sums"]))

    def _drawn_deviations(self, environments: int) -> F32:
        """Of the noise of each, [N]: drawn where there is a choice."""
        low, high = self.settings.exploration_noise, self.settings.exploration_noise_max
        if high is None:
            return np.full(environments, low, np.float32)
        return self._exploration.uniform(low, high, environments).astype(np.float32)

    def _judged(self, critics: nn.ModuleList, inputs: Tensor, action: Tensor) -> Tensor:
        """What both say, [2, B, 1 or V]."""
        read_by_both = torch.cat([inputs, action], -1)
        return torch.stack([critic(read_by_both) for critic in critics])

    def _target(self, batch: Batch, next_inputs: Tensor, noise: Tensor) -> Tensor:
        """What the critics are to say: values [B], or where they are categorical probabilities [B, V].

        What follows counts by the discount of as many steps as lie between, and not at all after a true end.
        """
        settings, distribution = self.settings, self.policy.distribution
        reward, terminated = (torch.from_numpy(array).to(self.device) for array in (batch.reward, batch.terminated))
        steps = torch.ones_like(reward) if batch.steps is None else torch.from_numpy(batch.steps).to(self.device)
        discount = settings.gamma**steps * (1 - terminated)
        limit = settings.target_noise_clip
        shaken = torch.tanh(self.target_actor(next_inputs)) + (settings.target_noise * noise).clamp(-limit, limit)
        outputs = self._judged(self.targets, next_inputs, distribution.clip(shaken))
        if self._values is None:
            return reward + discount * outputs.squeeze(-1).amin(0)
        # FastTD3 compares after the projection, which is another only where a value leaves the grid.
        smaller = categorical.mean(outputs, self._values).argmin(0)
        probabilities = torch.softmax(outputs[smaller, torch.arange(len(smaller), device=self.device)], -1)
        return categorical.target(probabilities, reward, discount, self._values)

    def _climbed(self, inputs: Tensor) -> Tensor:
        """The first critic's Q of what the actor does, [B]."""
        outputs = self.critics[0](torch.cat([inputs, torch.tanh(self.policy.body(inputs))], -1))
        q: Tensor = outputs.squeeze(-1) if self._values is None else categorical.mean(outputs, self._values)
        return q

    def _descend(self, name: str, loss: Tensor) -> None:
        descend(self._optimizers[name], self._learned[name], loss, self.settings.grad_clip)


def middle_deviation(settings: Td3) -> float:
    """Of the noise of those who play with a published policy: in the middle of what the environments draw from."""
    low, high = settings.exploration_noise, settings.exploration_noise_max
    return low if high is None else (low + high) / 2


def actor_and_critics(
    training: Training, spaces: Spaces, init: torch.Generator | None
) -> tuple[PolicyNet, nn.ModuleList]:
    """The nets of `training`, their weights drawn from `init`; None: on torch's `meta` device, to be counted.

    Errors: ConfigError for actions that are one of several.
    """
    network, action = training.network, spaces.action
    settings = cast("Td3", training.algorithm)
    if not isinstance(action, Box):
        raise ConfigError(
            f"td3 gives actions of real numbers, and those of {training.env.name} are one of {action.n}: use "
            "sac, ppo or a2c (training.algorithm)"
        )
    actor = PolicyNet(PolicySpec(spaces, network, "tanh-noise"), init)
    outputs = settings.value_bins if settings.critic_loss == "categorical" else 1
    critics = nn.ModuleList(
        MLP(actor.width + action.size, network.critic_hidden, outputs, init, activation=network.activation)
        for _ in range(2)
    )
    return actor, critics
