"""stable-baselines3 under Anchorleg: one callback that saves between two rollouts and leaves, and loads what it left.

The next job goes on in the middle of the episodes where the environments are in this process (`DummyVecEnv`, with
nothing around it that keeps a state but `VecNormalize`) and `envs.env_state` knows them; else with new episodes, and
says so. The replay buffer and `VecNormalize` come along in stable-baselines3's own files. See docs/programs.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize, VecTransposeImage

from anchorleg.job import Job
from orchestrator.integrations.checkpointer import Checkpointer
from orchestrator.integrations.envs import env_state, restore_env
from orchestrator.integrations.rng import random_state, restore_random_state

_MODEL, _REPLAY, _NORMALIZE, _MOMENT = "model.zip", "replay.pkl", "normalize.pkl", "moment.json"


class HandOver(BaseCallback):
    """`total`: timesteps of the run; `every`: also save after so many, for jobs that are killed. One process a job."""

    def __init__(self, job: Job, total: int, every: int | None = None) -> None:
        super().__init__()
        self._keeper = Checkpointer(job, total=total, every=every)
        self._said = False

    def load(self, kind: type[BaseAlgorithm], env: Any, **more: Any) -> Any:
        """The model that the job before left, in the middle of its episodes. None: there is none yet, make a new one.

        `env`: made as the first one was; a `VecNormalize` is its outermost wrapper. `more`: as for `kind.load`. Errors:
        those of stable-baselines3.
        """
        if self._keeper.start is None:
            return None
        folder = self._keeper.start.path
        moment = json.loads((folder / _MOMENT).read_text())
        if isinstance(env, VecNormalize):
            env = VecNormalize.load(str(folder / _NORMALIZE), env.venv)
        model = kind.load(folder / _MODEL, env=env, force_reset=False, **more)
        if (folder / _REPLAY).exists():
            model.load_replay_buffer(folder / _REPLAY)
        base = _in_process(model.get_env())
        if base is None or moment["episodes"] is None:
            model._last_obs = None  # noqa: SLF001 - `learn` then begins new episodes
            return model
        base.reset()
        for env_there, state in zip(base.envs, moment["episodes"], strict=True):
            restore_env(env_there, state)
        if isinstance(env, VecNormalize):
            env.returns = np.array(moment["returns"])
        return model

    def learn(self, model: BaseAlgorithm, callback: list[BaseCallback] | None = None, **more: Any) -> None:
        """`model.learn` for what is left of the total. Leaves with exit code 75 (SystemExit) when asked to."""
        callbacks = [*(callback or []), self]
        left = self._keeper.total - model.num_timesteps
        model.learn(left, callback=callbacks, reset_num_timesteps=False, **more)

    def _on_training_start(self) -> None:
        if self._keeper.start is not None:
            moment = json.loads((self._keeper.start.path / _MOMENT).read_text())
            self.model.action_space.np_random.bit_generator.state = moment["actions"]  # what SAC begins with
            restore_random_state(moment["chance"])

    def _on_rollout_start(self) -> None:
        self._tell()
        self._keeper.step_done(self.num_timesteps, self._write)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._tell()
        self._keeper.finish(self.num_timesteps, self._write)

    def _tell(self) -> None:
        """The means that stable-baselines3 logs, of its last hundred episodes, where a `Monitor` counts them."""
        episodes, successes = self.model.ep_info_buffer, self.model.ep_success_buffer
        if episodes:
            self._keeper.tell({f"ep_{name}_mean": np.mean([one[key] for one in episodes])
                               for name, key in (("rew", "r"), ("len", "l"))})  # fmt: skip
        if successes:
            self._keeper.tell({"success_rate": np.mean(successes)})

    def _write(self, folder: Path) -> None:
        model = self.model
        model.save(folder / _MODEL)
        if getattr(model, "replay_buffer", None) is not None:
            model.save_replay_buffer(folder / _REPLAY)
        moment: dict[str, Any] = {"chance": random_state(), "episodes": self._episodes()}
        moment["actions"] = model.action_space.np_random.bit_generator.state
        normalized = model.get_vec_normalize_env()  # of pictures it is not the outermost: they are transposed around it
        if normalized is not None:
            normalized.save(str(folder / _NORMALIZE))
            moment["returns"] = normalized.returns.tolist()
        (folder / _MOMENT).write_text(json.dumps(moment))

    def _episodes(self) -> list[Any] | None:
        """Where each environment is; None where that cannot be said."""
        why = "its environments are in other processes, or a wrapper has its own state"
        base = _in_process(self.training_env)
        try:
            if base is not None:
                return [env_state(env) for env in base.envs]
        except TypeError as error:
            why = str(error)
        if not self._said:
            self._said = True
            print(f"anchorleg: the next job begins new episodes: {why}", flush=True)
        return None


def _in_process(env: VecEnv | None) -> DummyVecEnv | None:
    """The vector of environments that are in this process, below wrappers without a state of the episode; else None."""
    while isinstance(env, VecNormalize | VecTransposeImage):
        env = env.venv
    return env if isinstance(env, DummyVecEnv) else None
