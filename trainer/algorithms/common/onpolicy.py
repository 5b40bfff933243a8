"""What algorithms have in common that learn from what their present policy did: PPO and A2C.

A rollout is played; then each of its steps is learned from, in updates of some of them, before the next action. Between
any two updates it may be stopped: the rollout, the order of its steps and the place in it are in `state`.

Shapes: N environments, B steps of one update, I numbers that the nets read, P of a distribution, M metrics.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.algorithms.base import Context, NetSize
from trainer.algorithms.common.actor_critic import ActorCritic, actor_and_critic
from trainer.algorithms.common.cuda_graph import not_recorded
from trainer.algorithms.common.reading import ACTOR, CRITIC
from trainer.algorithms.common.reward_scale import RewardScale
from trainer.algorithms.common.tensors import copied, count, named, torch_generator, under
from trainer.buffers.rollout import Rollout
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, F64, I32, I64, Actions, Bools, Obs, Spaces, go_on_from, picked
from trainer.errors import NotFiniteError
from trainer.machine.device import to_device
from trainer.nets.encoders.base import kept_spaces
from trainer.nets.twins import NetInputs
from trainer.state import State
from trainer.streams import RandomStream

#: An advantage's deviation is not divided by less.
_SMALL = 1e-8


@dataclass(frozen=True)
class Minibatch:
    """B steps as they were played: the log density of each `action`, its `advantage`, and what the critic is to say."""

    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    target: Tensor


class OnPolicy(ActorCritic):
    """An actor, a critic, what they play, and the order in which they learn from it.

    An algorithm says how its policy is to change (`weigh`), its optimizer, the size of an update and how many epochs
    there are. Both nets are differentiated by hand (`trainer.nets.fused`), and what reads pictures by torch.
    """

    METRICS: ClassVar[tuple[str, ...]]

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        training = context.training
        self._seed, self._falling_steps = training.seed, training.falling_steps
        self._noise, self._order = (
            torch_generator(training.seed, key) for key in (RandomStream.NOISE, RandomStream.ORDER)
        )
        self._rewards = RewardScale(self.reward_moments, context.num_envs, self.settings.gamma)
        self._kept = kept_spaces(context.spaces, training.network)
        self._rollout = Rollout(self._kept, self.settings.rollout_steps, context.num_envs)
        self._played: dict[str, npt.NDArray[Any]] = {}
        self._step = 0
        self._end_lesson()
        #: What the environments were left in; and what a resume expects them to be in.
        self._left: Obs = {}
        self._expected: Obs = {}

    # --- what an algorithm has of its own ---------------------------------------------------------------------------

    def weigh(self, batch: Minibatch, log_prob: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The derivative of the policy's loss by `log_prob` [B], which is what the actions' densities are now; and the
        first numbers of `METRICS`. Behind them come `value_loss` and `entropy`.
        """
        raise NotImplementedError

    @property
    def batch_size(self) -> int:
        """B."""
        raise NotImplementedError

    @property
    def epochs(self) -> int:
        """How often a rollout is learned from."""
        raise NotImplementedError

    # --- what all have in common ------------------------------------------------------------------------------------

    @classmethod
    def choose_launch_mode(
        cls,
        training: Training,
        spaces: Spaces,  # noqa: ARG003 - as the protocol has it
        device: torch.device,
        recorded: str | None,  # noqa: ARG003
    ) -> tuple[str, str | None]:
        """One by one."""
        return not_recorded(training, device, training.algorithm.name)

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """The actor and the critic."""
        policy, _, critic = actor_and_critic(training, spaces, None)
        network = training.network
        return [
            NetSize(name, f"network.{field}", widths, count(net), values=sum(widths), moments=cls.MOMENTS)
            for name, field, widths, net in (
                ("the actor", "actor_hidden", network.actor_hidden, policy),
                ("the critic", "critic_hidden", network.critic_hidden, critic),
            )
        ]

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """Sampled from the policy."""
        self._reading.see(obs)
        return self.play(obs, task, step)

    @torch.no_grad()
    def play(self, obs: Obs, task: I32, step: int) -> Actions:
        """As `act`, of what the scales have seen."""
        if self._expected:
            self._cut(~go_on_from(obs, self._expected))
        seen, tasks = self._reading.scaled(obs), task.astype(np.int64)
        distribution = self._policy.distribution
        outputs = self._policy.with_free(self._evaluated(ACTOR, seen, tasks))
        if not torch.isfinite(outputs).all():
            raise NotFiniteError(f"the policy's actions are not finite at step {step}", what=["actor"])
        noise = distribution.noise(len(task), self._noise).to(self.device)
        action = distribution.draw(outputs, noise)
        self._played = {f"obs.{key}": array for key, array in seen.items()}
        self._played |= {"task": tasks, "action": action.cpu().numpy()}
        actions: Actions = distribution.clip(action).cpu().numpy()
        return actions

    def observe(self, transition: Transition, step: int) -> None:
        """Into the rollout; a full one is judged, and its steps are put into a new order."""
        if self.settings.normalise_reward:
            self._rewards.moments.add(self.discounted(transition))
        self.keep(transition, step + len(transition.step.reward))

    def discounted(self, transition: Transition) -> F64:
        """The sums of rewards [N, 1] that the scale is to see before `keep`."""
        return self._rewards.discounted(transition.step.reward)[:, None]

    def keep(self, transition: Transition, step: int) -> None:
        """As `observe`, of what the scales have seen; `step` is that after it."""
        done = transition.step
        ended = done.finished.astype(np.float32)
        reward = self._rewards.scaled(done.reward, ended) if self.settings.normalise_reward else done.reward
        bootstrap = np.zeros(len(ended), np.float32)
        cut = done.finished & ~done.terminated
        if cut.any():
            bootstrap[cut] = self._value(self._reading.scaled_alone(picked(done.next_obs, cut)), done.task[cut])
        numbers = {"reward": reward, "terminated": done.terminated, "ended": ended, "bootstrap": bootstrap}
        self._rollout.add({**self._played, **numbers})
        self._step, self._left = step, done.obs
        if self._rollout.full:
            self._begin_lesson(self._value(self._reading.scaled(done.obs), done.next_task))
            self._shuffle()

    @property
    def owed(self) -> int:
        """It learns between rollouts alone."""
        return 0

    @property
    def must_learn(self) -> bool:
        """Whether a rollout is whole, and not learned from."""
        return len(self._order_of_steps) > 0

    def update(self) -> Tensor:
        """One update of the next B steps of the order; none where these show that the policy went too far."""
        measured = self.differentiate()
        is_over = self.judge(measured)
        if not is_over:
            self.descend(self.learning_rate)
        self.advance(is_over=is_over)
        return measured

    def differentiate(self) -> Tensor:
        """Leave the gradients of the next B steps of the order in `learned`; `METRICS` [M] of them."""
        rows = to_device(self._order_of_steps[self._at : self._at + self.batch_size], self.device)
        self._at += len(rows)
        inputs, batch = self._part(self._lesson[rows])
        if self._reading.encodes:
            inputs = self._inputs_of_rollout(rows)
        return self._differentiate(inputs, batch)

    def advance(self, *, is_over: bool) -> None:
        """Behind the steps that were looked at; `is_over`: nothing more is learned from the rollout."""
        if is_over:
            self._epoch, self._at = self.epochs - 1, len(self._order_of_steps)
        if self._at >= len(self._order_of_steps):
            self._epoch += 1
            self._shuffle()

    def judge(self, measured: Tensor) -> bool:  # noqa: ARG002 - for those that have a limit
        """Whether nothing more is to be learned from the rollout, nor from the steps of which this is `measured`."""
        return False

    @property
    def learning_rate(self) -> float:
        """Now: it depends on the steps that were made, and on nothing else."""
        rate: float = self.settings.learning_rate  # type: ignore[attr-defined]
        steps = self._falling_steps
        return rate * max(0.0, 1 - self._step / steps) if steps else rate

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Nothing of a task."""
        return {}

    def diagnose(self, step: int) -> None:
        """Nothing yet."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:  # noqa: ARG002 - as the protocol has it
        """It learns from nobody else."""
        return {}

    def state(self) -> State:
        """Nets, optimizer, scales, streams, and the rollout with the place in it."""
        shared, own = self.shared_state(), self.own_state()
        return State({**shared.tensors, **own.tensors}, {**shared.numbers, **own.numbers})

    def shared_state(self) -> State:
        """What all shards share: what is learned, scales, and the place in a rollout."""
        learned = self.learned_state()
        place = {"at": self._at, "epoch": self._epoch, "step": self._step}
        return State(learned.tensors, {**learned.numbers, "place": place})

    def own_state(self) -> State:
        """The rest: streams, the rollout, and what is learned of it."""
        rollout = self._rollout.state()
        tensors = {
            "lesson": self._lesson,
            "order": self._order_of_steps,
            "rewards.sums": torch.from_numpy(self._rewards.sums),
            **named("rollout", {key: torch.from_numpy(array) for key, array in rollout.tensors.items()}),
            **named("left", {key: torch.from_numpy(array) for key, array in self._left.items()}),
        }
        streams = {"stream.noise": self._noise.get_state(), "stream.order": self._order.get_state()}
        return State({**copied(tensors), **streams}, {"rollout": dict(rollout.numbers)})

    def load(self, state: State) -> None:
        """Go on from there; of another number of environments the rollout begins anew."""
        self.load_learned(state)
        self.load_own(state, state.numbers["place"])

    def load_own(self, state: State, place: Mapping[str, int]) -> None:
        """As `own_state` left it, at `place` of the rollout."""
        tensors = state.tensors
        rollout = {key: value.numpy() for key, value in under("rollout", tensors).items()}
        self._left = self._expected = {key: value.numpy() for key, value in under("left", tensors).items()}
        self._rollout.load(State(rollout, state.numbers["rollout"]))
        self._rewards.load(tensors["rewards.sums"].numpy())
        self._lesson, self._order_of_steps = tensors["lesson"].to(self.device, copy=True), tensors["order"].clone()
        self._at, self._epoch, self._step = place["at"], place["epoch"], place["step"]
        if not self._rollout.full:
            self._end_lesson()
        self._noise.set_state(tensors["stream.noise"])
        self._order.set_state(tensors["stream.order"])

    def of_shard(self, shard: int) -> Self:
        """One of several that share nets, scales and optimizer: with a rollout, an order and streams of its own."""
        own = copy.copy(self)
        own.become(shard)
        return own

    def become(self, shard: int) -> None:
        """Begin all that is not shared."""
        self._noise, self._order = (
            torch_generator(self._seed, key, shard) for key in (RandomStream.NOISE, RandomStream.ORDER)
        )
        self._rewards = RewardScale(self.reward_moments, self._rollout.num_envs, self.settings.gamma)
        self._rollout = Rollout(self._kept, self._rollout.capacity, self._rollout.num_envs)

    def _cut(self, lost: Bools) -> None:
        """Cut episodes that a resume could not bring back: others begin where `lost` [N]."""
        rollout = self._rollout
        self._rewards.forget(lost)
        if lost.any() and rollout.steps and not rollout.full:
            worth = np.zeros(len(lost), np.float32)
            left = self._reading.scaled_alone(picked(self._expected, lost))
            worth[lost] = self._value(left, rollout.fields["task"][rollout.steps - 1, lost])
            rollout.cut(lost, worth)
        self._expected = {}

    def _outputs(self, values: list[Tensor]) -> Tensor:
        """The distribution's parameters [B, P], of the values of the actor's layers."""
        return self._policy.with_free(values[-1][0])

    @torch.no_grad()
    def _value(self, seen: Obs, task: I32) -> F32:
        """What the critic thinks of scaled observations, [N]."""
        values: F32 = self._evaluated(CRITIC, seen, task.astype(np.int64))[:, 0].cpu().numpy()
        return values

    def _evaluated(self, net: int, seen: Obs, tasks: I64) -> Tensor:
        """The outputs of one net [N, outputs], for scaled observations."""
        stack = self._stacks[net]
        if not self._reading.encodes and stack.is_quick_for(len(tasks)):
            return torch.from_numpy(stack.forward_few(self._reading.rows(net, seen, tasks)))
        return stack.forward(self._reading.inputs(seen, tasks)[net])[-1][0]

    @torch.no_grad()
    def _begin_lesson(self, last_value: F32) -> None:
        """All that an update takes of a step side by side, so that one look-up finds it. The nets are still those that
        played: what they say of the whole rollout costs less at once than step by step.
        """
        rollout, distribution, reads = self._rollout, self._policy.distribution, self._reading.encodes
        count = rollout.capacity * rollout.num_envs
        action = torch.from_numpy(rollout.in_a_row("action")).to(self.device)
        seen: list[Tensor] = []
        known = []
        for rows in torch.split(torch.arange(count, device=self.device), self.batch_size if reads else count):
            inputs = self._inputs_of_rollout(rows)
            log_prob = distribution.log_prob(self._outputs(self._stacks[0].forward(inputs.policy)), action[rows])
            known.append(torch.stack([log_prob, self._stacks[1].forward(inputs.critics)[-1][0, :, 0]], dim=1))
            seen += [] if reads else inputs if self._reading.reader.is_apart else [inputs.policy]
        log_prob, value = torch.cat(known).unbind(1)
        advantages = torch.from_numpy(
            rollout.advantages(
                value.reshape(rollout.capacity, rollout.num_envs).cpu().numpy(),
                last_value, self.settings.gamma, self.settings.gae_lambda,
            )
        ).to(self.device).reshape(-1)  # fmt: skip
        numbers = torch.stack([log_prob, advantages, advantages + value], dim=1)
        self._lesson = torch.cat([*seen, action.reshape(count, -1).float(), numbers], dim=1)
        self._epoch = 0

    def _part(self, lesson: Tensor) -> tuple[NetInputs, Minibatch]:
        """What it has of some rows; nothing of inputs that are encoded."""
        shape = self._rollout.fields["action"].shape[2:]
        size = shape[0] if shape else 1
        width = lesson.shape[1] - size - 3
        inputs, action = lesson[:, :width], lesson[:, width : width + size]
        if not shape:
            action = action[:, 0].to(torch.int64)
        apart = self._policy.width if self._reading.reader.is_apart else 0
        return NetInputs(inputs[:, :apart] if apart else inputs, inputs[:, apart:]), Minibatch(
            action, *lesson[:, width + size :].unbind(1)
        )

    def _inputs_of_rollout(self, rows: Tensor) -> NetInputs:
        """Of some of its steps."""
        at = rows.cpu().numpy()
        return self._reading.inputs(self._rollout.obs(at), self._rollout.in_a_row("task")[at])

    def _differentiate(self, inputs: NetInputs, batch: Minibatch) -> Tensor:
        """The gradients of all that is learned; `METRICS` [M]."""
        settings, size = self.settings, len(inputs.policy)
        actor, critic = self._stacks
        with torch.no_grad():
            played, judged = actor.forward(inputs.policy.detach()), critic.forward(inputs.critics.detach())
            now = self._policy.distribution.derivatives(self._outputs(played), batch.action)
            by_log_prob, measured = self.weigh(batch, now.log_prob)
            by_outputs = by_log_prob.unsqueeze(-1) * now.log_prob_by_outputs
            if settings.entropy_coef:
                by_outputs -= settings.entropy_coef / size * now.entropy_by_outputs
            error = judged[-1][0, :, 0] - batch.target
            by_value = (2 * settings.value_coef / size) * error
            free = self._policy.distribution.free
            if free:
                self._policy.free.grad = by_outputs[:, -free:].sum(0)
                by_outputs = by_outputs[:, :-free]
            reads = self._reading.encodes
            shared = reads and not self._reading.reader.is_apart
            by_inputs = actor.backward(played, by_outputs.unsqueeze(0), to_inputs=reads)
            by_inputs_too = critic.backward(judged, by_value[None, :, None], to_inputs=shared)
        if reads:
            self._policy.encoders.zero_grad()
            inputs.policy.backward((by_inputs + by_inputs_too if shared else by_inputs)[0])  # type: ignore[no-untyped-call]
        return torch.stack([*measured, error.square().mean(), now.entropy.mean()])

    def _shuffle(self) -> None:
        """The next epoch's order; after the last one the rollout is forgotten."""
        self._at = 0
        if self._epoch < self.epochs:
            self._order_of_steps = torch.randperm(len(self._lesson), generator=self._order)
        else:
            self._rollout.clear()
            self._end_lesson()

    def _end_lesson(self) -> None:
        self._lesson = self._order_of_steps = torch.zeros(0, dtype=torch.int64)
        self._at = self._epoch = 0


def normalised(advantage: Tensor) -> Tensor:
    """[B] of mean 0 and deviation 1; one alone stays as it is."""
    return (advantage - advantage.mean()) / (advantage.std() + _SMALL) if len(advantage) > 1 else advantage
