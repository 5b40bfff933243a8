"""Multi-task SAC as the training sees it: how it acts, what an update takes, its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.cuda_graph import NATIVE, Updates, choose_launch_mode
from trainer.algorithms.common.descents import Descent
from trainer.algorithms.common.diagnostics import Diagnosis
from trainer.algorithms.common.offpolicy import OffPolicy
from trainer.algorithms.common.precision import rounding
from trainer.algorithms.common.sample import Sample
from trainer.algorithms.common.tensors import count
from trainer.algorithms.mtsac.diagnostics import diagnose, loss_and_worth, of_contributors
from trainer.algorithms.mtsac.graph_check import is_same
from trainer.algorithms.mtsac.inputs import Inputs, draw, inputs_of
from trainer.algorithms.mtsac.learner import act, actor_and_critics, create, load, settings_in, tensors_of, weights_of
from trainer.algorithms.mtsac.native.beside import Beside
from trainer.algorithms.mtsac.native.choice import choose_native, threads_for
from trainer.algorithms.mtsac.native.update import NativeUpdates
from trainer.algorithms.mtsac.update import METRICS, conclude, descend, descents, learn, note_rewards
from trainer.buffers.rows import Batch
from trainer.config.training import Training
from trainer.envs.spaces import I32, Actions, Obs, Spaces
from trainer.machine.device import on_device
from trainer.machine.host import read_host
from trainer.nets.policy import PolicyNet


class Algorithm(OffPolicy):
    """Its updates leave the same numbers by kernels and as a graph, and others in the last digits natively."""

    METRICS: ClassVar[tuple[str, ...]] = METRICS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        settings_in(context.training)
        self.learner = create(context.training, context.spaces, context.device)
        self._way = context.way
        self._beside = Beside(threads_for(context.training, read_host().cores) if self._way == NATIVE else 1)
        self._update = self._made()

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """A CUDA graph where that is asked for and leaves the same bits; on a CPU natively where that is possible."""
        if device.type == "cpu":
            return choose_native(training, recorded)
        wanted, shards = training.cuda_graph, training.algorithm.shards
        with rounding(training.off_policy, device):
            return choose_launch_mode(lambda: is_same(training, spaces, device), device, wanted=wanted, shards=shards)

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> tuple[NetSize, ...]:
        """The actor, and both critics together."""
        actor, critics = actor_and_critics(training, spaces, None)
        network = training.network
        return (
            NetSize("the actor", "network.actor_hidden", network.actor_hidden, count(actor)),
            NetSize(
                "the critics", "network.critic_hidden", network.critic_hidden, count(critics), 1,
                values=2 * sum(network.critic_hidden),
            ),
        )  # fmt: skip

    @property
    def policy(self) -> PolicyNet:
        """The actor."""
        return self.learner.actor

    @property
    def device(self) -> torch.device:
        """Where it learns."""
        return self.learner.device

    def sampled(self, obs: Obs, task: I32) -> Actions:
        """Of the actor."""
        return act(self.learner, obs, task)

    def draw(self, batch: Batch) -> dict[str, Tensor]:
        """For the actions behind `next_obs` and behind `obs`."""
        return draw(batch, self.learner.noise)

    def learn_whole(self, sample: Sample) -> Tensor:
        """As recorded, or natively, where it is."""
        return self._update(inputs_of(sample, self.device))

    def see(self, batch: Batch) -> None:
        """The largest rewards."""
        note_rewards(self.learner, *(on_device(numbers, self.device) for numbers in (batch.task, batch.reward)))

    def descents(self, sample: Sample) -> Iterator[Descent]:
        """The critics; then the actor and the temperatures."""
        return descents(self.learner, inputs_of(sample, self.device))

    def descend(self, name: str, gradients: Sequence[Tensor]) -> None:
        """Of critics, actor or temperatures."""
        descend(self.learner, name, gradients)

    def conclude(self, measured: Mapping[str, Tensor]) -> Tensor:
        """As all."""
        return conclude(self.learner, measured)

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Each task's entropy temperature."""
        temperatures: list[float] = self.learner.log_temperature.detach().exp().tolist()
        return {"temperature": temperatures}

    def diagnose(self, step: int) -> Diagnosis | None:
        """Of actor and critics."""
        return diagnose(self.learner, self.experience.own, step)

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:
        """Each one's mean TD error."""
        others = self.experience.others
        return {} if others is None else of_contributors(self.learner, others, step)

    def weights(self) -> Mapping[str, Tensor]:
        """Actor, critics, targets and temperatures."""
        return weights_of(self.learner)

    def judged(self, batch: Batch, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """As above."""
        return loss_and_worth(self.learner, batch, noise)

    def tensors(self) -> Mapping[str, Tensor]:
        """Nets, optimizers, noise."""
        return tensors_of(self.learner)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back."""
        load(self.learner, tensors)
        self._update = self._made()  # what was recorded would go on with moments that are no longer there

    def _made(self) -> Callable[[Inputs], Tensor]:
        if self._way == NATIVE:
            return NativeUpdates(self.learner, self._beside).learn
        return Updates(partial(learn, self.learner), self.device, self._way).update
