"""An algorithm in one file: it learns on-policy, in two updates after each four vector steps, to do again what was
rewarded. No reinforcement learning that anybody should use, but all that an algorithm has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from anchorleg_toys.settings import DriftSettings
from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.recorded import KERNELS
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, I32, STATE, Box, Obs, Spaces
from trainer.errors import ConfigError, NotFiniteError
from trainer.state import State

#: Vector steps of a rollout, updates that it is learned from in, and how far an action is from the policy's.
STEPS, UPDATES, NOISE = 4, 2, 0.3


class Drift:
    """The policy, its noise and the rollout that it learns from: all of it is in `state`."""

    Settings: ClassVar = DriftSettings
    METRICS: ClassVar[tuple[str, ...]] = ("loss",)

    def __init__(self, context: Context) -> None:
        action = context.spaces.action
        if not isinstance(action, Box) or set(context.spaces.obs) != {STATE}:
            raise ConfigError("drift needs an environment of numbers: one observation 'state', and a box of actions")
        (inputs,) = context.spaces.obs[STATE].shape
        settings = cast("DriftSettings", context.training.algorithm)
        seed = context.training.seed
        self.device = context.device
        self.step_size = settings.step_size
        self.noise = torch.Generator().manual_seed(seed + 1)
        self.policy = nn.Linear(inputs, action.size)
        with torch.no_grad():  # on the CPU first: the seed alone decides, not the device
            self.policy.weight.copy_(torch.randn(action.size, inputs, generator=torch.Generator().manual_seed(seed)))
            self.policy.bias.zero_()
        self.policy.to(self.device)
        self.rollout: list[tuple[F32, F32, F32]] = []
        self.left = 0

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """Nothing that counts."""
        return ()

    @classmethod
    def choose_kernels(cls, training: Training, spaces: Spaces, device: torch.device) -> tuple[str, None]:
        """One by one."""
        return KERNELS, None

    def act(self, obs: Obs, task: I32, step: int) -> F32:
        """What the policy says, and noise."""
        with torch.no_grad():
            mean = self.policy(torch.from_numpy(obs[STATE]).to(self.device)).cpu()
            actions: F32 = (mean + NOISE * torch.randn(mean.shape, generator=self.noise)).clamp(-1, 1).numpy()
        if not np.isfinite(actions).all():
            raise NotFiniteError(f"the actions are not finite at step {step}", what=["action"])
        return actions

    def observe(self, transition: Transition, step: int) -> None:
        """Remember, until there is enough to learn from."""
        self.rollout.append((transition.obs[STATE], transition.action, transition.step.reward))
        self.left = UPDATES if len(self.rollout) == STEPS else 0

    @property
    def owed(self) -> int:
        """It learns between rollouts alone."""
        return 0

    @property
    def must_learn(self) -> bool:
        """Whether a rollout is whole."""
        return self.left > 0

    def update(self) -> Tensor:
        """A step towards the actions that were rewarded more than others."""
        obs, action, reward = (
            torch.from_numpy(np.concatenate(part)).to(self.device) for part in zip(*self.rollout, strict=True)
        )
        weight = (reward - reward.mean()).clamp(min=0).unsqueeze(-1)
        loss: Tensor = (weight * (self.policy(obs) - action).square()).mean()
        parameters = list(self.policy.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.sub_(self.step_size * gradient)
        self.left -= 1
        if not self.left:
            self.rollout = []
        return loss.detach().reshape(1)

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Nothing of a task."""
        return {}

    def diagnose(self, step: int) -> None:
        """There is nothing to say."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:
        """It learns from nobody else."""
        return {}

    def state(self) -> State:
        """Copies, for the run goes on while they are written."""
        tensors = {f"policy.{name}": value.detach().cpu().clone() for name, value in self.policy.state_dict().items()}
        for i, rows in enumerate(self.rollout):
            tensors |= {f"rollout.{i}.{j}": torch.tensor(array) for j, array in enumerate(rows)}
        return State({**tensors, "noise": self.noise.get_state()}, {"left": self.left, "steps": len(self.rollout)})

    def load(self, state: State) -> None:
        """Go on from there."""
        tensors = state.tensors
        self.policy.load_state_dict({name: tensors[f"policy.{name}"] for name in self.policy.state_dict()})
        self.noise.set_state(tensors["noise"])
        self.left = state.numbers["left"]
        self.rollout = [
            (tensors[f"rollout.{i}.0"].numpy(), tensors[f"rollout.{i}.1"].numpy(), tensors[f"rollout.{i}.2"].numpy())
            for i in range(state.numbers["steps"])
        ]
