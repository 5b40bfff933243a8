"""What PPO and A2C learn from: the steps of the present policy, and the order in which they are learned from.

A rollout is played; then each of its steps is learned from, in updates of some of them, before the next action. Between
any two updates it may be stopped: the rollout, the order of its steps and the place in it are in the state.

`algorithm.shards` cuts all of it into V parts that share what is learned. Each shard plays environments of its own and
learns from B / V steps of its own rollout. The V gradients of an update are added in the order of shards, wherever
they come from, and divided by V; so is what an update measures, and the scales see what is seen in that order. Which
process has which shards (`trainer.machine.group`) changes no bit.

Shapes: N environments of this process, n of each of its S shards; B steps of one update; M metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.algorithms.base import Context
from trainer.algorithms.common.actor_critic import ActorCritic
from trainer.algorithms.common.compiled import CompiledActorCritic
from trainer.algorithms.common.parts import copied, named, torch_generator, under
from trainer.algorithms.common.sharding import flat, mean_in_order, parted
from trainer.buffers.rollout import Rollout
from trainer.config.settings import OnPolicySettings
from trainer.envs.collector import Transition, rows_of, step_of
from trainer.envs.spaces import F32, F64, I32, Actions, Bools, Obs, go_on_from, picked
from trainer.errors import NotFiniteError
from trainer.machine.device import to_device
from trainer.nets.critics import NetInputs
from trainer.nets.encoders.base import kept_spaces
from trainer.nets.engine.plan import EnginePlan
from trainer.nets.normalise import CLIP, RunningMoments, summed_up
from trainer.state import State, of_shards, shard_of, shared_of
from trainer.streams import RandomStream

#: An advantage's deviation is not divided by less.
_SMALL = 1e-8


@dataclass(frozen=True)
class Minibatch:
    """B steps as they were played: what both nets read, the log density of each `action`, its `advantage`, and the
    `returns` that the critic is to say.
    """

    inputs: NetInputs
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor


#: Adds gradients of a minibatch to a plan; where its metrics [M] (float64) will be.
Planned = Callable[[EnginePlan, CompiledActorCritic, Minibatch], Tensor]


class Rollouts:
    """The rollouts of this process's shards, played by `nets`. `batch_size`: steps of one shard in an update; `epochs`:
    how often each step is learned from.
    """

    def __init__(self, context: Context, nets: ActorCritic, batch_size: int, epochs: int) -> None:
        training = context.training
        self._settings = cast("OnPolicySettings", training.algorithm)
        self._nets, self._batch_size, self._epochs = nets, batch_size, epochs
        self._falling_steps, self._group = training.falling_steps, context.group
        own = context.group.own(self._settings.shards)
        each = context.num_envs // len(own)
        self.is_sharded = training.plays_in_shards
        self.shards = {shard: ShardRollout(context, nets, each, shard) for shard in own}
        self._first = self.shards[own[0]]
        self._rows = [slice(at * each, (at + 1) * each) for at in range(len(own))]
        self._envs = each * self._settings.shards
        #: The place in a rollout, and steps of the training.
        self.at = self.epoch = self.step = 0

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """Sampled from the policy, for all shards here, one after the other."""
        seen = [rows_of(obs, rows) for rows in self._rows] if self.is_sharded else [obs]
        scales = self._nets.encoder_input.moments
        self._see([(moments, [part[key] for part in seen]) for key, moments in scales.items()])
        played = zip(self.shards.values(), seen, self._rows, strict=True)
        return np.concatenate([shard.play(part, task[rows], step) for shard, part, rows in played])

    def observe(self, transition: Transition, step: int) -> None:
        """Into the rollouts; full ones are evaluated, and their steps are put into a new order."""
        parts = [transition]
        if self.is_sharded:
            parts = [
                Transition(rows_of(transition.obs, rows), transition.action[rows], step_of(transition.step, rows))
                for rows in self._rows
            ]
        every = list(zip(self.shards.values(), parts, strict=True))
        if self._settings.normalise_reward:
            self._see([(self._nets.reward_moments, [shard.discounted(part.step.reward) for shard, part in every])])
        self.step = step + self._envs
        for shard, part in every:
            shard.keep(part)
        if self.is_full:
            for shard in self.shards.values():
                shard.begin_lesson(self._batch_size)
                shard.shuffle()
            self.at = self.epoch = 0

    @property
    def is_full(self) -> bool:
        """Whether they are whole, and not learned from."""
        return self._first.rollout.full

    def mean_over_shards(self, gradients: Callable[[Minibatch], Tensor], planned: Planned) -> Tensor:
        """Leave the mean `gradients` of the next B steps of all shards in `nets.learned`; the mean of the metrics [M]
        that it measures. `planned`: the same by the engine.
        """

        def of_shard(shard: ShardRollout) -> Tensor:
            if self._nets.compiled is not None:
                return shard.run_plan(planned, self._nets.compiled, self.at, self._batch_size)
            return gradients(shard.minibatch(self.at, self._batch_size))

        if not self.is_sharded:
            return of_shard(self._first)
        learned, rows = self._nets.learned, []
        for shard in self.shards.values():
            measured = of_shard(shard)
            found = [torch.zeros_like(each) if each.grad is None else each.grad for each in learned]
            rows.append(flat([measured, *found]))
        measured, *means = parted(mean_in_order(self._group.gathered(torch.stack(rows))), [measured, *learned])
        for each, mean in zip(learned, means, strict=True):
            if each.grad is not None:
                each.grad.copy_(mean)
        return measured.clone()

    def advance(self, *, is_over: bool) -> None:
        """Behind the steps that were looked at; `is_over`: nothing more is learned from the rollout."""
        steps = len(self._first.order)
        self.at = min(self.at + self._batch_size, steps)
        if is_over:
            self.epoch, self.at = self._epochs - 1, steps
        if self.at < steps:
            return
        self.at, self.epoch = 0, self.epoch + 1
        for shard in self.shards.values():
            shard.shuffle() if self.epoch < self._epochs else shard.clear()
        if self.epoch >= self._epochs:
            self.epoch = 0

    def learning_rate(self, first: float) -> float:
        """Now, where it is `first` at step 0: it depends on the steps that were made, and on nothing else."""
        steps = self._falling_steps
        return first * max(0.0, 1 - self.step / steps) if steps else first

    def with_state(self, shared: State) -> State:
        """`shared` by all shards, the place in the rollouts, and what each shard here has of its own."""
        place = {"at": self.at, "epoch": self.epoch, "step": self.step}
        shared = State(shared.tensors, {**shared.numbers, "place": place})
        own = {number: shard.state() for number, shard in self.shards.items()}
        if self.is_sharded:
            return of_shards(own, shared)
        (one,) = own.values()
        return State({**shared.tensors, **one.tensors}, {**shared.numbers, **one.numbers})

    def load(self, state: State) -> None:
        """Go on from there; of another number of environments the rollouts begin anew."""
        place = (shared_of(state) if self.is_sharded else state).numbers["place"]
        for number, shard in self.shards.items():
            shard.load(shard_of(state, number) if self.is_sharded else state)
        self.at, self.epoch, self.step = place["at"], place["epoch"], place["step"]
        if not self.is_full:
            self.at = self.epoch = 0

    def _see(self, told: Sequence[tuple[RunningMoments, Sequence[npt.NDArray[np.floating]]]]) -> None:
        """All moments see the rows of all shards, [B, n] of each, in the order of shards; in one exchange."""
        if not self.is_sharded:
            for moments, (rows,) in told:
                moments.add(rows)
            return
        if not told:
            return
        own = [
            np.concatenate([_line(rows) for rows in of_one])
            for of_one in zip(*(parts for _, parts in told), strict=True)
        ]
        for line in self._group.gathered(torch.from_numpy(np.stack(own))).numpy():
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


class ShardRollout:
    """The rollout of one shard with streams of its own, and its `order` once it is full.

    A lesson is all that an update takes of a step side by side, so that one look-up finds it.
    """

    def __init__(self, context: Context, nets: ActorCritic, envs: int, shard: int) -> None:
        training = context.training
        self._nets, self._settings = nets, cast("OnPolicySettings", training.algorithm)
        number = (shard,) if training.plays_in_shards else ()
        self._noise = torch_generator(training.seed, RandomStream.NOISE, *number)
        self._order_stream = torch_generator(training.seed, RandomStream.ORDER, *number)
        self.rollout = Rollout(kept_spaces(context.spaces, training.network), self._settings.rollout_steps, envs)
        #: Discounted sums of rewards, as each environment has seen them so far: they give rewards their scale.
        self._reward_sums: F64 = np.zeros(envs)
        self._played: dict[str, npt.NDArray[Any]] = {}
        self._last: tuple[Obs, I32] = {}, np.zeros(envs, np.int32)
        #: What the environments were left in; and what a resume expects them to be in.
        self._left: Obs = {}
        self._expected: Obs = {}
        self.lesson = self.order = torch.zeros(0, dtype=torch.int64)
        #: Of each number of steps: the steps, where its metrics are, and the plan.
        self._plans: dict[int, tuple[Tensor, Tensor, EnginePlan]] = {}

    @torch.no_grad()
    def play(self, obs: Obs, task: I32, step: int) -> Actions:
        """Actions that are sampled from the policy."""
        nets = self._nets
        if self._expected:
            self._cut(~go_on_from(obs, self._expected))
        seen, distribution = nets.encoder_input.scaled(obs), nets.actor.distribution
        outputs = nets.outputs(seen, task)
        if not torch.isfinite(outputs).all():
            raise NotFiniteError("actor.not-finite", what=["actor"], step=step)
        action = distribution.draw(outputs, distribution.noise(len(task), self._noise).to(nets.device))
        self._played = {f"obs.{key}": array for key, array in seen.items()}
        self._played |= {"task": task.astype(np.int64), "action": action.cpu().numpy()}
        actions: Actions = distribution.clip(action).cpu().numpy()
        return actions

    def discounted(self, reward: F32) -> F64:
        """The sums of rewards [n, 1] that the scale is to see before `keep`."""
        self._reward_sums = self._reward_sums * self._settings.gamma + reward
        return self._reward_sums[:, None]

    def keep(self, transition: Transition) -> None:
        """Append a step. A time limit is no end: what would have followed counts by its value."""
        done, reads = transition.step, self._nets.encoder_input
        ended = done.finished.astype(np.float32)
        reward = self._scaled(done.reward, ended) if self._settings.normalise_reward else done.reward
        bootstrap = np.zeros(len(ended), np.float32)
        cut = done.finished & ~done.terminated
        if cut.any():
            bootstrap[cut] = self._nets.value(reads.scaled_alone(picked(done.next_obs, cut)), done.task[cut])
        numbers = {"reward": reward, "terminated": done.terminated, "ended": ended, "bootstrap": bootstrap}
        self.rollout.add({**self._played, **numbers})
        self._left, self._last = done.obs, (done.obs, done.next_task)

    @torch.no_grad()
    def begin_lesson(self, batch_size: int) -> None:
        """Advantages and returns of a full rollout. The nets are still those that played: what they say of the whole
        rollout costs less at once than step by step.
        """
        nets, rollout, settings = self._nets, self.rollout, self._settings
        obs, task = self._last
        last_value = nets.value(nets.encoder_input.scaled(obs), task)
        steps, encodes = rollout.capacity * rollout.num_envs, nets.encoder_input.encodes
        action = torch.from_numpy(rollout.in_a_row("action")).to(nets.device)
        seen: list[Tensor] = []
        known = []
        for rows in torch.split(torch.arange(steps, device=nets.device), batch_size if encodes else steps):
            inputs = self._inputs(rows)
            known.append(torch.stack(nets.log_prob_and_value(inputs, action[rows]), dim=1))
            seen += [] if encodes else inputs if nets.encoder_input.reader.is_apart else [inputs.policy]
        log_prob, value = torch.cat(known).unbind(1)
        values = value.reshape(rollout.capacity, rollout.num_envs).cpu().numpy()
        found = rollout.advantages(values, last_value, settings.gamma, settings.gae_lambda)
        advantage = torch.from_numpy(found).to(nets.device).reshape(-1)
        numbers = torch.stack([log_prob, advantage, advantage + value], dim=1)
        self.lesson = torch.cat([*seen, action.reshape(steps, -1).float(), numbers], dim=1)

    def shuffle(self) -> None:
        """The next epoch's order."""
        self.order = torch.randperm(len(self.lesson), generator=self._order_stream)

    def clear(self) -> None:
        """Forget the rollout."""
        self.rollout.clear()
        self.lesson = self.order = torch.zeros(0, dtype=torch.int64)

    def minibatch(self, at: int, size: int) -> Minibatch:
        """The next `size` steps of the order, as far as there are any."""
        rows = to_device(self.order[at : at + size], self._nets.device)
        batch = self._split(self.lesson[rows])
        inputs = self._inputs(rows) if self._nets.encoder_input.encodes else batch.inputs
        is_one = self.rollout.fields["action"].ndim == 2
        action = batch.action[:, 0].to(torch.int64) if is_one else batch.action
        return replace(batch, inputs=inputs, action=action)

    def run_plan(self, planned: Planned, nets: CompiledActorCritic, at: int, size: int) -> Tensor:
        """Leave the gradients of the next `size` steps of the order; metrics [M]."""
        rows = self.order[at : at + size]
        if len(rows) not in self._plans:
            plan, table = EnginePlan(), torch.zeros(len(rows), self.lesson.shape[1])
            self._plans[len(rows)] = table, planned(plan, nets, self._split(table)), plan
        table, measured, plan = self._plans[len(rows)]
        torch.index_select(self.lesson, 0, rows, out=table)
        nets.run(plan)
        return measured.float()

    def _split(self, rows: Tensor) -> Minibatch:
        """Windows into `rows` of the lesson; actions are [B, numbers]."""
        reads, shape = self._nets.encoder_input, self.rollout.fields["action"].shape[2:]
        numbers = shape[0] if shape else 1
        width = rows.shape[1] - numbers - 3
        seen, action = rows[:, :width], rows[:, width : width + numbers]
        apart = self._nets.actor.width if reads.reader.is_apart else 0
        inputs = NetInputs(seen[:, :apart] if apart else seen, seen[:, apart:])
        return Minibatch(inputs, action, *rows[:, width + numbers :].unbind(1))

    def state(self) -> State:
        """Streams, the rollout, and what is learned of it."""
        rollout = self.rollout.state()
        tensors = {
            "lesson": self.lesson,
            "order": self.order,
            "rewards.sums": torch.from_numpy(self._reward_sums),
            **named("rollout", {key: torch.from_numpy(array) for key, array in rollout.tensors.items()}),
            **named("left", {key: torch.from_numpy(array) for key, array in self._left.items()}),
        }
        streams = {"stream.noise": self._noise.get_state(), "stream.order": self._order_stream.get_state()}
        return State({**copied(tensors), **streams}, {"rollout": dict(rollout.numbers)})

    def load(self, state: State) -> None:
        """Go on from there."""
        tensors = state.tensors
        rollout = {key: value.numpy() for key, value in under("rollout", tensors).items()}
        self._left = self._expected = {key: value.numpy() for key, value in under("left", tensors).items()}
        self.rollout.load(State(rollout, state.numbers["rollout"]))
        kept = tensors["rewards.sums"].numpy().astype(np.float64)[: len(self._reward_sums)]
        self._reward_sums = np.concatenate([kept, np.zeros(len(self._reward_sums) - len(kept))])
        self.lesson, self.order = tensors["lesson"].to(self._nets.device, copy=True), tensors["order"].clone()
        if not self.rollout.full:
            self.lesson = self.order = torch.zeros(0, dtype=torch.int64)
        self._noise.set_state(tensors["stream.noise"])
        self._order_stream.set_state(tensors["stream.order"])

    def _scaled(self, reward: F32, ended: F32) -> F32:
        """[n] divided by the deviation of their discounted sums (stable-baselines3's `VecNormalize`)."""
        self._reward_sums = self._reward_sums * (1 - ended)
        scaled: F32 = np.clip(reward * self._nets.reward_moments.scale[0], -CLIP, CLIP).astype(np.float32)
        return scaled

    def _cut(self, lost: Bools) -> None:
        """Cut episodes that a resume could not bring back: others begin where `lost` [n]."""
        rollout, nets = self.rollout, self._nets
        self._reward_sums = np.where(lost, 0.0, self._reward_sums)
        if lost.any() and rollout.steps and not rollout.full:
            bootstrap = np.zeros(len(lost), np.float32)
            left = nets.encoder_input.scaled_alone(picked(self._expected, lost))
            bootstrap[lost] = nets.value(left, rollout.fields["task"][rollout.steps - 1, lost])
            rollout.cut(lost, bootstrap)
        self._expected = {}

    def _inputs(self, rows: Tensor) -> NetInputs:
        """What the nets read of some of the rollout's steps."""
        at = rows.cpu().numpy()
        return self._nets.encoder_input.inputs(self.rollout.obs(at), self.rollout.in_a_row("task")[at])


def normalised(advantage: Tensor) -> Tensor:
    """[B] of mean 0 and deviation 1; one alone stays as it is."""
    return (advantage - advantage.mean()) / (advantage.std() + _SMALL) if len(advantage) > 1 else advantage
