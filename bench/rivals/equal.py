"""A training of ours in stable-baselines3's words: the same nets, rollouts, batches, rates and scales, by its own PPO,
A2C or SAC, on the same environments as Gymnasium has them; of several tasks, on ours.

stable-baselines3 comes with what the tests need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import nn

from rivals import vectors
from trainer.config.algorithms import A2c, Mtsac, Ppo, Sac
from trainer.config.settings import OnPolicySettings
from trainer.config.suites import Arm, Gymnasium
from trainer.config.training import Training
from trainer.envs.spaces import STATE, Obs
from trainer.envs.step import VectorSpec
from trainer.envs.suite import SuiteRef, suite_of
from trainer.nets.normalise import CLIP

_ARM = "trainer.envs.suites.arm.gym:anchorleg/ArmReach-v0"
_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}
#: What stable-baselines3's A2C has in its code (Mnih et al. 2016).
_RMS_ALPHA = 0.99


def env_id(training: Training) -> str:
    """What `gymnasium.make` makes the same environment of. Errors: ValueError where there is none."""
    env = training.env
    if isinstance(env, Gymnasium) and not env.kwargs:
        return env.id
    if env == Arm():
        return _ARM
    raise ValueError(f"Gymnasium has no environment with the settings {env}")


def vector(training: Training) -> VecEnv:
    """As many environments as ours, in SB3's DummyVecEnv, on no scale of their own."""
    return make_vec_env(env_id(training), training.num_envs, seed=training.seed)


def sac_of(
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


def seen_by(model: Any, obs: Obs, task: Any) -> Any:
    """An observation of ours as a model of this module reads it: with the one-hot task where it has several."""
    tasks = model.observation_space.shape[0] - obs[STATE].shape[1]
    return np.concatenate([obs[STATE], np.eye(tasks, dtype=np.float32)[task]], axis=1) if tasks else obs[STATE]


def stable_baselines3(training: Training, steps: int, suite: SuiteRef | None = None) -> BaseAlgorithm:
    """SB3's algorithm of that name, for one `learn` of `steps`; it writes no log. `suite`: of several tasks, if it is
    not the training's own. Errors: TypeError where it has none, ValueError where it has none with these settings.
    """
    settings = training.algorithm
    if isinstance(settings, Mtsac):
        spec = VectorSpec(suite or suite_of(training), training.num_envs, training.seed)
        network = training.network
        return sac_of(
            vectors.for_sb3(vectors.OurVector(spec, 0)), network.actor_hidden, network.critic_hidden,
            settings.batch_size, settings.buffer_size, training.seed, learning_starts=settings.random_steps,
            train_freq=1, gradient_steps=-1, learning_rate=settings.learning_rate, gamma=settings.gamma,
            ent_coef=f"auto_{settings.init_temperature}", target_entropy=settings.target_entropy,
        )  # fmt: skip
    more: dict[str, Any] = {"device": "cpu", "seed": training.seed, "gamma": settings.gamma}
    if isinstance(settings, Sac):
        model = _sac(training, settings, more)
    elif isinstance(settings, Ppo | A2c):
        model = _on_policy(
            training, settings, {**more, "learning_rate": _rate(settings, training.falling_steps, steps)}
        )
    else:
        raise TypeError(f"stable-baselines3 has no {settings.name}")
    model.set_logger(configure(None, []))
    return model


def _rate(settings: Ppo | A2c, falling: int, steps: int) -> Callable[[float], float]:
    """The step size where so much of `steps` is left."""

    def rate(left: float) -> float:
        return settings.learning_rate * (max(0.0, 1 - (1 - left) * steps / falling) if falling else 1.0)

    return rate


def _nets(training: Training, critic: str) -> dict[str, Any]:
    network = training.network
    widths = {"pi": list(network.actor_hidden), critic: list(network.critic_hidden)}
    return {"net_arch": widths, "activation_fn": _ACTIVATIONS[network.activation]}


def _on_policy(training: Training, settings: Ppo | A2c, more: dict[str, Any]) -> BaseAlgorithm:
    nets = _nets(training, "vf")
    more |= {
        "n_steps": settings.rollout_steps,
        "gae_lambda": settings.gae_lambda,
        "ent_coef": settings.entropy_coef,
        "vf_coef": settings.value_coef,
        "max_grad_norm": settings.grad_clip or math.inf,
        "normalize_advantage": settings.normalise_advantage,
    }
    envs = _scaled(vector(training), settings)
    if isinstance(settings, Ppo):
        nets["optimizer_kwargs"] = {"eps": settings.adam_eps}
        more |= {"batch_size": settings.batch_size, "n_epochs": settings.epochs, "clip_range": settings.clip}
        return PPO("MlpPolicy", envs, policy_kwargs=nets, target_kl=settings.target_kl or None, **more)
    if settings.rms_alpha != _RMS_ALPHA:
        raise ValueError(f"stable-baselines3's rms_alpha is {_RMS_ALPHA}, not {settings.rms_alpha}")
    return A2C("MlpPolicy", envs, policy_kwargs=nets, rms_prop_eps=settings.rms_eps, **more)


def _scaled(envs: VecEnv, settings: OnPolicySettings) -> VecEnv:
    if not (settings.normalise_obs or settings.normalise_reward):
        return envs
    on = {"norm_obs": settings.normalise_obs, "norm_reward": settings.normalise_reward}
    return VecNormalize(envs, **on, clip_obs=CLIP, clip_reward=CLIP, gamma=settings.gamma)


def _sac(training: Training, settings: Sac, more: dict[str, Any]) -> BaseAlgorithm:
    entropy = "auto" if settings.target_entropy is None else settings.target_entropy
    return SAC(
        "MlpPolicy",
        vector(training),
        policy_kwargs=_nets(training, "qf"),
        learning_rate=settings.learning_rate,
        batch_size=settings.batch_size,
        buffer_size=settings.buffer_size,
        learning_starts=settings.random_steps,
        tau=settings.tau,
        train_freq=1,
        gradient_steps=round(settings.updates_per_step * training.num_envs),
        ent_coef=f"auto_{settings.init_temperature}",
        target_entropy=entropy,
        **more,
    )
