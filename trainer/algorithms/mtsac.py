"""Multi-task soft actor-critic: one actor, twin critics, learned entropy temperatures. Read it top to bottom.

Haarnoja et al. 2018 (SAC with a learned temperature). Each task has a temperature of its own, as in Meta-World's MT-SAC
(Yu et al. 2020), or all have the same (`shared_temperature`, as in BRC, Nauman et al. 2025): then the entropy of all
tasks together is steered, and a task that is solved may leave its part to one that is not. The task is seen by every
net as a one-hot vector after the observation.

The critics are of one of two kinds. Squared: each gives a number, learns by squared error, and the smaller of the two
counts. Categorical (`common.categorical`): each gives a distribution over a fixed grid, learns by cross-entropy, the
average of the two counts, and rewards are scaled task by task so that returns stay on the grid. Derivatives of plain
nets are written by hand (`trainer.nets.fused`). On a CPU the same update is made in C where it can be
(`common.native`): other numbers in the last digits, so a run keeps to one of them.

Shapes: B transitions, K tasks, O observation numbers, A action numbers; x = [obs, one-hot task] is [B, O + K].
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from trainer.algorithms.base import Algorithm, Context, NetSize
from trainer.algorithms.common import categorical, multitask
from trainer.algorithms.common.cuda_graph import NATIVE, Record, Updates, record_cuda_graph
from trainer.algorithms.common.diagnostics import Diagnosis
from trainer.algorithms.common.graph_check import choose_recorded
from trainer.algorithms.common.multitask import Inputs, actor_and_critics, inputs_of, outputs_of
from trainer.algorithms.common.native.library import ThreadPair, choose_native, threads_for
from trainer.algorithms.common.native.update import NativeUpdates
from trainer.algorithms.common.off_policy import OffPolicyUpdates, must_be_finite
from trainer.algorithms.common.optimizers import optimizers_of, step_along
from trainer.algorithms.common.parts import named, torch_generator
from trainer.algorithms.common.sharding import OptimizerStep, Sample, take_steps
from trainer.algorithms.common.twins import twin_sizes
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Mtsac
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Obs, Spaces
from trainer.machine.device import on_device, to_device
from trainer.machine.host import read_host
from trainer.nets import fused
from trainer.nets.critics import Critic
from trainer.nets.distributions import usual_entropy
from trainer.nets.fused import Draw, Stacked, min_q_input_gradient
from trainer.nets.mlp import with_task
from trainer.state import State
from trainer.streams import RandomStream

#: Rewards are in [0, 10]: below this a task has shown none worth scaling by.
_SMALLEST_REWARD = 1e-3


class MTSAC(Algorithm):
    """The actor, two critics, their targets and a temperature a task."""

    METRICS: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss", "temperature_loss", "q", "entropy")

    def __init__(self, context: Context) -> None:
        training, spaces, device = context.training, context.spaces, context.device
        settings = self.settings = cast("Mtsac", training.algorithm)
        self.off_policy = OffPolicyUpdates(context)
        self.num_tasks, self.seed = len(spaces.tasks), training.seed
        wanted = settings.target_entropy
        self.target_entropy = usual_entropy(spaces.action) if wanted is None else wanted
        init = torch_generator(training.seed_of_nets, RandomStream.NETS)
        self.policy, self.critics = actor_and_critics(training, spaces, init)
        self.policy.to(device)
        self.critics.to(device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(requires_grad=False)
        initial = torch.full((self.num_tasks,), settings.init_temperature, device=device)
        self.log_temperature = nn.Parameter(initial.log())
        #: [K] the largest |reward| of any batch so far: what categorical critics scale by, over the grid `values`.
        self.largest_reward = torch.zeros(self.num_tasks, device=device)
        self.values: Tensor | None = None
        if settings.critic_loss == "categorical":
            self.values = categorical.grid(settings.value_limit, settings.value_bins, device)
        #: The actor and, where they are plain, critics and targets: the same numbers once more, in one piece.
        self.stacks = {"actor": Stacked([self.policy.body])}
        if training.network.critic_net != "residual":
            for name, nets in (("critics", self.critics), ("targets", self.target_critics)):
                self.stacks[name] = Stacked(cast("list[Critic]", nets))
        critics = [self.stacks["critics"].flat] if "critics" in self.stacks else list(self.critics.parameters())

        def adam(weight_decay: float, **learned: list[nn.Parameter]) -> dict[str, torch.optim.Optimizer]:
            kind = partial(torch.optim.AdamW, eps=settings.adam_eps, capturable=device.type == "cuda")
            return optimizers_of(learned, device, kind, lr=settings.learning_rate, weight_decay=weight_decay)

        self.optimizers = adam(settings.weight_decay, actor=[self.stacks["actor"].flat], critics=critics)
        self.optimizers |= adam(0.0, temperature=[self.log_temperature])
        self.noise = torch_generator(training.seed, RandomStream.NOISE)
        self._way, self._device = context.way, device
        self._threads = ThreadPair(threads_for(training, read_host().cores) if self._way == NATIVE else 1)
        self.launch(self._way)

    @torch.no_grad()
    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        if step < self.settings.random_steps:
            return self.off_policy.random_actions(len(task))
        distribution, device = self.policy.distribution, self._device
        outputs = self.policy.outputs(obs, task)
        noise = to_device(distribution.noise(len(outputs), self.noise), device)
        return must_be_finite(distribution.draw(outputs, noise).cpu().numpy(), step)

    def observe(self, transition: Transition, step: int) -> None:
        self.off_policy.observe(transition, step)

    @property
    def owed(self) -> int:
        return self.off_policy.owed

    def draw(self, batch: Batch, noise: torch.Generator) -> dict[str, Tensor]:
        """For the actions behind `next_obs` and behind `obs`."""
        return {name: torch.randn(batch.action.shape, generator=noise) for name in ("next_noise", "current_noise")}

    def update(self) -> Tensor:
        return self.learn(self.off_policy.sample(self.draw, self.noise))

    def learn(self, sample: Sample) -> Tensor:
        """One shard's is made as recorded, or natively, where it is."""
        device = self._device
        if self.settings.shards == 1:
            with self.off_policy.rounding():
                return self._update(inputs_of(sample, device))
        self.note_rewards(on_device(sample.batch.task, device), on_device(sample.batch.reward, device))

        def steps(of: Sample) -> Iterator[OptimizerStep]:
            return self.optimizer_steps(inputs_of(of, device))

        return self.move_targets(self.off_policy.take_steps(steps, sample, self.step_optimizer))

    @torch.no_grad()
    def update_of(self, inputs: Inputs) -> Tensor:
        """An update from where everything is on the device: nothing in here reads a number back, or draws one."""
        self.note_rewards(inputs.task, inputs.reward)
        return self.move_targets(take_steps(self.optimizer_steps(inputs), self.step_optimizer))

    @torch.no_grad()
    def optimizer_steps(self, inputs: Inputs) -> Iterator[OptimizerStep]:
        """The critics; then, with critics that have taken their step, the actor and the temperatures."""
        task = inputs.task
        x, next_x = (with_task(seen, task, self.num_tasks) for seen in (inputs.obs, inputs.next_obs))
        temperature = self.log_temperature.detach().exp()[task]

        target = self.target(inputs, next_x, temperature, self.largest_reward)
        critics, critic_loss, q = self.critic_gradient(x, inputs.action, target)
        yield OptimizerStep({"critics": critics}, {"critic_loss": critic_loss, "q": q})

        actor, actor_loss, log_prob = self.actor_gradient(x, temperature, inputs.current_noise)
        temperatures, temperature_loss = self.temperature_gradient(task, log_prob)
        measured = {"actor_loss": actor_loss, "temperature_loss": temperature_loss, "entropy": -log_prob.mean()}
        yield OptimizerStep({"actor": actor, "temperature": temperatures}, measured)

    @torch.no_grad()
    def target(self, inputs: Inputs, next_x: Tensor, temperature: Tensor, largest_reward: Tensor) -> Tensor:
        """What the critics are to say: values r + gamma (1 - terminated) (min Q'(s', a') - temperature log pi(a'|s')),
        [B]; or where they are categorical, of both averaged, the probability of each value [B, bins].

        Only a true termination stops the sum. An episode that was cut by the horizon is taken to go on: its `next_obs`
        is the state that the cut left, not the next episode's first.
        """
        following = self.drawn(next_x, inputs.next_noise)[0]
        discount = self.settings.gamma * (1 - inputs.terminated)
        if self.values is not None:
            logits = outputs_of(self.target_critics, next_x, following.action)
            reward = self.scaled(inputs.task, inputs.reward, largest_reward)
            shift = reward - discount * temperature * following.log_prob
            return categorical.target(torch.softmax(logits, dim=-1).mean(0), shift, discount, self.values)
        if "targets" in self.stacks:
            both, _ = self.plain_values("targets", next_x, following.action)
        else:
            both = outputs_of(self.target_critics, next_x, following.action).squeeze(-1)
        return inputs.reward + discount * (both.amin(0) - temperature * following.log_prob)

    @torch.no_grad()
    def note_rewards(self, task: Tensor, reward: Tensor) -> None:
        """Remember the largest |`reward`| [B] of each task, where critics are categorical."""
        if self.values is not None:
            self.largest_reward.scatter_reduce_(0, task, reward.abs(), "amax")

    def scaled(self, task: Tensor, reward: Tensor, largest_reward: Tensor) -> Tensor:
        """`reward` [B] such that no discounted sum of its task's rewards, none above the largest [K], leaves the grid.

        BRC divides by the largest return that it has seen; the largest reward / (1 - gamma) bounds every return, and
        needs nothing but the batch.
        """
        bound = largest_reward.clamp(min=_SMALLEST_REWARD) / (1 - self.settings.gamma)
        return reward * (self.settings.value_limit / bound)[task]

    @torch.no_grad()
    def critic_gradient(self, x: Tensor, action: Tensor, target: Tensor) -> tuple[Sequence[Tensor], Tensor, Tensor]:
        """Both critics towards `target`: (the gradients, the sum of their mean losses, the mean Q)."""
        if "critics" not in self.stacks:
            with torch.enable_grad():
                loss, q = self.critic_loss(x, action, target)
            return torch.autograd.grad(loss, list(self.critics.parameters())), loss.detach(), q.detach().mean()
        q, layers = self.plain_values("critics", x, action)
        td_error = q - target
        self.stacks["critics"].backward(layers, (2 / len(target) * td_error).unsqueeze(-1) * self.chosen(x))
        return [self.stacks["critics"].gradient], td_error.square().mean(dim=1).sum(), q.mean()

    def critic_loss(self, x: Tensor, action: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """(the sum of the critics' mean losses, Q [2, B] of `action`), by torch: of any critics."""
        outputs = outputs_of(self.critics, x, action)
        if self.values is None:
            q = outputs.squeeze(-1)
            return (q - target).square().mean(dim=1).sum(), q
        loss = categorical.cross_entropy(outputs, target).mean(dim=1).sum()
        return loss, categorical.mean(outputs.detach(), self.values)

    @torch.no_grad()
    def actor_gradient(self, x: Tensor, temperature: Tensor, noise: Tensor) -> tuple[Sequence[Tensor], Tensor, Tensor]:
        """The actor towards high Q and high entropy: (the gradients, the loss, the log density [B] of the actions that
        it drew).
        """
        current, layers = self.drawn(x, noise)
        q_value, action_gradient = self.q_value_and_gradient(x, current.action)
        rows = x.shape[0]
        output_gradient = fused.output_gradient(current, -action_gradient / rows, temperature / rows)
        self.stacks["actor"].backward(layers, output_gradient.unsqueeze(0))
        loss = (temperature * current.log_prob - q_value).mean()
        return [self.stacks["actor"].gradient], loss, current.log_prob

    def q_value_and_gradient(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """What the actor climbs: (Q [B], its derivative by the action [B, A]); the critics get no gradients."""
        if "critics" in self.stacks:
            q, layers = self.plain_values("critics", x, action)
            input_gradient = min_q_input_gradient(self.stacks["critics"], layers, q, self.chosen(x))
            return q.amin(0), input_gradient[:, -action.shape[1] :]
        with torch.enable_grad():
            free = action.detach().requires_grad_()
            outputs = outputs_of(self.critics, x, free)
            value = (
                outputs.squeeze(-1).amin(0) if self.values is None else categorical.mean(outputs, self.values).mean(0)
            )
            gradient = torch.autograd.grad(value.sum(), free)[0]
        return value.detach(), gradient

    @torch.no_grad()
    def temperature_gradient(self, task: Tensor, log_prob: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        """Each task's temperature up where its entropy is below the target, down where it is above: (the gradient, the
        loss). A shared one is as many equal numbers, which get the same gradient.
        """
        missing_entropy = log_prob + self.target_entropy
        if self.settings.shared_temperature:
            gradient = -missing_entropy.mean().expand_as(self.log_temperature).contiguous()
        else:
            by_task = torch.zeros_like(self.log_temperature)
            gradient = by_task.index_add_(0, task, missing_entropy, alpha=-1 / len(task))
        return [gradient], -(self.log_temperature[task] * missing_entropy).mean()

    def step_optimizer(self, name: str, gradients: Sequence[Tensor]) -> None:
        """One Adam step of "critics", "actor" or "temperature". Only nets' gradients are clipped."""
        optimizer, clip = self.optimizers[name], 0.0 if name == "temperature" else self.settings.grad_clip
        step_along(optimizer, optimizer.param_groups[0]["params"], gradients, clip)

    @torch.no_grad()
    def move_targets(self, measured: Mapping[str, Tensor]) -> Tensor:
        """Each target parameter a fraction tau of the way to its critic's; `METRICS`."""
        if "targets" in self.stacks:
            self.stacks["targets"].flat.lerp_(self.stacks["critics"].flat, self.settings.tau)
        else:
            for target, critic in zip(self.target_critics.parameters(), self.critics.parameters(), strict=True):
                target.lerp_(critic, self.settings.tau)
        return self.metrics(measured)

    def drawn(self, x: Tensor, noise: Tensor) -> tuple[Draw, list[Tensor]]:
        """Actions for `x` [B, O + K] by standard normal `noise` [B, A], and the values of the actor's layers."""
        layers = self.stacks["actor"].forward(x)
        return fused.draw(layers[-1][0], noise), layers

    def plain_values(self, which: str, x: Tensor, action: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Q of both plain "critics" or "targets": ([2, B], the values of their layers)."""
        layers = self.stacks[which].forward(torch.cat([x, action], dim=-1))
        return (layers[-1] * self.chosen(x)).sum(-1), layers

    def chosen(self, x: Tensor) -> Tensor:
        """[B, outputs]: 1 for the output of a plain critic that is Q for the row's task, else 0."""
        return cast("Critic", self.critics[0]).chosen(x)

    def launch(self, way: str, record: Record = record_cuda_graph) -> None:
        """Make updates that `way` from here on."""
        recorded = Updates(self.update_of, self._device, way, record)
        self._update = NativeUpdates(self, self._threads).learn if way == NATIVE else recorded.update

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Each task's entropy temperature."""
        temperatures: list[float] = self.log_temperature.detach().exp().tolist()
        return {"temperature": temperatures}

    def diagnose(self, step: int) -> Diagnosis:
        return multitask.diagnose(self, self.off_policy.experience.own, step)

    @torch.no_grad()
    def probe(self, step: int) -> tuple[float, Tensor]:
        loss, q = multitask.critic_loss_and_q(self, inputs_of(self.off_policy.probe(self.draw, step), self.device))
        return float(loss), q.cpu()

    def weights(self) -> Mapping[str, Tensor]:
        return {
            **named("policy", self.policy.state_dict()),
            **named("critics", self.critics.state_dict()),
            "log_temperature": self.log_temperature.data,
            **named("targets", self.target_critics.state_dict()),
        }

    def parts(self) -> Mapping[str, Any]:
        nets = {"policy": self.policy, "critics": self.critics, "targets": self.target_critics}
        adam = {f"adam.{name}": optimizer for name, optimizer in self.optimizers.items()}
        own = {"log_temperature": self.log_temperature, "largest_reward": self.largest_reward, "noise": self.noise}
        return {**nets, **adam, **own, **self.off_policy.parts()}

    def load(self, state: State) -> None:
        super().load(state)
        self.launch(self._way)  # what was recorded would go on with moments that are no longer there

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        return twin_sizes(training.network, *actor_and_critics(training, spaces, None))

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """A CUDA graph where that is asked for and leaves the same bits; on a CPU natively where that is possible."""
        if device.type == "cpu":
            return choose_native(training, recorded)
        return choose_recorded(cls, training, spaces, device)
