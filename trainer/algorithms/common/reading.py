"""What the nets of on-policy algorithms read: observations on one scale, frozen encoders' features, pictures as they
are.

Shapes: N environments, B rows, I numbers that a net reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch

from trainer.algorithms.common.prepared import Preparation
from trainer.envs.spaces import F32, I64, Obs, Spaces
from trainer.nets.normalise import Normaliser, RunningMoments
from trainer.nets.policy import PolicyNet
from trainer.nets.twins import NetInputs, StateReader

#: The nets by number.
ACTOR, CRITIC = 0, 1


class Reading:
    """`policy` and what its critic reads. `encodes`: derivatives go on into an encoder."""

    def __init__(
        self, policy: PolicyNet, reader: StateReader, spaces: Spaces, device: torch.device, *, normalises: bool
    ) -> None:
        self.policy, self.reader, self.device = policy, reader, device
        self.encodes = bool(policy.encoders)
        self.keys = list(spaces.obs)
        scaled = [key for key, spec in spaces.obs.items() if key in policy.scales or (spec.privileged and normalises)]
        self.moments = {key: RunningMoments(spaces.obs[key].shape[0]) for key in scaled}
        self._preparation = Preparation(policy, device)

    def see(self, obs: Obs) -> None:
        """The scale is that of all that was seen."""
        for key, moments in self.moments.items():
            moments.add(obs[key])

    def follow(self) -> None:
        """The policy takes the scale over."""
        for key, moments in self.moments.items():
            if key in self.policy.scales:
                cast("Normaliser", self.policy.scales[key]).follow(moments)

    def scaled(self, obs: Obs) -> Obs:
        """Of all environments, [N, …] by key."""
        return self._on_scale(self._preparation.of(obs))

    def scaled_alone(self, obs: Obs) -> Obs:
        """Of some of them."""
        return self._on_scale(self._preparation.read(obs))

    def rows(self, net: int, seen: Obs, tasks: I64) -> F32:
        """[B, I] that a net reads of scaled observations, where nothing is encoded."""
        keys = self.reader.keys if net == CRITIC and self.reader.is_apart else sorted(self.policy.spec.spaces.obs)
        width = self.reader.width if net == CRITIC else self.policy.width
        rows, at = np.zeros((len(tasks), width), np.float32), 0
        for key in keys:
            numbers = seen[key]
            rows[:, at : at + numbers.shape[1]] = numbers
            at += numbers.shape[1]
        rows[np.arange(len(tasks)), at + tasks] = 1
        return rows

    def inputs(self, seen: Obs, tasks: I64) -> NetInputs:
        """What both nets read of scaled observations."""
        if not self.encodes:
            of_policy = torch.from_numpy(self.rows(ACTOR, seen, tasks)).to(self.device)
            if not self.reader.is_apart:
                return NetInputs(of_policy, of_policy)
            return NetInputs(of_policy, torch.from_numpy(self.rows(CRITIC, seen, tasks)).to(self.device))
        read = {key: torch.from_numpy(array).to(self.device) for key, array in seen.items()}
        task = torch.from_numpy(tasks).to(self.device)
        return self.reader.inputs(read, task, self.policy.inputs(read, task))

    def parts(self) -> Iterator[tuple[str, RunningMoments]]:
        """What is to be kept of it."""
        for key, moments in self.moments.items():
            yield f"moments/{key}", moments

    def _on_scale(self, obs: Obs) -> Obs:
        return {key: self.moments[key].scaled(seen) if key in self.moments else seen for key, seen in obs.items()}
