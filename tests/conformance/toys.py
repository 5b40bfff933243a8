"""A suite and an algorithm that are none of the project's: found as `toys:Points` and `toys:Drift`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from trainer.config.settings import AlgorithmSettings, EnvSettings
from trainer.envs.spaces import STATE, ArraySpec, Box, Spaces
from trainer.envs.suite import Outcome
from trainer.nets.policy import PolicyNet, PolicySpec
from trainer.state import State

#: Far enough for the mass to reach any goal from anywhere.
HORIZON = 20


class Point:
    """A mass on a line, which a tenth of the action moves; nearer to the goal is better. Over at the goal itself."""

    def __init__(self, goal: float) -> None:
        self.goal = goal
        self.place = 0.0
        self.steps = 0

    def _obs(self) -> dict[str, Any]:
        return {STATE: np.array([self.place, self.steps / HORIZON], np.float32)}

    def reset(self, start: int, seed: int) -> dict[str, Any]:
        self.place, self.steps = float(np.random.default_rng(seed).uniform(-0.5, 0.5)), 0
        return self._obs()

    def step(self, action: Any) -> Outcome:
        self.place += 0.1 * float(np.clip(action[0], -1, 1))
        self.steps += 1
        distance = abs(self.place - self.goal)
        return Outcome(self._obs(), 1 - distance, distance < 0.02, truncated=False, success=distance < 0.1)

    def snapshot(self) -> State:
        return State({"place": np.array([self.place])}, {"steps": self.steps})

    def restore(self, state: State) -> None:
        self.place, self.steps = float(state.tensors["place"][0]), int(state.numbers["steps"])

    def close(self) -> None:
        pass


class PointsSettings(EnvSettings):
    tasks: tuple[str, ...] = ("left", "middle", "right")
    horizon: int = HORIZON


class Points:
    """Point masses, a goal a task; where an episode starts is drawn from its seed."""

    Settings: ClassVar = PointsSettings
    starts = None
    versions: ClassVar[dict[str, str]] = {}

    def __init__(self, settings: PointsSettings, seed: int, cache: Path | None) -> None:
        self.goals = np.linspace(-0.5, 0.5, len(settings.tasks) + 2)[1:-1]
        self.spaces = Spaces({STATE: ArraySpec((2,))}, Box(1), settings.tasks, settings.horizon)

    bounds = None

    def starts_near(self, task: int, obs: Any) -> tuple[()]:
        return ()

    def describe(self) -> dict[str, str]:
        return {"goals": str(self.goals.tolist())}

    def make(self, task: int) -> Point:
        return Point(float(self.goals[task]))

    def stepped_natively(self, choice: str) -> frozenset[int]:
        return frozenset()

    def stepper(self, *_args: Any, **_more: Any) -> Any:
        raise AssertionError("nothing is stepped natively")


class DriftSettings(AlgorithmSettings):
    step_size: float = 0.1


class Drift:
    """Learns on-policy, in two updates after each four vector steps, to prefer what was rewarded: no reinforcement
    learning that anybody should use, but all that an algorithm has.
    """

    Settings: ClassVar = DriftSettings
    METRICS: ClassVar[tuple[str, ...]] = ("loss",)
    STEPS, UPDATES = 4, 2

    def __init__(self, context: Any) -> None:
        init = torch.Generator().manual_seed(context.training.seed)
        self.policy = PolicyNet(PolicySpec(context.spaces, context.training.network, "tanh-normal"), init)
        self.device = context.device
        self.step_size = context.training.algorithm.step_size
        self.noise = torch.Generator().manual_seed(context.training.seed + 1)
        self.rollout: list[tuple[Any, Any, Any, Any]] = []
        self.left = 0

    @classmethod
    def sizes(cls, training: Any, spaces: Any) -> tuple[()]:
        return ()

    @classmethod
    def choose_kernels(cls, training: Any, spaces: Any, device: torch.device) -> tuple[str, None]:
        return "kernels", None

    def _outputs(self, obs: Any, task: Any) -> Any:
        read = {key: torch.from_numpy(array) for key, array in obs.items()}
        return self.policy(read, torch.from_numpy(task.astype(np.int64)))

    def act(self, obs: Any, task: Any, step: int) -> Any:
        with torch.no_grad():
            outputs = self._outputs(obs, task)
            noise = self.policy.distribution.noise(len(outputs), self.noise)
            return self.policy.distribution.sample(outputs, noise)[0].numpy()

    def observe(self, transition: Any, step: int) -> None:
        done = transition.step
        self.rollout.append((transition.obs, transition.action, done.task, done.reward))
        self.left = self.UPDATES if len(self.rollout) == self.STEPS else 0

    @property
    def owed(self) -> int:
        return 0

    @property
    def must_learn(self) -> bool:
        return self.left > 0

    def update(self) -> Any:
        seen, actions, tasks, rewards = zip(*self.rollout, strict=True)
        obs = {key: np.concatenate([one[key] for one in seen]) for key in seen[0]}
        action, reward = (torch.from_numpy(np.concatenate(part)) for part in (actions, rewards))
        weight = (reward - reward.mean()).unsqueeze(-1)
        mode = self.policy.distribution.mode(self._outputs(obs, np.concatenate(tasks)))
        loss = (weight * (mode - action).square()).mean()
        for parameter, gradient in zip(
            self.policy.parameters(), torch.autograd.grad(loss, list(self.policy.parameters())), strict=True
        ):
            parameter.data -= self.step_size * gradient
        self.left -= 1
        if not self.left:
            self.rollout = []
        return loss.detach().reshape(1)

    def measures(self) -> dict[str, list[float]]:
        return {}

    def diagnose(self, step: int) -> None:
        return None

    def diagnose_contributors(self, step: int) -> dict[str, float]:
        return {}

    def state(self) -> State:
        tensors = {f"policy.{name}": value.detach().clone() for name, value in self.policy.state_dict().items()}
        for i, (obs, action, task, reward) in enumerate(self.rollout):
            named = {"state": obs[STATE], "action": action, "task": task, "reward": reward}
            tensors |= {f"rollout.{i}.{name}": torch.tensor(array) for name, array in named.items()}
        return State({**tensors, "noise": self.noise.get_state()}, {"left": self.left, "steps": len(self.rollout)})

    def load(self, state: State) -> None:
        tensors = state.tensors
        self.policy.load_state_dict({name: tensors[f"policy.{name}"] for name in self.policy.state_dict()})
        self.noise.set_state(tensors["noise"])
        self.left = state.numbers["left"]
        self.rollout = []
        for i in range(state.numbers["steps"]):
            obs, *rest = (tensors[f"rollout.{i}.{name}"].numpy() for name in ("state", "action", "task", "reward"))
            self.rollout.append(({STATE: obs}, *rest))
