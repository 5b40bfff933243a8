"""Soft actor-critic for any observation and any action, by torch's own derivatives.

Haarnoja et al. 2018 (arXiv 1812.05905); for actions that are one of several, Christodoulou 2019 (arXiv 1910.07207): the
critics give a value for each, and means over actions are sums. One update of it, on a row of numbers, is one of MTSAC's
plain critics (a test says so); that one is faster. What reads pictures: `trainer.algorithms.common.twins`.

Shapes: B transitions, K tasks, A of an action, or one of n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.autograd import follow
from trainer.algorithms.common.descents import Descent
from trainer.algorithms.common.sample import Sample
from trainer.algorithms.common.tensors import named, under
from trainer.algorithms.common.twins import TwinOffPolicy
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Sac
from trainer.config.training import Training
from trainer.envs.spaces import Box, Spaces
from trainer.machine.device import on_device, to_device
from trainer.nets.distributions import usual_entropy
from trainer.nets.twins import NetInputs, TwinCritics


class Algorithm(TwinOffPolicy):
    """The actor, two critics, their targets and a temperature a task."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "temperature_loss", "q", "entropy")
    settings: Sac

    def __init__(self, context: Context) -> None:
        spaces = context.spaces
        super().__init__(context, *_shapes(spaces))
        start = torch.full((len(spaces.tasks),), self.settings.init_temperature, device=self.device).log()
        self.log_temperature = nn.Parameter(start)
        self.target_entropy = target_entropy(self.settings, spaces)
        self._chooses = not isinstance(spaces.action, Box)
        self._learned["temperature"] = [self.log_temperature]
        self.make_optimizers(torch.optim.Adam, lr=self.settings.learning_rate)

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The actor, and both critics together."""
        return cls.sizes_for(training, spaces, *_shapes(spaces))

    def draw(self, batch: Batch) -> dict[str, Tensor]:
        """For the actions behind `next_obs` and behind `obs`."""
        next_noise, noise = (self.policy.distribution.noise(len(batch.reward), self._noise) for _ in range(2))
        moves = named("next_obs", self.drawn_moves(batch.next_obs)) | named("obs", self.drawn_moves(batch.obs))
        return {"next_noise": next_noise, "noise": noise, **moves}

    def descents(self, sample: Sample) -> Iterator[Descent]:
        """The critics; then the actor and the temperatures."""
        critic_loss, q, inputs, task = self._judged(sample)
        yield self.down({"critics": critic_loss}, critic_loss=critic_loss, q=q.mean())

        worth, log = self._worth(self.critics, self.for_actor(inputs), to_device(sample.drawn["noise"], self.device))
        temperature = self.log_temperature.detach().exp()[task]
        actor_loss = (temperature * log - worth).mean()
        temperature_loss = -(self.log_temperature[task] * (log.detach() + self.target_entropy)).mean()
        losses = {"actor": actor_loss, "temperature": temperature_loss}
        yield self.down(losses, actor_loss=actor_loss, temperature_loss=temperature_loss, entropy=-log.mean())

    def conclude(self, measured: Mapping[str, Tensor]) -> Tensor:
        """As all."""
        follow(self.targets, self.critics, self.settings.tau)
        return torch.stack([measured[name] for name in self.METRICS])

    def loss_and_worth(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """As above."""
        loss, _, inputs, _ = self._judged(sample)
        return loss, self._worth(self.critics, inputs, to_device(sample.drawn["noise"], self.device))[0]

    def weights(self) -> Mapping[str, Tensor]:
        """As all, and the temperatures."""
        return {**super().weights(), "log_temperature": self.log_temperature.data}

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Each task's entropy temperature."""
        temperatures: list[float] = self.log_temperature.detach().exp().tolist()
        return {"temperature": temperatures}

    def tensors(self) -> Mapping[str, Tensor]:
        """As all, and the temperatures."""
        return {**super().tensors(), "log_temperature": self.log_temperature.detach().to("cpu", copy=True)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back."""
        super().load_tensors(tensors)
        self.log_temperature.data.copy_(tensors["log_temperature"])

    def _judged(self, sample: Sample) -> tuple[Tensor, Tensor, NetInputs, Tensor]:
        """(the critics' loss, Q [2, B] of the batch's actions, what the nets read, the tasks [B])."""
        batch, drawn = sample.batch, sample.drawn
        reward, terminated, action = (on_device(x, self.device) for x in (batch.reward, batch.terminated, batch.action))
        with torch.no_grad():
            following, task = self.inputs(batch.next_obs, batch.task, under("next_obs", drawn))
            worth, next_log = self._worth(self.targets, following, to_device(drawn["next_noise"], self.device))
            entropy = self.log_temperature.exp()[task] * next_log
            target = reward + self.settings.gamma * (1 - terminated) * (worth - entropy)

        inputs, _ = self.inputs(batch.obs, batch.task, under("obs", drawn))
        if self._chooses:
            q = self.critics(inputs.critics).gather(-1, action.expand(2, -1).unsqueeze(-1)).squeeze(-1)
        else:
            q = self.critics(inputs.critics, action).squeeze(-1)
        return (q - target).square().mean(1).sum(), q, inputs, task

    def _worth(self, critics: TwinCritics, inputs: NetInputs, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(the smaller Q of what the actor would do, the log density of it), [B] each; means, where it chooses."""
        outputs = self.acted(inputs.policy)
        if self._chooses:
            log = torch.log_softmax(outputs, -1)
            return (log.exp() * critics(inputs.critics).amin(0)).sum(-1), (log.exp() * log).sum(-1)
        action, log = self.policy.distribution.sample(outputs, noise)
        return critics(inputs.critics, action).squeeze(-1).amin(0), log


def target_entropy(settings: Sac, spaces: Spaces) -> float:
    """In nats: what is asked for, or what is usual for these actions."""
    return usual_entropy(spaces.action) if settings.target_entropy is None else settings.target_entropy


def _shapes(spaces: Spaces) -> tuple[str, int]:
    """(the distribution, how many numbers each critic says)."""
    return ("squashed-normal", 1) if isinstance(spaces.action, Box) else ("categorical", spaces.action.n)
