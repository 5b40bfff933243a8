"""Meta-World as others step it: gymnasium's vector of MT10, and the clothes that stable-baselines3 wants it in."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from trainer.envs.spaces import Obs
from trainer.envs.step import VectorSpec
from trainer.envs.vector import VectorEnv


def gymnasium_mt10(strategy: str = "sync") -> gym.vector.VectorEnv:
    """Ten environments with the one-hot task in the observation: [10, 49]."""
    import metaworld  # noqa: F401 - registers the environments

    return gym.make_vec("Meta-World/MT10", vector_strategy=strategy, seed=0, use_one_hot=True, num_goals=5)


class OurVector:
    """Our environments with gymnasium's `step`, so that the same loop can be run on them."""

    def __init__(self, spec: VectorSpec, workers: int) -> None:
        self.envs = VectorEnv(spec, workers)
        self.num_envs = spec.num_envs
        self._one_hot = np.eye(len(self.envs.spaces.tasks), dtype=np.float32)
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (39 + len(self.envs.spaces.tasks),), np.float32)
        self.single_action_space = gym.spaces.Box(-1, 1, (4,), np.float32)

    def reset(self) -> tuple[np.ndarray, dict[str, Any]]:
        """As gymnasium's."""
        observed = self.envs.reset()
        return self._with_task(observed.obs, observed.task), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """As gymnasium's with SAME_STEP."""
        step = self.envs.step(actions)
        obs = self._with_task(step.obs, step.next_task)
        infos = {"final_obs": self._with_task(step.next_obs, step.task)} if step.finished.any() else {}
        return obs, step.reward, step.terminated, step.truncated, infos

    def close(self) -> None:
        """End the workers."""
        self.envs.close()

    def _with_task(self, obs: Obs, task: np.ndarray) -> np.ndarray:
        return np.concatenate([obs["state"], self._one_hot[task]], axis=1)


def for_sb3(envs: Any) -> Any:
    """`envs` (gymnasium's vector or `OurVector`) as stable-baselines3's `VecEnv`."""

    class Adapted(VecEnv):
        def __init__(self) -> None:
            super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

        def reset(self) -> np.ndarray:
            return envs.reset()[0].astype(np.float32)

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            obs, reward, terminated, truncated, infos = envs.step(self.actions.astype(np.float32))
            done = terminated | truncated
            said: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
            for i in np.flatnonzero(done):
                last = infos["final_obs"][i].astype(np.float32)
                said[i] = {"terminal_observation": last, "TimeLimit.truncated": bool(truncated[i])}
            return obs.astype(np.float32), reward.astype(np.float32), done, said

        def close(self) -> None:
            envs.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
            return [None for _ in range(self.num_envs)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            raise NotImplementedError

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
            return [False] * self.num_envs

    return Adapted()
