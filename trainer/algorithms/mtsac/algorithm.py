"""Multi-task SAC as the training sees it: when it acts at random, what is owed, what it samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.mtsac.inputs import prepare
from trainer.algorithms.mtsac.learner import act, actor_and_critics, create, load, settings_in, tensors_of
from trainer.algorithms.mtsac.losses import diagnose, of_contributors
from trainer.algorithms.mtsac.trial import is_same
from trainer.algorithms.mtsac.update import METRICS, learn
from trainer.algorithms.probe import Diagnosis
from trainer.algorithms.recorded import Updates, choose_kernels
from trainer.buffers.experience import Experience
from trainer.buffers.rows import rows_of
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Obs, Spaces
from trainer.errors import NotFiniteError
from trainer.nets.policy import PolicyNet
from trainer.state import State

#: The spawn key of the first, random actions; the learner's own are 0 and 1 (`learner.create`).
_EXPLORATION = 3


class Algorithm:
    """Its updates leave the same numbers in every `way`."""

    METRICS: ClassVar[tuple[str, ...]] = METRICS

    def __init__(self, context: Context) -> None:
        training = context.training
        self.settings = settings_in(training)
        self.learner = create(training, context.spaces, context.device)
        self._updates = Updates(partial(learn, self.learner), context.device, context.way)
        self._exploration = np.random.default_rng(np.random.SeedSequence(training.seed, spawn_key=(_EXPLORATION,)))
        self._shape = (context.num_envs, *context.spaces.action.shape)
        self._owed = Fraction(0)
        assert context.experience is not None  # noqa: S101 - its settings are `OffPolicySettings`
        self.experience: Experience = context.experience

    @classmethod
    def choose_kernels(cls, training: Training, spaces: Spaces, device: torch.device) -> tuple[str, str | None]:
        """A CUDA graph where that is asked for and leaves the same bits."""
        return choose_kernels(lambda: is_same(training, spaces, device), device, wanted=training.cuda_graph)

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

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """At random for the first `random_steps`, then sampled from the policy."""
        if step < self.settings.random_steps:
            return self._exploration.uniform(-1, 1, self._shape).astype(np.float32)
        actions = act(self.learner, obs, task)
        if not np.isfinite(actions).all():
            raise NotFiniteError(f"the actor's actions are not finite at step {step}", what=["actor"])
        return actions

    def observe(self, transition: Transition, step: int) -> None:
        """Into the replay; each transition past `random_steps` earns `updates_per_step` updates."""
        done = transition.step
        rows = rows_of(transition.obs, transition.action, done.reward, done.next_obs, done.terminated)
        self.experience.add(done.task, rows)
        settings, count = self.settings, done.task.shape[0]
        self._owed += earned(step, step + count, settings.random_steps, settings.updates_per_step)

    @property
    def owed(self) -> int:
        """Whole updates; the rest of the fraction waits."""
        return int(self._owed)

    @property
    def must_learn(self) -> bool:
        """Never: updates run beside the stepping."""
        return False

    def update(self) -> Tensor:
        """One update of a batch of own rows and others'."""
        batch = self.experience.sample(self.settings.batch_size)
        measured = self._updates.update(prepare(batch, self.learner.noise, self.learner.device))
        self._owed -= 1
        return measured

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

    def state(self) -> State:
        """Nets, optimizers, noise, and what is owed."""
        numbers = {
            "owed": [self._owed.numerator, self._owed.denominator],
            "exploration": self._exploration.bit_generator.state,
        }
        return State(tensors_of(self.learner), numbers)

    def load(self, state: State) -> None:
        """Go on from there; random streams are put back last."""
        load(self.learner, state.tensors)
        self._owed = Fraction(*state.numbers["owed"])
        self._exploration.bit_generator.state = state.numbers["exploration"]


def count(net: nn.Module) -> int:
    """How many numbers it learns."""
    return sum(parameter.numel() for parameter in net.parameters())


def earned(before: int, after: int, random_steps: int, updates_per_step: float) -> Fraction:
    """Updates that the transitions in (before, after] earn, exactly: 0.1 is one tenth, not its binary neighbour."""
    return max(0, after - max(before, random_steps)) * Fraction(str(updates_per_step))
