"""Steps of environments that show pictures, as a vector gives them; and what a replay of them must hold, the plain way:
whole transitions, each with the rows that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer.buffers.rows import Batch
from trainer.envs.collector import Transition
from trainer.envs.frames import FrameStacks
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, ArraySpec, Box, Spaces
from trainer.envs.step import Step


def spaces_of_frames(tasks: int = 2, stack: int = 3, stride: int = 1, *, clip: bool = False) -> Spaces:
    """Small pictures [2, 3, 4], a state, and what critics alone see."""
    shape = (stack, 2, 3, 4) if clip and stack > 1 else (2 * stack, 3, 4)
    obs = {
        IMAGE: ArraySpec(shape, "uint8", 0, 255, stack, stride),
        STATE: ArraySpec((2,)),
        PRIVILEGED: ArraySpec((3,), privileged=True),
    }
    return Spaces(obs, Box(2), tuple("abcdefgh"[:tasks]), 10)


@dataclass
class Episode:
    """What was shown and done: frame t is what step t (from 1 on) led to, frame 0 the first."""

    seen: list[Mapping[str, Any]]
    steps: list[tuple[Any, float, bool]] = field(default_factory=list)  # action, reward, terminated
    is_over: bool = False


class Played:
    """N environments of random pictures, whose episodes end at random; and every row in order, of each task."""

    def __init__(self, spaces: Spaces, num_envs: int, seed: int = 0) -> None:
        self.spaces, self.rng = spaces, np.random.default_rng(seed)
        self.logs: list[list[tuple[Episode, int]]] = [[] for _ in spaces.tasks]
        self._begin(num_envs)

    def _begin(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.stacks = FrameStacks(self.spaces, num_envs)
        self.frames = self._drawn()
        self.obs = self.stacks.begin(self.frames)
        self.task = self.rng.integers(len(self.spaces.tasks), size=num_envs)
        self.episodes: list[Episode | None] = [None] * num_envs

    def _drawn(self) -> dict[str, Any]:
        """Frames [N, …], none like another."""
        found = {}
        for key, spec in self.spaces.obs.items():
            shape = (self.num_envs, *spec.frame)
            is_byte = spec.dtype == "uint8"
            found[key] = (
                self.rng.integers(0, 256, shape, np.uint8) if is_byte else self.rng.standard_normal(shape, np.float32)
            )
        return found

    def step(self, ending: float = 0.2) -> Transition:
        """One step of all; each episode ends with the chance `ending`, in half of the cases truly."""
        count, rng = self.num_envs, self.rng
        before, led_to, after = self.obs, self._drawn(), self._drawn()
        finished = rng.random(count) < ending
        terminated = finished & (rng.random(count) < 0.5)
        frames = {
            key: np.where(finished.reshape(-1, *[1] * (array.ndim - 1)), after[key], array)
            for key, array in led_to.items()
        }
        next_obs, self.obs = self.stacks.push(led_to, frames, finished)
        next_task = np.where(finished, rng.integers(len(self.spaces.tasks), size=count), self.task)
        action, reward = rng.uniform(-1, 1, (count, 2)).astype(np.float32), rng.standard_normal(count, np.float32)
        nothing = np.zeros(count)
        step = Step(
            obs=self.obs, next_obs=next_obs, reward=reward, terminated=terminated, truncated=finished & ~terminated,
            success=terminated, task=self.task.astype(np.int32), next_task=next_task.astype(np.int32),
            finished=finished, episode_return=nothing, episode_length=nothing.astype(np.int32),
            episode_success=terminated,
        )  # fmt: skip
        self._log(Transition(before, action, step))
        self.task, self.frames = next_task, frames
        return Transition(before, action, step)

    def _log(self, made: Transition) -> None:
        for i in range(self.num_envs):
            log, episode = self.logs[made.step.task[i]], self.episodes[i]
            if episode is None:
                episode = Episode([{key: array[i].copy() for key, array in made.obs.items()}])
                log.append((episode, 0))
            episode.seen.append({key: array[i].copy() for key, array in made.step.next_obs.items()})
            episode.steps.append((made.action[i], float(made.step.reward[i]), bool(made.step.terminated[i])))
            episode.is_over = bool(made.step.finished[i])
            log.append((episode, len(episode.steps)))
            self.episodes[i] = None if episode.is_over else episode

    def lose(self, env: int) -> None:
        """As a resume does that cannot bring back the episode of `env`: it begins anew, and nobody is told."""
        frames = {key: array.copy() for key, array in self._drawn().items()}
        past = self.stacks.arrays()
        self.frames = {key: array.copy() for key, array in self.frames.items()}
        for key, array in self.frames.items():
            array[env] = frames[key][env]
        self.obs = self.stacks.load(past, self.frames)
        self.episodes[env] = None

    def resize(self, num_envs: int) -> None:
        """As a resume with another number of environments: the first go on."""
        kept, past, frames, task, episodes = self.num_envs, self.stacks.arrays(), self.frames, self.task, self.episodes
        self._begin(num_envs)
        both = min(kept, num_envs)
        for key, array in self.frames.items():
            array[:both] = frames[key][:both]
        self.obs = self.stacks.load(past, self.frames)
        self.task[:both], self.episodes[:both] = task[:both], episodes[:both]

    def expected(self, k: int, capacity: int, steps: int, gamma: float) -> list[tuple[Any, ...]]:
        """What a ring of `capacity` rows of task `k` may be asked for, oldest first: obs, action, reward, next_obs,
        terminated, steps.
        """
        log = self.logs[k]
        number = {(id(episode), t): n for n, (episode, t) in enumerate(log)}
        reach = max(spec.reach for spec in self.spaces.obs.values())
        found = []
        for n, (episode, t) in enumerate(log):
            many = min(steps, len(episode.steps) - t + 1)
            if t == 0 or (many < steps and not episode.is_over):
                continue
            oldest = number[id(episode), max(0, t - reach)]
            if oldest < len(log) - capacity or n < len(log) - capacity:
                continue
            parts = episode.steps[t - 1 : t - 1 + many]
            total = 0.0
            for power, (_, reward, _) in enumerate(parts):
                total += gamma**power * reward
            found.append(
                (episode.seen[t - 1], parts[0][0], np.float32(total), episode.seen[t - 1 + many], parts[-1][2], many)
            )
        return found


def same_transitions(batch: Batch, expected: list[tuple[Any, ...]]) -> bool:
    """Whether `batch` is these, in their order, to the bit."""
    if len(batch.reward) != len(expected):
        return False
    many = np.ones(len(expected)) if batch.steps is None else batch.steps
    return all(
        all(np.array_equal(batch.obs[key][i], array) for key, array in obs.items())
        and all(np.array_equal(batch.next_obs[key][i], array) for key, array in next_obs.items())
        and np.array_equal(batch.action[i], action)
        and batch.reward[i] == reward
        and batch.terminated[i] == terminated
        and many[i] == count
        for i, (obs, action, reward, next_obs, terminated, count) in enumerate(expected)
    )
