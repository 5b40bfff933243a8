"""TD3: a deterministic actor, two critics, and targets that are slow, noisy and take the smaller of both.

Fujimoto et al. 2018 (arXiv 1802.09477). As settings what FastTD3 adds (Seo et al. 2025, arXiv 2505.22642): categorical
critics, returns of several steps, and for each environment a noise of its own. What reads pictures: `common.twins`.

Shapes: N environments, B transitions, I numbers that the nets read, A of an action, V values of a categorical critic.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainer.algorithms.base import Algorithm, Context, NetSize
from trainer.algorithms.common import categorical
from trainer.algorithms.common.compiled import CompiledTwins, PlannedUpdates, choose_engine, is_plain
from trainer.algorithms.common.cuda_graph import ENGINE, Record, Updates, record_cuda_graph
from trainer.algorithms.common.graph_check import choose_recorded
from trainer.algorithms.common.off_policy import OffPolicyUpdates, must_be_finite
from trainer.algorithms.common.optimizers import polyak_update
from trainer.algorithms.common.parts import named, torch_generator, under
from trainer.algorithms.common.sharding import OptimizerStep, Sample, take_steps
from trainer.algorithms.common.twins import TwinNets, must_be_numbers, nets_of, sizes_of
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Td3
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import F32, I32, Actions, Obs, Spaces
from trainer.machine.device import on_device, to_device
from trainer.nets.critics import NetInputs
from trainer.nets.encoders.base import kept_spaces
from trainer.nets.engine.plan import EnginePlan, PlainNet, doubles
from trainer.nets.mlp import MLP
from trainer.state import State
from trainer.streams import RandomStream

_DISTRIBUTION = "tanh-noise"


@dataclass(frozen=True)
class UpdateInputs:
    """What one update works on, all on the learner's device: what policy and critics read of B transitions, and of what
    follows them; `discount`: what counts of that; `noise` [B, A], standard normal.
    """

    policy: Tensor
    critics: Tensor
    next_policy: Tensor
    next_critics: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    noise: Tensor


class TD3(Algorithm):
    """The actor, two critics, the targets of all three; the noise of each environment, and rows that are not whole."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "q")

    def __init__(self, context: Context) -> None:
        must_be_numbers(context.training, context.spaces)
        settings = self.settings = cast("Td3", context.training.algorithm)
        self._device = context.device
        self.off_policy = OffPolicyUpdates(context)
        self.nets = TwinNets(context, _DISTRIBUTION, _outputs(settings))
        self.policy = self.nets.policy
        self.policy.free.requires_grad_(False).fill_(math.log(middle_deviation(settings)))
        # What an encoder makes of pictures is not the actor's to learn: its target is of what comes behind.
        self.actor_head = nn.Sequential(*(each for each in (self.policy.trunk, self.policy.body) if each is not None))
        self.target_actor = copy.deepcopy(self.actor_head).requires_grad_(requires_grad=False)
        rate, decay, on_gpu = settings.learning_rate, settings.weight_decay, self._device.type == "cuda"
        self.nets.create_optimizers(torch.optim.AdamW, lr=rate, weight_decay=decay, capturable=on_gpu)
        self.values: Tensor | None = None  # of categorical critics, [V]
        if settings.critic_loss == "categorical":
            self.values = categorical.grid(settings.value_limit, settings.value_bins, self._device)
        self.noise = torch_generator(context.training.seed, RandomStream.NOISE)
        self.deviations = self.drawn_deviations(context.num_envs)
        self.updates = 0
        self.actor_loss = torch.zeros((), device=self._device)
        self._way = context.way
        self.launch(context.way)

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        if step < self.settings.random_steps:
            return self.off_policy.random_actions(len(task))
        outputs, distribution = self.nets.act(obs, task), self.policy.distribution
        noise = distribution.noise(len(outputs), self.noise) * torch.from_numpy(self.deviations).unsqueeze(-1)
        action = distribution.clip(distribution.mode(outputs) + noise.to(self._device))
        return must_be_finite(action.cpu().numpy(), step)

    def observe(self, transition: Transition, step: int) -> None:
        self.off_policy.observe(self.nets.features.transition(transition), step)
        ended = transition.step.finished
        if self.settings.exploration_noise_max is not None and ended.any():
            self.deviations[ended] = self.drawn_deviations(int(ended.sum()))

    def drawn_deviations(self, environments: int) -> F32:
        """Of the noise of each, [N]: drawn where there is a choice."""
        low, high = self.settings.exploration_noise, self.settings.exploration_noise_max
        if high is None:
            return np.full(environments, low, np.float32)
        return self.off_policy.exploration.uniform(low, high, environments).astype(np.float32)

    @property
    def owed(self) -> int:
        return self.off_policy.owed

    def update(self) -> Tensor:
        return self.learn(self.off_policy.sample(self.draw, self.noise))

    def draw(self, batch: Batch, noise: torch.Generator) -> dict[str, Tensor]:
        """For the targets' actions."""
        target_noise = self.policy.distribution.noise(len(batch.reward), noise)
        next_moves, moves = self.nets.drawn_moves(batch.next_obs, noise), self.nets.drawn_moves(batch.obs, noise)
        return {"noise": target_noise, **named("next_obs", next_moves), **named("obs", moves)}

    def learn(self, sample: Sample) -> Tensor:
        """Every `policy_delay`-th moves actor and targets, too. One shard's is replayed where it is recorded."""
        moves_actor = (self.updates + 1) % self.settings.policy_delay == 0
        self.updates += 1
        if self.settings.shards == 1:
            with self.off_policy.rounding():
                measured = self._recorded[moves_actor].update(self.inputs_of(sample))
            if self._way == ENGINE:
                self.actor_loss = measured[1].clone() if moves_actor else self.actor_loss
                measured[1] = self.actor_loss
            return measured

        def steps(of: Sample) -> Iterator[OptimizerStep]:
            return self.optimizer_steps(self.inputs_of(of), moves_actor=moves_actor)

        return self.move_targets(self.off_policy.take_steps(steps, sample, self.nets.step_optimizer))

    def inputs_of(self, sample: Sample) -> UpdateInputs:
        """`sample` on the device."""
        batch, drawn, nets = sample.batch, sample.drawn, self.nets
        action, noise = on_device(batch.action, self._device), to_device(drawn["noise"], self._device)
        reward, discount = nets.n_step_returns(batch)
        with torch.no_grad():
            next_inputs, _ = nets.inputs(batch.next_obs, batch.task, under("next_obs", drawn))
        inputs, _ = nets.inputs(batch.obs, batch.task, under("obs", drawn))
        return UpdateInputs(*inputs, *next_inputs, action, reward, discount, noise)

    def update_of(self, moves_actor: bool, of: UpdateInputs) -> Tensor:
        """An update from where everything is on the device: nothing in here reads a number back, or draws one."""
        steps = self.optimizer_steps(of, moves_actor=moves_actor)
        return self.move_targets(take_steps(steps, self.nets.step_optimizer))

    def optimizer_steps(self, of: UpdateInputs, *, moves_actor: bool) -> Iterator[OptimizerStep]:
        """The critics; then the actor, with critics that have taken their step."""
        critic_loss, q = self.critic_loss(of)
        yield self.nets.step_down({"critics": critic_loss}, critic_loss=critic_loss, q=q.detach().mean())

        if moves_actor:
            actor_loss = -self.q_value(self.nets.for_actor(NetInputs(of.policy, of.critics))).mean()
            yield self.nets.step_down({"actor": actor_loss}, actor_loss=actor_loss)

    def critic_loss(self, of: UpdateInputs) -> tuple[Tensor, Tensor]:
        """(the critics' loss, Q [2, B] of the batch's actions)."""
        with torch.no_grad():
            target = self.td_target(of)
        outputs = self.nets.critics(of.critics, of.action)
        if self.values is None:
            q = outputs.squeeze(-1)
            return (q - target).square().mean(1).sum(), q
        loss = categorical.cross_entropy(outputs, target).mean(1).sum()
        return loss, categorical.mean(outputs.detach(), self.values)

    def td_target(self, of: UpdateInputs) -> Tensor:
        """What the critics are to say: values [B], or where they are categorical probabilities [B, V].

        What follows counts by the discount of as many steps as lie between, and not at all after a true end.
        """
        settings, distribution = self.settings, self.policy.distribution
        limit = settings.target_noise_clip
        noise = (settings.target_noise * of.noise).clamp(-limit, limit)
        next_action = distribution.clip(torch.tanh(self.target_actor(of.next_policy).float()) + noise)
        outputs = self.nets.target_critics(of.next_critics, next_action)
        if self.values is None:
            target: Tensor = of.reward + of.discount * outputs.squeeze(-1).amin(0)
            return target
        # FastTD3 compares after the projection, which is another only where a value leaves the grid.
        return categorical.target(categorical.smaller(outputs, self.values), of.reward, of.discount, self.values)

    def q_value(self, inputs: NetInputs) -> Tensor:
        """[B] the first critic's Q of what the actor does."""
        action = self.policy.distribution.mode(self.nets.actor(inputs.policy))
        outputs = self.nets.critics.first(inputs.critics, action)
        q: Tensor = outputs.squeeze(-1) if self.values is None else categorical.mean(outputs, self.values)
        return q

    def move_targets(self, measured: Mapping[str, Tensor]) -> Tensor:
        """With the actor; `METRICS`. `actor_loss` is that of the last step of the actor, 0 before the first."""
        if "actor_loss" in measured:
            polyak_update(self.nets.target_critics, self.nets.critics, self.settings.tau)
            polyak_update(self.target_actor, self.actor_head, self.settings.tau)
            self.actor_loss.copy_(measured["actor_loss"])
        return self.metrics({**measured, "actor_loss": self.actor_loss})

    def planned(self, moves_actor: bool, plan: EnginePlan, of: UpdateInputs) -> Tensor:
        """`update_of` by the engine."""
        twins, settings, rows = self._compiled, self.settings, len(of.reward)
        measured, nothing, nets = plan.sums(len(self.METRICS)), torch.zeros(rows), self.nets
        twins.pack(plan)
        target_actor = PlainNet(cast("MLP", self.target_actor[0]))
        target_actor.pack(plan, backward=False)

        # reward + discount min Q'(s', a' with noise)
        next_x = plan.beside(of.next_critics, target_actor.forward(plan, of.next_policy, torch.tanh)[-1])
        noise = of.noise, doubles(settings.target_noise, settings.target_noise_clip)
        plan.add("noisy", (*of.noise.shape, next_x.stride(0)), next_x[:, of.next_critics.shape[1] :], *noise)
        value, target = (
            twins.smaller(plan, *(net.forward(plan, next_x)[-1] for net in twins.targets))[0],
            nothing.clone(),
        )
        plan.add("soft_target", (rows,), of.reward, of.discount, value, nothing, nothing, target)

        x = plan.beside(of.critics, of.action)
        critics = nets.optimizers["critics"], settings.grad_clip
        twins.step_critics(plan, *critics, x, torch.zeros(0), target, measured, measured[2:])
        if not moves_actor:
            return measured
        values = twins.actor.forward(plan, of.policy, torch.tanh)
        q, of_critic = twins.q(plan, twins.critics[0], plan.beside(of.critics, values[-1]), torch.zeros(0))
        plan.add("mean", (rows, -1), q, measured[1:])
        every = [(torch.arange(rows), torch.tensor([rows]))]
        by_action = twins.climb(plan, [of_critic], torch.full((rows, 1), -1 / rows), every, of.critics.shape[1])
        twins.actor.backward(plan, values, by_action, torch.tanh)
        twins.step(plan, nets.optimizers["actor"], settings.grad_clip)
        for follower, net in ((nets.target_critics, nets.critics), (self.target_actor, self.actor_head)):
            for one, other in zip(net.parameters(), follower.parameters(), strict=True):
                plan.add("polyak", (one.numel(),), one, other, doubles(settings.tau))
        return measured

    def launch(self, way: str, record: Record = record_cuda_graph) -> None:
        """Make updates that `way` from here on: those with a step of the actor, and those without."""
        self._recorded: Mapping[bool, Updates[UpdateInputs] | PlannedUpdates[UpdateInputs]]
        if way == ENGINE:
            self._compiled = CompiledTwins(self.policy, self.nets.critics.nets, self.nets.target_critics.nets)
            self._recorded = {moves: PlannedUpdates(partial(self.planned, moves)) for moves in (True, False)}
            return
        self._recorded = {
            moves: Updates(partial(self.update_of, moves), self._device, way, record) for moves in (True, False)
        }

    @torch.no_grad()
    def probe(self, step: int) -> tuple[float, Tensor]:
        of = self.inputs_of(self.off_policy.probe(self.draw, step))
        loss, _ = self.critic_loss(of)
        return float(loss), self.q_value(NetInputs(of.policy, of.critics)).cpu()

    def weights(self) -> Mapping[str, Tensor]:
        target = {name: each.data for name, each in self.target_actor.named_parameters()}
        return {**self.nets.weights(), **named("target_actor", target)}

    def parts(self) -> Mapping[str, Any]:
        own = {"target_actor": self.target_actor, "actor_loss": self.actor_loss, "deviations": self.deviations}
        streams = {"noise": self.noise, "updates": self.updates}
        return {**self.nets.parts(), **own, **streams, **self.off_policy.parts()}

    def load(self, state: State) -> None:
        super().load(state)
        self.launch(self._way)  # what was recorded would go on with moments that are no longer there

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        must_be_numbers(training, spaces)
        actor, critics = sizes_of(training, spaces, _DISTRIBUTION, _outputs(cast("Td3", training.algorithm)))
        return [replace(actor, targets=1), critics]

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """On a CPU by the engine where nets are plain. On a GPU a CUDA graph where that is asked for and leaves the
        same bits; never where an encoder learns along.
        """
        policy = nets_of(training, spaces, _DISTRIBUTION, 1, None)[0]
        if device.type == "cpu":
            is_squared = cast("Td3", training.algorithm).critic_loss == "squared"
            return choose_engine(training, recorded, is_plain=is_squared and is_plain(training, policy))
        if policy.encoders:
            return super().choose_launch_mode(training, spaces, device, recorded)
        # Of rows: where an encoder is frozen, what it makes of them.
        return choose_recorded(cls, training, kept_spaces(spaces, training.network), device)


def middle_deviation(settings: Td3) -> float:
    """Of the noise of those who play with a published policy: in the middle of what the environments draw from."""
    low, high = settings.exploration_noise, settings.exploration_noise_max
    return low if high is None else (low + high) / 2


def _outputs(settings: Td3) -> int:
    """How many numbers each critic says."""
    return settings.value_bins if settings.critic_loss == "categorical" else 1
