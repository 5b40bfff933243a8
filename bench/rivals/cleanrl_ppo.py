"""PPO, and A2C as its special case, as one loop in one file: the structure of CleanRL's `ppo_continuous_action.py`.

Written from what CleanRL documents of it (docs.cleanrl.dev/rl-algorithms/ppo; Huang et al. 2022, "The 37 implementation
details of PPO"), in our own words: each environment in its own stack of gymnasium's wrappers, one after another;
storage of [T, N] tensors; advantages in a loop backwards; shuffled minibatches by torch's autograd, one optimizer. Its
time limits are ends. Different: values are not clipped (nor are they in stable-baselines3), and where actions are one
of several the policy is a categorical, as in its `ppo.py`. A2C is one epoch of one batch by RMSprop (Huang et al. 2022,
arXiv 2205.09123).

Shapes: T steps, N environments, B steps of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from gymnasium import wrappers
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal

from trainer.config.algorithms import A2c, Ppo
from trainer.config.training import Training

_CLIP = 10.0
_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


def plain_envs(env_id: str, count: int) -> gym.vector.SyncVectorEnv:
    """Environments on no scale, as `training` steps them below its wrappers."""
    return gym.vector.SyncVectorEnv([_maker(env_id, None)] * count, autoreset_mode="SameStep")


def _maker(env_id: str, settings: Ppo | A2c | None) -> Callable[[], gym.Env]:
    """Makes one environment in its wrappers."""

    def make() -> gym.Env:
        env: gym.Env = wrappers.RecordEpisodeStatistics(wrappers.FlattenObservation(gym.make(env_id)))
        if isinstance(env.action_space, gym.spaces.Box):
            env = wrappers.ClipAction(env)
        if settings is not None and settings.normalise_obs:
            env = wrappers.NormalizeObservation(env)
            env = wrappers.TransformObservation(env, lambda obs: np.clip(obs, -_CLIP, _CLIP), env.observation_space)
        if settings is not None and settings.normalise_reward:
            env = wrappers.NormalizeReward(env, gamma=settings.gamma)
            env = wrappers.TransformReward(env, lambda reward: float(np.clip(reward, -_CLIP, _CLIP)))
        return env

    return make


def _layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _net(widths: Sequence[int], activation: type[nn.Module], last_gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths[:-1]):
        layers += [_layer(inputs, outputs, 2**0.5), activation()]
    return nn.Sequential(*layers, _layer(widths[-2], widths[-1], last_gain))


class Agent(nn.Module):
    """Two nets that share nothing, and a deviation that depends on no observation."""

    def __init__(self, envs: gym.vector.SyncVectorEnv, training: Training) -> None:
        super().__init__()
        network, inputs = training.network, int(np.prod(envs.single_observation_space.shape))
        activation = _ACTIVATIONS[network.activation]
        action = envs.single_action_space
        self.is_discrete = isinstance(action, gym.spaces.Discrete)
        outputs = int(action.n) if isinstance(action, gym.spaces.Discrete) else int(np.prod(action.shape))
        self.critic = _net([inputs, *network.critic_hidden, 1], activation, 1.0)
        self.actor = _net([inputs, *network.actor_hidden, outputs], activation, 0.01)
        if not self.is_discrete:
            self.log_std = nn.Parameter(torch.zeros(1, outputs))

    def value(self, obs: Tensor) -> Tensor:
        """[B]."""
        return self.critic(obs).flatten()

    def judged(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(action, its log density, entropy, value), of a new action where none is given."""
        outputs = self.actor(obs)
        policy: Distribution
        policy = Categorical(logits=outputs) if self.is_discrete else Normal(outputs, self.log_std.exp())
        action = policy.sample() if action is None else action
        log_prob, entropy = policy.log_prob(action), policy.entropy()
        if not self.is_discrete:
            log_prob, entropy = log_prob.sum(1), entropy.sum(1)
        return action, log_prob, entropy, self.value(obs)


def training_of(training: Training, env_id: str) -> Iterator[int]:  # noqa: PLR0915 - one loop to read is its point
    """Yields the steps that were made, once before the first and then after the updates of each rollout."""
    settings = training.algorithm
    assert isinstance(settings, Ppo | A2c)
    count, length = training.num_envs, settings.rollout_steps
    size = settings.batch_size if isinstance(settings, Ppo) else count * length
    epochs = settings.epochs if isinstance(settings, Ppo) else 1
    clip = settings.clip if isinstance(settings, Ppo) else 1.0
    torch.manual_seed(training.seed)
    rng = np.random.default_rng(training.seed)

    envs = gym.vector.SyncVectorEnv([_maker(env_id, settings)] * count, autoreset_mode="SameStep")
    agent = Agent(envs, training)
    optimizer: torch.optim.Optimizer
    if isinstance(settings, Ppo):
        optimizer = torch.optim.Adam(agent.parameters(), settings.learning_rate, eps=settings.adam_eps)
    else:
        optimizer = torch.optim.RMSprop(
            agent.parameters(), settings.learning_rate, alpha=settings.rms_alpha, eps=settings.rms_eps
        )

    obs = torch.zeros(length, count, *envs.single_observation_space.shape)
    actions = torch.zeros(length, count, *envs.single_action_space.shape)
    log_probs, rewards, dones, values = (torch.zeros(length, count) for _ in range(4))
    first, _ = envs.reset(seed=training.seed)
    next_obs, next_done = torch.tensor(first, dtype=torch.float32), torch.zeros(count)
    step = 0
    yield step

    try:
        while True:
            if training.falling_steps:
                left = max(0.0, 1 - step / training.falling_steps)
                optimizer.param_groups[0]["lr"] = left * settings.learning_rate
            for t in range(length):
                obs[t], dones[t] = next_obs, next_done
                with torch.no_grad():
                    actions[t], log_probs[t], _, values[t] = agent.judged(next_obs)
                played = actions[t].long() if agent.is_discrete else actions[t]
                seen, reward, terminated, truncated, _ = envs.step(played.numpy())
                rewards[t] = torch.tensor(reward)
                next_obs = torch.tensor(seen, dtype=torch.float32)
                next_done = torch.tensor(terminated | truncated, dtype=torch.float32)
                step += count

            with torch.no_grad():
                next_value, advantages, last = agent.value(next_obs), torch.zeros_like(rewards), torch.zeros(count)
                for t in reversed(range(length)):
                    done = next_done if t == length - 1 else dones[t + 1]
                    then = next_value if t == length - 1 else values[t + 1]
                    delta = rewards[t] + settings.gamma * then * (1 - done) - values[t]
                    last = delta + settings.gamma * settings.gae_lambda * (1 - done) * last
                    advantages[t] = last
                returns = advantages + values

            rows = [part.reshape(-1, *part.shape[2:]) for part in (obs, actions, log_probs, advantages, returns)]
            order = np.arange(count * length)
            for _ in range(epochs):
                rng.shuffle(order)
                for start in range(0, len(order), size):
                    x, action, old, advantage, goal = (part[order[start : start + size]] for part in rows)
                    _, now, entropy, value = agent.judged(x, action)
                    ratio = (now - old).exp()
                    if settings.normalise_advantage:
                        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                    losses = -advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)
                    loss = (
                        torch.max(*losses).mean()
                        - settings.entropy_coef * entropy.mean()
                        + settings.value_coef * (value - goal).square().mean()
                    )
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), settings.grad_clip)
                    optimizer.step()
            yield step
    finally:
        envs.close()
