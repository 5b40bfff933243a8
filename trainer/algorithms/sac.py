"""Soft actor-critic for any observation and any action, by torch's own derivatives.

Haarnoja et al. 2018 (arXiv 1812.05905); for actions that are one of several, Christodoulou 2019 (arXiv 1910.07207): the
critics give a value for each, and means over actions are sums. Where something reads pictures, it learns from the
critics' loss alone, and the actor uses what it makes of them (Yarats et al. 2021, arXiv 2107.09645). One update of it,
on a row of numbers, is one of MTSAC's plain critics (a test says so); that one is faster.

Shapes: B transitions, K tasks, I numbers that the nets read, A of an action, or one of n.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.autograd import descend, follow, optimizers_of, read
from trainer.algorithms.common.offpolicy import OffPolicy
from trainer.algorithms.common.tensors import copied, count, load_moments, moments_of, named, torch_generator, under
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Sac
from trainer.config.training import Training
from trainer.envs.spaces import I32, Actions, Box, Obs, Spaces
from trainer.nets.mlp import MLP
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.streams import RandomStream

#: Of the entropy of actions that are one of several (CleanRL, sac_atari.py).
_SHARE_OF_ENTROPY = 0.89


class Algorithm(OffPolicy):
    """The actor, two critics, their targets and a temperature a task."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "temperature_loss", "q", "entropy")
    settings: Sac

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        training, spaces = context.training, context.spaces
        self.device = context.device
        init, self._noise = (torch_generator(training.seed, key) for key in (RandomStream.NETS, RandomStream.NOISE))
        self.policy, self.critics = actor_and_critics(training, spaces, init)
        self.policy.to(self.device)
        self.critics.to(self.device)
        self.targets = copy.deepcopy(self.critics).requires_grad_(requires_grad=False)
        start = torch.full((len(spaces.tasks),), self.settings.init_temperature, device=self.device).log()
        self.log_temperature = nn.Parameter(start)
        self.target_entropy = target_entropy(self.settings, spaces)
        self._chooses = not isinstance(spaces.action, Box)
        self._learned = {
            "actor": list(self.policy.body.parameters()),
            "critics": [*self.critics.parameters(), *self.policy.encoders.parameters()],
            "temperature": [self.log_temperature],
        }
        self._optimizers = optimizers_of(self._learned, self.device, torch.optim.Adam, lr=self.settings.learning_rate)

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The actor, and both critics together."""
        actor, critics = actor_and_critics(training, spaces, None)
        network = training.network
        hidden = network.critic_hidden
        return [
            NetSize("the actor", "network.actor_hidden", network.actor_hidden, count(actor)),
            NetSize("the critics", "network.critic_hidden", hidden, count(critics), 1, values=2 * sum(hidden)),
        ]

    @torch.no_grad()
    def sampled(self, obs: Obs, task: I32) -> Actions:
        """Of the actor."""
        distribution = self.policy.distribution
        outputs = self.policy(*read(obs, task, self.device))
        noise = distribution.noise(len(task), self._noise).to(self.device)
        actions: Actions = distribution.draw(outputs, noise).cpu().numpy()
        return actions

    def learn(self, batch: Batch) -> Tensor:
        """One step of critics, actor, temperatures and targets."""
        settings, policy = self.settings, self.policy
        obs, task = read(batch.obs, batch.task, self.device)
        reward, terminated = (torch.from_numpy(x).to(self.device) for x in (batch.reward, batch.terminated))
        action = torch.from_numpy(batch.action).to(self.device)
        noise = [policy.distribution.noise(len(task), self._noise).to(self.device) for _ in range(2)]
        temperature = self.log_temperature.detach().exp()[task]
        with torch.no_grad():
            next_inputs = policy.inputs(*read(batch.next_obs, batch.task, self.device))
            worth, next_log = self._worth(self.targets, next_inputs, noise[0])
            target = reward + settings.gamma * (1 - terminated) * (worth - temperature * next_log)

        inputs = policy.inputs(obs, task)
        if self._chooses:
            q = torch.stack([critic(inputs).gather(-1, action.unsqueeze(-1))[:, 0] for critic in self.critics])
        else:
            q = torch.stack([critic(torch.cat([inputs, action], -1))[:, 0] for critic in self.critics])
        critic_loss = (q - target).square().mean(1).sum()
        self._descend("critics", critic_loss)

        worth, log = self._worth(self.critics, inputs.detach(), noise[1])
        actor_loss = (temperature * log - worth).mean()
        self._descend("actor", actor_loss)

        temperature_loss = -(self.log_temperature[task] * (log.detach() + self.target_entropy)).mean()
        self._descend("temperature", temperature_loss)
        follow(self.targets, self.critics, settings.tau)
        return torch.stack([critic_loss, actor_loss, temperature_loss, q.mean(), -log.mean()]).detach()

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Each task's entropy temperature."""
        temperatures: list[float] = self.log_temperature.detach().exp().tolist()
        return {"temperature": temperatures}

    def diagnose(self, step: int) -> None:
        """Nothing yet."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:  # noqa: ARG002 - as the protocol has it
        """Nothing yet."""
        return {}

    def tensors(self) -> Mapping[str, Tensor]:
        """Nets, targets, temperatures, optimizers, noise."""
        learned = {
            **named("policy", self.policy.state_dict()),
            **named("critics", self.critics.state_dict()),
            **named("targets", self.targets.state_dict()),
            "log_temperature": self.log_temperature.data,
        }
        for name, optimizer in self._optimizers.items():
            learned |= moments_of(name, optimizer)
        return {**copied(learned), "noise": self._noise.get_state()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back."""
        for name, net in (("policy", self.policy), ("critics", self.critics), ("targets", self.targets)):
            net.load_state_dict(under(name, tensors))
        self.log_temperature.data.copy_(tensors["log_temperature"])
        for name, optimizer in self._optimizers.items():
            load_moments(name, optimizer, tensors)
        self._noise.set_state(tensors["noise"])

    def _worth(self, critics: nn.ModuleList, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(the smaller Q of what the actor would do, the log density of it), [B] each; means, where it chooses."""
        outputs = self.policy.body(inputs)
        if self._chooses:
            log = torch.log_softmax(outputs, -1)
            smaller = torch.stack([critic(inputs) for critic in critics]).amin(0)
            return (log.exp() * smaller).sum(-1), (log.exp() * log).sum(-1)
        action, log = self.policy.distribution.sample(outputs, noise)
        q = torch.stack([critic(torch.cat([inputs, action], -1))[:, 0] for critic in critics])
        return q.amin(0), log

    def _descend(self, name: str, loss: Tensor) -> None:
        """One step of what is called so; no other net gets a gradient of it."""
        clip = self.settings.grad_clip if name != "temperature" else 0.0
        descend(self._optimizers[name], self._learned[name], loss, clip)


def target_entropy(settings: Sac, spaces: Spaces) -> float:
    """In nats: what is asked for, or what is usual for these actions."""
    if settings.target_entropy is not None:
        return settings.target_entropy
    action = spaces.action
    return -float(action.size) if isinstance(action, Box) else _SHARE_OF_ENTROPY * math.log(action.n)


def actor_and_critics(
    training: Training, spaces: Spaces, init: torch.Generator | None
) -> tuple[PolicyNet, nn.ModuleList]:
    """The nets of `training`, their weights drawn from `init`; None: on torch's `meta` device, to be counted."""
    network, action = training.network, spaces.action
    distribution = "tanh-normal" if isinstance(action, Box) else "categorical"
    actor = PolicyNet(PolicySpec(spaces, network, distribution), init)
    more, outputs = (action.size, 1) if isinstance(action, Box) else (0, action.n)
    critics = nn.ModuleList(
        MLP(actor.width + more, network.critic_hidden, outputs, init, activation=network.activation) for _ in range(2)
    )
    return actor, critics
