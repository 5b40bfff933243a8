"""Soft actor-critic for any observation and any action.

Haarnoja et al. 2018 (arXiv 1812.05905); for actions that are one of several, Christodoulou 2019 (arXiv 1910.07207): the
critics give a value for each, and means over actions are sums. One update of it, on a row of numbers, is one of MTSAC's
plain critics (a test says so); that one is faster. What reads pictures: `common.twins`.

Shapes: B transitions, K tasks, A of an action, or one of n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from trainer.algorithms.base import Algorithm, Context, NetSize
from trainer.algorithms.common.compiled import CompiledTwins, PlannedUpdates, choose_engine, is_plain
from trainer.algorithms.common.cuda_graph import ENGINE
from trainer.algorithms.common.off_policy import OffPolicyUpdates, must_be_finite
from trainer.algorithms.common.optimizers import polyak_update
from trainer.algorithms.common.parts import named, torch_generator, under
from trainer.algorithms.common.sharding import OptimizerStep, Sample
from trainer.algorithms.common.soft import SoftInputs, SoftUpdate
from trainer.algorithms.common.twins import TwinNets, nets_of, sizes_of
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Sac
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Box, Obs, Spaces
from trainer.errors import NotFiniteError
from trainer.machine.device import on_device, to_device
from trainer.nets.critics import NetInputs, TwinCritics
from trainer.nets.distributions import usual_entropy
from trainer.state import State
from trainer.streams import RandomStream


class SAC(Algorithm):
    """The actor, two critics, their targets and a temperature a task."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "temperature_loss", "q", "entropy")

    def __init__(self, context: Context) -> None:
        settings = self.settings = cast("Sac", context.training.algorithm)
        spaces, device = context.spaces, context.device
        self.off_policy = OffPolicyUpdates(context)
        self.nets = TwinNets(context, *_shapes(spaces))
        self.policy = self.nets.policy
        self.noise = torch_generator(context.training.seed, RandomStream.NOISE)
        start = torch.full((len(spaces.tasks),), settings.init_temperature, device=device).log()
        self.log_temperature = nn.Parameter(start)
        self.target_entropy = target_entropy(settings, spaces)
        self.is_discrete = not isinstance(spaces.action, Box)
        also = {"temperature": [self.log_temperature]}
        self.nets.create_optimizers(torch.optim.Adam, also=also, lr=settings.learning_rate)
        self._way = context.way
        self.launch()

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        if step < self.settings.random_steps:
            return self.off_policy.random_actions(len(task))
        outputs, distribution = self.nets.act(obs, task), self.policy.distribution
        noise = distribution.noise(len(outputs), self.noise).to(outputs.device)
        # One of several is finite, whatever it was drawn from.
        if self.is_discrete and not torch.isfinite(outputs).all():
            raise NotFiniteError("actor.not-finite", what=["actor"], step=step)
        return must_be_finite(distribution.draw(outputs, noise).cpu().numpy(), step)

    def observe(self, transition: Transition, step: int) -> None:
        self.off_policy.observe(self.nets.features.transition(transition), step)

    @property
    def owed(self) -> int:
        return self.off_policy.owed

    def update(self) -> Tensor:
        return self.learn(self.off_policy.sample(self.draw, self.noise))

    def draw(self, batch: Batch, noise: torch.Generator) -> dict[str, Tensor]:
        """For the actions behind `next_obs` and behind `obs`."""
        next_noise, now = (self.policy.distribution.noise(len(batch.reward), noise) for _ in range(2))
        next_moves, moves = self.nets.drawn_moves(batch.next_obs, noise), self.nets.drawn_moves(batch.obs, noise)
        return {"next_noise": next_noise, "noise": now, **named("next_obs", next_moves), **named("obs", moves)}

    def learn(self, sample: Sample) -> Tensor:
        if self._updates is not None:
            return self._updates.update(self.inputs_of(sample))
        measured = self.off_policy.take_steps(self.optimizer_steps, sample, self.nets.step_optimizer)
        polyak_update(self.nets.target_critics, self.nets.critics, self.settings.tau)
        return self.metrics(measured)

    def optimizer_steps(self, sample: Sample) -> Iterator[OptimizerStep]:
        """The critics; then, with critics that have taken their step, the actor and the temperatures."""
        critic_loss, q, inputs, task = self.critic_loss(sample)
        yield self.nets.step_down({"critics": critic_loss}, critic_loss=critic_loss, q=q.mean())

        noise = to_device(sample.drawn["noise"], self.nets.device)
        q_value, log_prob = self.q_value(self.nets.critics, self.nets.for_actor(inputs), noise)
        temperature = self.log_temperature.detach().exp()[task]
        actor_loss = (temperature * log_prob - q_value).mean()
        temperature_loss = -(self.log_temperature[task] * (log_prob.detach() + self.target_entropy)).mean()
        losses = {"actor": actor_loss, "temperature": temperature_loss}
        measured = {"actor_loss": actor_loss, "temperature_loss": temperature_loss, "entropy": -log_prob.mean()}
        yield self.nets.step_down(losses, **measured)

    def critic_loss(self, sample: Sample) -> tuple[Tensor, Tensor, NetInputs, Tensor]:
        """(the critics' loss, Q [2, B] of the batch's actions, what the nets read, the tasks [B])."""
        batch, drawn, nets = sample.batch, sample.drawn, self.nets
        reward, terminated, action = (on_device(x, nets.device) for x in (batch.reward, batch.terminated, batch.action))
        with torch.no_grad():
            next_inputs, task = nets.inputs(batch.next_obs, batch.task, under("next_obs", drawn))
            next_noise = to_device(drawn["next_noise"], nets.device)
            next_q, next_log_prob = self.q_value(nets.target_critics, next_inputs, next_noise)
            entropy = self.log_temperature.exp()[task] * next_log_prob
            q_target = reward + self.settings.gamma * (1 - terminated) * (next_q - entropy)

        inputs, _ = nets.inputs(batch.obs, batch.task, under("obs", drawn))
        if self.is_discrete:
            q = nets.critics(inputs.critics).gather(-1, action.expand(2, -1).unsqueeze(-1)).squeeze(-1)
        else:
            q = nets.critics(inputs.critics, action).squeeze(-1)
        return (q - q_target).square().mean(1).sum(), q, inputs, task

    def q_value(self, critics: TwinCritics, inputs: NetInputs, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(the smaller Q of what the actor would do, the log density of it), [B] each; means where actions are one of
        several.
        """
        outputs = self.nets.actor(inputs.policy)
        if self.is_discrete:
            log_prob = torch.log_softmax(outputs, -1)
            # `exp` twice: shared, it would be differentiated in another order, to other last digits.
            return (log_prob.exp() * critics(inputs.critics).amin(0)).sum(-1), (log_prob.exp() * log_prob).sum(-1)
        action, log_prob = self.policy.distribution.sample(outputs, noise)
        return critics(inputs.critics, action).squeeze(-1).amin(0), log_prob

    @torch.no_grad()
    def inputs_of(self, sample: Sample) -> SoftInputs:
        """What an update by the engine works on."""
        batch, drawn, nets = sample.batch, sample.drawn, self.nets
        inputs, task = nets.inputs(batch.obs, batch.task)
        next_inputs, _ = nets.inputs(batch.next_obs, batch.task)
        action, (reward, discount) = on_device(batch.action, nets.device), nets.n_step_returns(batch)
        noise = drawn["next_noise"], drawn["noise"]
        return SoftInputs(*inputs, *next_inputs, action, reward, discount, task, *noise)

    def launch(self) -> None:
        """Make updates by the engine where that is the way."""
        self._updates: PlannedUpdates[SoftInputs] | None = None
        if self._way == ENGINE:
            nets, settings = self.nets, self.settings
            twins = CompiledTwins(nets.policy, nets.critics.nets, nets.target_critics.nets)
            pairs = zip(nets.critics.parameters(), nets.target_critics.parameters(), strict=True)
            self.log_temperature.grad = torch.zeros_like(self.log_temperature)
            update = SoftUpdate(
                twins, self.log_temperature, nets.optimizers, list(pairs), self.target_entropy, settings.tau,
                settings.grad_clip,
            )  # fmt: skip
            self._updates = PlannedUpdates(update.planned_choice if self.is_discrete else update.planned)

    def load(self, state: State) -> None:
        super().load(state)
        self.launch()  # a plan would go on with moments that are no longer there

    @torch.no_grad()
    def probe(self, step: int) -> tuple[float, Tensor]:
        sample = self.off_policy.probe(self.draw, step)
        loss, _, inputs, _ = self.critic_loss(sample)
        q, _ = self.q_value(self.nets.critics, inputs, to_device(sample.drawn["noise"], self.nets.device))
        return float(loss), q.cpu()

    def weights(self) -> Mapping[str, Tensor]:
        return {**self.nets.weights(), "log_temperature": self.log_temperature.data}

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Each task's entropy temperature."""
        temperatures: list[float] = self.log_temperature.detach().exp().tolist()
        return {"temperature": temperatures}

    def parts(self) -> Mapping[str, Any]:
        own = {"log_temperature": self.log_temperature, "noise": self.noise}
        return {**self.nets.parts(), **own, **self.off_policy.parts()}

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        return sizes_of(training, spaces, *_shapes(spaces))

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """On a CPU by the engine where nets are plain."""
        if device.type != "cpu":
            return super().choose_launch_mode(training, spaces, device, recorded)
        policy = nets_of(training, spaces, *_shapes(spaces), None)[0]
        return choose_engine(training, recorded, is_plain=is_plain(training, policy))


def target_entropy(settings: Sac, spaces: Spaces) -> float:
    """In nats: what is asked for, or what is usual for these actions."""
    return usual_entropy(spaces.action) if settings.target_entropy is None else settings.target_entropy


def _shapes(spaces: Spaces) -> tuple[str, int]:
    """(the distribution, how many numbers each critic says)."""
    return ("squashed-normal", 1) if isinstance(spaces.action, Box) else ("categorical", spaces.action.n)
