"""What is learned from of observations: where an encoder is frozen, what it makes of them, once while acting."""

from __future__ import annotations

from dataclasses import replace

import torch

from trainer.envs.collector import Transition
from trainer.envs.spaces import Obs, picked
from trainer.nets.policy import PolicyNet


class Preparation:
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
