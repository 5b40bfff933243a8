"""Several parts of one training that share what is learned: `algorithm.shards` of PPO and A2C.

Each shard plays environments of its own and learns from B / V steps of its own rollout. The V gradients of an update
are added in the order of shards, whoever computed them, and divided by V; so is what an update measures, and the scales
see what is seen in that order. Which process has which shards (`trainer.machine.group`) changes no bit.

Shapes: V shards of all processes, S of this one, n environments of each; P numbers that are learned, M metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.algorithms.base import Context
from trainer.algorithms.common.descents import flat, mean_in_order, parted
from trainer.algorithms.common.onpolicy import OnPolicy
from trainer.envs.collector import Transition
from trainer.envs.sharded import rows_of, step_of
from trainer.envs.spaces import F64, I32, Actions, Obs
from trainer.machine.group import Group
from trainer.nets.normalise import RunningMoments, summed_up
from trainer.nets.policy import PolicyNet
from trainer.state import State, of_shards, shard_of, shared_of


class Sharded:
    """`kind` in shards: an algorithm, as far as everybody else knows."""

    def __init__(self, kind: type[OnPolicy], context: Context) -> None:
        self.METRICS = kind.METRICS
        self._group = context.group
        own = context.group.own(context.training.algorithm.shards)
        self._each = context.num_envs // len(own)
        self._whole = kind(replace(context, num_envs=self._each))
        self._shards = {shard: self._whole.of_shard(shard) for shard in own}
        self._rows = [slice(at * self._each, (at + 1) * self._each) for at in range(len(own))]
        self._one = next(iter(self._shards.values()))

    @property
    def policy(self) -> PolicyNet:
        """What all shards play."""
        return self._one.policy

    @property
    def device(self) -> torch.device:
        """Where it learns."""
        return self._one.device

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """Of all shards here, one after the other: [S · n, …]."""
        seen = [rows_of(obs, rows) for rows in self._rows]
        scales = self._one.moments
        _see(self._group, [(moments, [part[key] for part in seen]) for key, moments in scales.items()])
        played = zip(self._shards.values(), seen, self._rows, strict=True)
        return np.concatenate([shard.play(part, task[rows], step) for shard, part, rows in played])

    def observe(self, transition: Transition, step: int) -> None:
        """Into the shards' rollouts."""
        parts = [
            Transition(rows_of(transition.obs, rows), transition.action[rows], step_of(transition.step, rows))
            for rows in self._rows
        ]
        every = list(zip(self._shards.values(), parts, strict=True))
        if self._one.settings.normalise_reward:
            _see(self._group, [(self._one.reward_moments, [shard.discounted(part) for shard, part in every])])
        after = step + self._each * self._one.settings.shards
        for shard, part in every:
            shard.keep(part, after)

    @property
    def owed(self) -> int:
        """As each shard: they go in step."""
        return self._one.owed

    @property
    def must_learn(self) -> bool:
        """As each shard."""
        return self._one.must_learn

    def update(self) -> Tensor:
        """One update of all shards together, or none, as each shard; its metrics [M] are their means."""
        learned, rows = self._one.learned, []
        for shard in self._shards.values():
            measured = shard.differentiate()
            gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in learned]
            rows.append(flat([measured, *gradients]))
        measured, *gradients = parted(mean_in_order(self._group.gathered(torch.stack(rows))), [measured, *learned])
        for each, gradient in zip(learned, gradients, strict=True):
            if each.grad is not None:
                each.grad.copy_(gradient)
        measured = measured.clone()
        is_over = self._one.judge(measured)
        if not is_over:
            self._one.descend(self._one.learning_rate)
        for shard in self._shards.values():
            shard.advance(is_over=is_over)
        return measured

    def measures(self) -> Mapping[str, Sequence[float]]:
        """As each shard."""
        return self._one.measures()

    def diagnose(self, step: int) -> None:
        """Nothing yet."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:
        """It learns from nobody else."""
        return self._one.diagnose_contributors(step)

    def state(self) -> State:
        """What is shared, and of each shard here its own."""
        return of_shards({shard: of.own_state() for shard, of in self._shards.items()}, self._one.shared_state())

    def load(self, state: State) -> None:
        """Go on from there; the state has all shards."""
        shared = shared_of(state)
        self._one.load_learned(shared)
        for shard, of in self._shards.items():
            of.load_own(shard_of(state, shard), shared.numbers["place"])


def _see(group: Group, told: Sequence[tuple[RunningMoments, Sequence[npt.NDArray[np.floating]]]]) -> None:
    """All moments see the rows of all shards, [B, n] of each shard here, in the order of shards; in one exchange."""
    if not told:
        return
    own = [
        np.concatenate([_line(rows) for rows in of_one]) for of_one in zip(*(parts for _, parts in told), strict=True)
    ]
    for line in group.gathered(torch.from_numpy(np.stack(own))).numpy():
        at = 0
        for moments, _ in told:
            size = len(moments.mean)
            mean, squares, count = line[at : at + size], line[at + size : at + 2 * size], line[at + 2 * size]
            moments.merge(mean, squares, float(count))
            at += 2 * size + 1


def _line(rows: npt.NDArray[np.floating]) -> F64:
    """[2 n + 1] what `RunningMoments.merge` takes of rows [B, n]."""
    mean, squares, count = summed_up(rows)
    return np.concatenate([mean, squares, [float(count)]])
