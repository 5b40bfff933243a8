"""What nets read of observations: frozen encoders' features, made once, and rows of numbers on one scale.

Shapes: N environments, B rows, I numbers that a net reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, I64, Obs, Spaces, picked
from trainer.nets.critics import NetInputs, StateReader
from trainer.nets.normalise import Normaliser, RunningMoments
from trainer.nets.policy import PolicyNet


class FeatureCache:
    """Features in place of what the frozen encoders of `policy` read; without such observations stay as they are.

    An observation that led to the next one is read once: the last that was read is remembered, and what is remembered
    is what would be read again.
    """

    def __init__(self, policy: PolicyNet, device: torch.device) -> None:
        self._policy, self._device = policy, device
        self._last: tuple[Obs, Obs] | None = None

    def of(self, obs: Obs) -> Obs:
        """Of all environments, [N, …] of each key."""
        if not self._policy.frozen:
            return obs
        if self._last is None or self._last[0] is not obs:
            self._last = obs, self.read(obs)
        return self._last[1]

    def transition(self, transition: Transition) -> Transition:
        """All that one step shows."""
        if not self._policy.frozen:
            return transition
        step, before = transition.step, self.of(transition.obs)
        after = self.of(step.obs)
        next_obs = {key: array.copy() for key, array in after.items()}
        if step.finished.any():
            for key, array in self.read(picked(step.next_obs, step.finished)).items():
                next_obs[key][step.finished] = array
        return replace(transition, obs=before, step=replace(step, obs=after, next_obs=next_obs))

    def read(self, obs: Obs) -> Obs:
        """Of some environments; not remembered."""
        if not self._policy.frozen:
            return obs
        return {
            key: self._policy.features(key, torch.from_numpy(seen).to(self._device)).cpu().numpy()
            if key in self._policy.frozen
            else seen
            for key, seen in obs.items()
        }


class EncoderInput:
    """What an on-policy actor and its critic read. `encodes`: derivatives go on into an encoder. `moments`: of each
    observation that is brought to a scale.
    """

    def __init__(
        self, policy: PolicyNet, reader: StateReader, spaces: Spaces, device: torch.device, *, normalises: bool
    ) -> None:
        self.policy, self.reader, self.device = policy, reader, device
        self.encodes = bool(policy.encoders)
        scaled = [key for key, spec in spaces.obs.items() if key in policy.scales or (spec.privileged and normalises)]
        self.moments = {key: RunningMoments(spaces.obs[key].shape[0]) for key in scaled}
        self._features = FeatureCache(policy, device)

    def scale_policy(self) -> None:
        """The policy takes the scale of what was seen so far over."""
        for key, moments in self.moments.items():
            if key in self.policy.scales:
                cast("Normaliser", self.policy.scales[key]).copy_scale(moments)

    def scaled(self, obs: Obs) -> Obs:
        """Of all environments, [N, …] by key."""
        return self._on_scale(self._features.of(obs))

    def scaled_alone(self, obs: Obs) -> Obs:
        """Of some of them."""
        return self._on_scale(self._features.read(obs))

    def actor_rows(self, seen: Obs, tasks: I64) -> F32:
        """[B, I] that the actor reads of scaled observations, where nothing is encoded."""
        return _rows(seen, sorted(self.policy.spec.spaces.obs), tasks, self.policy.width)

    def critic_rows(self, seen: Obs, tasks: I64) -> F32:
        """[B, I] that the critic reads of scaled observations, where nothing is encoded."""
        keys = self.reader.keys if self.reader.is_apart else sorted(self.policy.spec.spaces.obs)
        return _rows(seen, keys, tasks, self.reader.width)

    def inputs(self, seen: Obs, tasks: I64) -> NetInputs:
        """What both nets read of scaled observations."""
        if not self.encodes:
            of_policy = torch.from_numpy(self.actor_rows(seen, tasks)).to(self.device)
            if not self.reader.is_apart:
                return NetInputs(of_policy, of_policy)
            return NetInputs(of_policy, torch.from_numpy(self.critic_rows(seen, tasks)).to(self.device))
        read = {key: torch.from_numpy(array).to(self.device) for key, array in seen.items()}
        task = torch.from_numpy(tasks).to(self.device)
        return self.reader.inputs(read, task, self.policy.inputs(read, task))

    def _on_scale(self, obs: Obs) -> Obs:
        return {key: self.moments[key].scaled(seen) if key in self.moments else seen for key, seen in obs.items()}


def _rows(seen: Obs, keys: Sequence[str], tasks: I64, width: int) -> F32:
    """[B, width]: the numbers of `keys` side by side, and the one-hot task."""
    rows, at = np.zeros((len(tasks), width), np.float32), 0
    for key in keys:
        numbers = seen[key]
        rows[:, at : at + numbers.shape[1]] = numbers
        at += numbers.shape[1]
    rows[np.arange(len(tasks)), at + tasks] = 1
    return rows
