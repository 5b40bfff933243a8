"""An algorithm in one file: it learns on-policy, in two updates after each four vector steps, to do again what was
rewarded. No reinforcement learning that anybody should use, but all that an algorithm has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from anchorleg_toys.settings import DriftSettings
from trainer.algorithms.base import Algorithm, Context
from trainer.algorithms.common.parts import torch_generator
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, I32, Box, Obs
from trainer.errors import ConfigError, NotFiniteError
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.state import State
from trainer.streams import RandomStream

#: Vector steps of a rollout, updates that it is learned from in, and how far an action is from the policy's.
STEPS, UPDATES, NOISE = 4, 2, 0.3
#: What a step of the rollout has beside its observation.
_REST = ("task", "action", "reward")


class Drift(Algorithm):
    """The policy, its noise and the rollout that it learns from: all of it is in `state`."""

    Settings: ClassVar = DriftSettings
    METRICS: ClassVar[tuple[str, ...]] = ("loss",)

    def __init__(self, context: Context) -> None:
        if not isinstance(context.spaces.action, Box):
            raise ConfigError("drift needs actions of real numbers: a box")
        training = context.training
        settings = cast("DriftSettings", training.algorithm)
        self.step_size = settings.step_size
        self.noise = torch_generator(training.seed, RandomStream.PLUGIN)
        spec = PolicySpec(context.spaces, training.network, "squashed-normal")
        first = torch_generator(training.seed_of_nets, RandomStream.NETS)
        self.policy = PolicyNet(spec, first).to(context.device)
        self.rollout: list[tuple[dict[str, Any], I32, F32, F32]] = []
        self.left = 0

    def act(self, obs: Obs, task: I32, step: int) -> F32:
        """What the policy says, and noise."""
        with torch.no_grad():
            mode = self._mode(obs, task).cpu()
            actions: F32 = (mode + NOISE * torch.randn(mode.shape, generator=self.noise)).clamp(-1, 1).numpy()
        if not np.isfinite(actions).all():
            raise NotFiniteError(f"the actions are not finite at step {step}", what=["action"])
        return actions

    def observe(self, transition: Transition, step: int) -> None:
        """Remember, until there is enough to learn from."""
        done = transition.step
        self.rollout.append((dict(transition.obs), done.task, transition.action, done.reward))
        self.left = UPDATES if len(self.rollout) == STEPS else 0

    @property
    def must_learn(self) -> bool:
        """Whether a rollout is whole."""
        return self.left > 0

    def update(self) -> Tensor:
        """A step towards the actions that were rewarded more than others."""
        seen, tasks, *rest = zip(*self.rollout, strict=True)
        obs = {key: np.concatenate([one[key] for one in seen]) for key in seen[0]}
        action, reward = (torch.from_numpy(np.concatenate(part)).to(self.device) for part in rest)
        weight = (reward - reward.mean()).clamp(min=0).unsqueeze(-1)
        loss: Tensor = (weight * (self._mode(obs, np.concatenate(tasks)) - action).square()).mean()
        parameters = list(self.policy.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.sub_(self.step_size * gradient)
        self.left -= 1
        if not self.left:
            self.rollout = []
        return loss.detach().reshape(1)

    def parts(self) -> Mapping[str, Any]:
        """All but the rollout, whose length changes."""
        return {"policy": self.policy, "noise": self.noise, "left": self.left}

    def state(self) -> State:
        """The parts, and the rollout."""
        kept, tensors = super().state(), {}
        for i, (obs, *rest) in enumerate(self.rollout):
            tensors |= {f"rollout.{i}.obs.{key}": torch.tensor(array) for key, array in obs.items()}
            tensors |= {f"rollout.{i}.{name}": torch.tensor(array) for name, array in zip(_REST, rest, strict=True)}
        return State({**kept.tensors, **tensors}, {**kept.numbers, "steps": len(self.rollout)})

    def load(self, state: State) -> None:
        """Go on from there."""
        super().load(state)
        self.rollout = []
        for i in range(state.numbers["steps"]):
            obs = {key: state.tensors[f"rollout.{i}.obs.{key}"].numpy() for key in self.policy.spec.spaces.obs}
            task, action, reward = (state.tensors[f"rollout.{i}.{name}"].numpy() for name in _REST)
            self.rollout.append((obs, task, action, reward))

    def _mode(self, obs: Obs, task: I32) -> Tensor:
        """What the policy does where nothing is to be tried, [N, A]."""
        return self.policy.distribution.mode(self.policy.outputs(obs, task))
