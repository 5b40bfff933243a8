"""Multi-task SAC as the training sees it: how it acts, what an update takes, its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.cuda_graph import NATIVE, Updates, choose_launch_mode
from trainer.algorithms.common.diagnostics import Diagnosis
from trainer.algorithms.common.offpolicy import OffPolicy
from trainer.algorithms.common.tensors import count
from trainer.algorithms.mtsac.diagnostics import diagnose, of_contributors
from trainer.algorithms.mtsac.graph_check import is_same
from trainer.algorithms.mtsac.inputs import Inputs, prepare
from trainer.algorithms.mtsac.learner import act, actor_and_critics, create, load, settings_in, tensors_of
from trainer.algorithms.mtsac.native.choice import choose_native
from trainer.algorithms.mtsac.native.update import NativeUpdates
from trainer.algorithms.mtsac.update import METRICS, learn
from trainer.buffers.rows import Batch
from trainer.config.training import Training
from trainer.envs.spaces import I32, Actions, Obs, Spaces
from trainer.nets.policy import PolicyNet


class Algorithm(OffPolicy):
    """Its updates leave the same numbers by kernels and as a graph, and others in the last digits natively."""

    METRICS: ClassVar[tuple[str, ...]] = METRICS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        settings_in(context.training)
        self.learner = create(context.training, context.spaces, context.device)
        self._way = context.way
        self._update = self._made()

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """A CUDA graph where that is asked for and leaves the same bits; on a CPU natively where that is possible."""
        if device.type == "cpu":
            return choose_native(training, recorded)
        return choose_launch_mode(lambda: is_same(training, spaces, device), device, wanted=training.cuda_graph)

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

    def learn(self, batch: Batch) -> Tensor:
        """One step of critics, actor, temperatures and targets."""
        return self._update(prepare(batch, self.learner.noise, self.learner.device))

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

    def tensors(self) -> Mapping[str, Tensor]:
        """Nets, optimizers, noise."""
        return tensors_of(self.learner)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put them back."""
        load(self.learner, tensors)
        self._update = self._made()  # what was recorded would go on with moments that are no longer there

    def _made(self) -> Callable[[Inputs], Tensor]:
        if self._way == NATIVE:
            return NativeUpdates(self.learner).learn
        return Updates(partial(learn, self.learner), self.device, self._way).update
