"""Other people's way to train SAC, for the benches: stable-baselines3 as it is, and a plain update in CleanRL's manner.

The plain one is written from what is documented of CleanRL's `sac_continuous_action.py` (one class a net, two critics
one after another, `optimizer.zero_grad(); loss.backward(); optimizer.step()`, a loop over the target's parameters).
stable-baselines3 comes with what the tests need.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import configure
from torch import nn

from trainer.buffers.rows import Batch


def stable_baselines3(
    env: Any, actor: Sequence[int], critic: Sequence[int], batch: int, rows: int, seed: int = 0, **more: Any
) -> Any:
    """An SB3 `SAC` on `env` (gymnasium or SB3's own vector), in SB3's words the same net, batch and step sizes."""
    nets = {"net_arch": {"pi": list(actor), "qf": list(critic)}}
    model = SAC(
        "MlpPolicy", env, batch_size=batch, buffer_size=rows, policy_kwargs=nets, device="cpu", seed=seed,
        **{"learning_rate": 3e-4, **more},
    )  # fmt: skip
    model.set_logger(configure(None, []))
    return model


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Actor(nn.Module):
    """A body with two output layers, as in CleanRL."""

    def __init__(self, inputs: int, hidden: Sequence[int], actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(mlp([inputs, *hidden]), nn.ReLU())
        self.mean, self.log_std = nn.Linear(hidden[-1], actions), nn.Linear(hidden[-1], actions)

    def act(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sampled actions and their log density."""
        x = self.body(x)
        mean, log_std = self.mean(x), -5 + 0.5 * 7 * (torch.tanh(self.log_std(x)) + 1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        u = normal.rsample()
        action = torch.tanh(u)
        return action, (normal.log_prob(u) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)


class Plain:
    """SAC with one temperature; `update` takes a batch of ours."""

    def __init__(self, inputs: int, actions: int, actor: Sequence[int], critic: Sequence[int]) -> None:
        self.tasks = inputs - 39
        self.actor = Actor(inputs, actor, actions)
        self.q1, self.q2, self.t1, self.t2 = (mlp([inputs + actions, *critic, 1]) for _ in range(4))
        self.t1.load_state_dict(self.q1.state_dict())
        self.t2.load_state_dict(self.q2.state_dict())
        self.q_optimizer = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=3e-4)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.alpha = 1.0
        self.a_optimizer = torch.optim.Adam([self.log_alpha], lr=3e-4)

    def act(self, obs: np.ndarray, task: np.ndarray) -> np.ndarray:
        """Sampled actions [N, A]."""
        with torch.no_grad():
            return self.actor.act(self._x(obs, task))[0].numpy()

    def _x(self, obs: np.ndarray, task: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([obs, np.eye(self.tasks, dtype=np.float32)[task]], axis=1))

    def update(self, batch: Batch) -> None:
        """One step of critics, actor, temperature, targets."""
        x, next_x = self._x(batch.obs["state"], batch.task), self._x(batch.next_obs["state"], batch.task)
        action = torch.from_numpy(batch.action)
        with torch.no_grad():
            next_action, next_log = self.actor.act(next_x)
            both = torch.cat([next_x, next_action], 1)
            value = torch.min(self.t1(both), self.t2(both)) - self.alpha * next_log
            goal = torch.from_numpy(batch.reward) + (1 - torch.from_numpy(batch.terminated)) * 0.99 * value.view(-1)
        both = torch.cat([x, action], 1)
        loss = nn.functional.mse_loss(self.q1(both).view(-1), goal) + nn.functional.mse_loss(
            self.q2(both).view(-1), goal
        )
        self.q_optimizer.zero_grad()
        loss.backward()
        self.q_optimizer.step()

        pi, log = self.actor.act(x)
        both = torch.cat([x, pi], 1)
        actor_loss = (self.alpha * log - torch.min(self.q1(both), self.q2(both))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        with torch.no_grad():
            _, log = self.actor.act(x)
        alpha_loss = (-self.log_alpha.exp() * (log - 4)).mean()
        self.a_optimizer.zero_grad()
        alpha_loss.backward()
        self.a_optimizer.step()
        self.alpha = self.log_alpha.exp().item()
        for net, target in ((self.q1, self.t1), (self.q2, self.t2)):
            for p, t in zip(net.parameters(), target.parameters(), strict=True):
                t.data.copy_(0.005 * p.data + 0.995 * t.data)
