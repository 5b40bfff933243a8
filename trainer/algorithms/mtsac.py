"""Multi-task soft actor-critic: one actor, twin critics, learned entropy temperatures. Read it top to bottom.

Haarnoja et al. 2018 (SAC with a learned temperature). Each task has a temperature of its own, as in Meta-World's MT-SAC
(Yu et al. 2020), or all have the same (`shared_temperature`, as in BRC, Nauman et al. 2025): then the entropy of all
tasks together is steered, and a task that is solved may leave its part to one that is not. The task is seen by every
net as a one-hot vector after the observation.

The critics are of one of two kinds. Squared: each gives a number, learns by squared error, and the smaller of the two
counts. Categorical (`trainer.algorithms.categorical`): each gives a distribution over a fixed grid, learns by
cross-entropy, the average of the two counts, and rewards are scaled task by task so that returns stay on the grid.

Shapes: B transitions, K tasks, O observation numbers, A action numbers; x = [obs, one-hot task] is [B, O + K].
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.algorithms import categorical
from trainer.algorithms.inputs import Inputs, normal, prepare, sent
from trainer.buffers.replay import Batch
from trainer.config import Training
from trainer.envs.step import ACT_DIM, OBS_DIM
from trainer.nets import distributions as gaussian
from trainer.nets.critic import Critic, slope_of_smallest
from trainer.nets.distributions import Draw, GaussianActor, draw, sample
from trainer.nets.fused import Stacked
from trainer.nets.residual import ResidualCritic

#: What an update measures, in the order of the tensor that `update` returns.
METRICS = ("critic_loss", "actor_loss", "temperature_loss", "q", "entropy")

#: Rewards are in [0, 10]: below this a task has shown none worth scaling by.
_SMALLEST_REWARD = 1e-3
#: torch's Adam as one kernel: exists where these are (2.10); elsewhere the plain loop.
_FUSED_DEVICES = ("cpu", "cuda")


@dataclass
class Learner:
    """Everything that an update changes. `noise` is the stream of all sampling, on the CPU whatever the device."""

    training: Training
    device: torch.device
    actor: GaussianActor
    critics: nn.ModuleList  # two: x and action → [B, 1], or [B, bins] where they are categorical
    targets: nn.ModuleList
    log_temperature: nn.Parameter  # [K]
    largest_reward: Tensor  # [K], the largest |reward| of any batch so far: what categorical critics scale by
    values: Tensor | None  # [bins], the grid of categorical critics
    stacks: dict[str, Stacked]  # actor and, where they are plain, critics and targets: the same numbers once more
    optimizers: dict[str, torch.optim.AdamW]  # actor, critics, temperature
    noise: torch.Generator

    @property
    def num_tasks(self) -> int:
        """K."""
        return len(self.training.tasks)


def create(training: Training, device: torch.device) -> Learner:
    """A fresh learner. Parameters depend on the seed alone, not on the device."""
    init, noise = (torch.Generator() for _ in range(2))
    for stream, generator in enumerate((init, noise)):
        words = np.random.SeedSequence(training.seed, spawn_key=(stream,)).generate_state(1, np.uint64)
        generator.manual_seed(int(words[0] >> np.uint64(1)))
    inputs = OBS_DIM + len(training.tasks)
    actor = GaussianActor(inputs, training.actor_hidden, ACT_DIM, init).to(device)
    critics = nn.ModuleList(_critic(training, inputs, init) for _ in range(2)).to(device)
    targets = copy.deepcopy(critics).requires_grad_(requires_grad=False)
    start = torch.full((len(training.tasks),), training.init_temperature, device=device).log()
    log_temperature = nn.Parameter(start)

    stacks = {"actor": Stacked([actor.body])}
    if training.critic_net != "residual":
        stacks |= {"critics": Stacked(cast("list[Critic]", critics)), "targets": Stacked(cast("list[Critic]", targets))}

    def adam(parameters: Iterable[nn.Parameter], weight_decay: float = training.weight_decay) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            parameters,
            lr=training.learning_rate,
            eps=training.adam_eps,
            weight_decay=weight_decay,
            fused=device.type in _FUSED_DEVICES,
            capturable=device.type == "cuda",
        )

    optimizers = {
        "actor": adam([stacks["actor"].flat]),
        "critics": adam([stacks["critics"].flat] if "critics" in stacks else critics.parameters()),
        "temperature": adam([log_temperature], weight_decay=0.0),
    }
    largest_reward = torch.zeros(len(training.tasks), device=device)
    values = (
        categorical.grid(training.value_limit, training.value_bins, device)
        if training.critic_loss == "categorical"
        else None
    )
    return Learner(
        training, device, actor, critics, targets, log_temperature, largest_reward, values, stacks, optimizers, noise
    )


def _critic(training: Training, inputs: int, init: torch.Generator) -> nn.Module:
    widths, tasks = training.critic_hidden, len(training.tasks)
    if training.critic_net == "residual":
        outputs = training.value_bins if training.critic_loss == "categorical" else 1
        return ResidualCritic(inputs, tasks, ACT_DIM, widths[0], len(widths), outputs, init)
    return Critic(inputs, ACT_DIM, widths, init, heads=tasks if training.critic_net == "heads" else 1)


def with_task(obs: Tensor, task: Tensor, num_tasks: int) -> Tensor:
    """[B, O] and [B] → [B, O + K]: the observation and the one-hot task."""
    # Not by `one_hot`, which reads the smallest and the largest task back.
    one_hot = task.unsqueeze(-1) == torch.arange(num_tasks, device=task.device)
    return torch.cat([obs, one_hot.to(obs.dtype)], dim=-1)


def act(learner: Learner, obs: npt.NDArray[np.float32], task: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """Sampled actions [N, A] for `obs` [N, O] of tasks [N]; takes from the learner's noise."""
    with torch.no_grad():
        mean, log_std = learner.actor(_observed(learner, obs, task))
        action, _ = sample(mean, log_std, sent(normal(mean.shape[0], learner.noise), learner.device))
    actions: npt.NDArray[np.float32] = action.cpu().numpy()
    return actions


def act_greedily(
    learner: Learner, obs: npt.NDArray[np.float32], task: npt.NDArray[np.integer]
) -> npt.NDArray[np.float32]:
    """The deterministic actions tanh(mean), [N, A]; changes nothing in the learner."""
    with torch.no_grad():
        mean, _ = learner.actor(_observed(learner, obs, task))
    actions: npt.NDArray[np.float32] = torch.tanh(mean).cpu().numpy()
    return actions


def update(learner: Learner, batch: Batch) -> Tensor:
    """One step of critics, actor, temperatures and targets. Returns `METRICS` as a tensor [5] on the device."""
    return learn(learner, prepare(batch, learner.noise, learner.device))


@torch.no_grad()
def learn(learner: Learner, inputs: Inputs) -> Tensor:
    """`update` from where everything is on the device: nothing in here reads a number back, or draws one."""
    reward, task = inputs.reward, inputs.task
    x, next_x = (with_task(seen, task, learner.num_tasks) for seen in (inputs.obs, inputs.next_obs))
    temperature = learner.log_temperature.detach().exp()[task]

    if learner.values is None:
        goal = td_target(learner, reward, inputs.terminated, next_x, temperature, inputs.then_noise)
        critic_loss, q = critic_step(learner, x, inputs.action, goal)
    else:
        reward = scaled(learner, task, reward)
        likely = td_distribution(learner, reward, inputs.terminated, next_x, temperature, inputs.then_noise)
        critic_loss, q = categorical_step(learner, x, inputs.action, likely)
    actor_loss, log_density = actor_step(learner, x, temperature, inputs.now_noise)
    temperature_loss = temperature_step(learner, task, log_density)
    move_targets(learner)
    return torch.stack([critic_loss, actor_loss, temperature_loss, q, -log_density.mean()])


@torch.no_grad()
def td_target(
    learner: Learner, reward: Tensor, terminated: Tensor, next_x: Tensor, temperature: Tensor, noise: Tensor
) -> Tensor:
    """The target r + gamma (1 - terminated)(min Q'(s', a') - temperature log pi(a'|s')), [B].

    Only a true termination stops the sum. An episode that was cut by the horizon goes on in the mind: its `next_obs`
    is the state that the cut left, not the next episode's first.
    """
    then = drawn(learner, next_x, noise)[0]
    if "targets" in learner.stacks:
        both, _ = plain_values(learner, "targets", next_x, then.action)
    else:
        both = outputs_of(learner.targets, next_x, then.action).squeeze(-1)
    return reward + learner.training.gamma * (1 - terminated) * (both.amin(0) - temperature * then.log_density)


@torch.no_grad()
def critic_step(learner: Learner, x: Tensor, action: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Both critics towards `goal` [B]: (the sum of their mean squared errors, the mean Q)."""
    if "critics" not in learner.stacks:
        with torch.enable_grad():
            q = outputs_of(learner.critics, x, action).squeeze(-1)
            loss = (q - goal).square().mean(dim=1).sum()
        _descend(learner, loss)
        return loss.detach(), q.detach().mean()
    q, layers = plain_values(learner, "critics", x, action)
    gap = q - goal
    learner.stacks["critics"].backward(layers, (2 / len(goal) * gap).unsqueeze(-1) * chosen(learner, x))
    _step(learner, "critics", [learner.stacks["critics"].flat])
    return gap.square().mean(dim=1).sum(), q.mean()


def plain_values(learner: Learner, which: str, x: Tensor, action: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Q of both plain "critics" or "targets": ([2, B], the values of their layers)."""
    layers = learner.stacks[which].forward(torch.cat([x, action], dim=-1))
    return (layers[-1] * chosen(learner, x)).sum(-1), layers


def chosen(learner: Learner, x: Tensor) -> Tensor:
    """[B, outputs]: 1 for the output of a plain critic that is Q for the row's task, else 0."""
    first = cast("Critic", learner.critics[0])
    return first.chosen(x)


def outputs_of(critics: nn.ModuleList, x: Tensor, action: Tensor) -> Tensor:
    """[2, B, outputs] of residual critics or targets."""
    return torch.stack([critic(x, action) for critic in critics])


def drawn(learner: Learner, x: Tensor, noise: Tensor) -> tuple[Draw, list[Tensor]]:
    """Actions for `x` [B, O + K] by standard normal `noise` [B, A], and the values of the actor's layers."""
    layers = learner.stacks["actor"].forward(x)
    return draw(layers[-1][0], noise), layers


@torch.no_grad()
def scaled(learner: Learner, task: Tensor, reward: Tensor) -> Tensor:
    """`reward` [B] such that no discounted sum of its task's rewards so far leaves the grid; notes larger ones.

    BRC divides by the largest return that it has seen; the largest reward / (1 - gamma) bounds every return, and needs
    nothing but the batch.
    """
    learner.largest_reward.scatter_reduce_(0, task, reward.abs(), "amax")
    bound = learner.largest_reward.clamp(min=_SMALLEST_REWARD) / (1 - learner.training.gamma)
    return reward * (learner.training.value_limit / bound)[task]


@torch.no_grad()
def td_distribution(
    learner: Learner, reward: Tensor, terminated: Tensor, next_x: Tensor, temperature: Tensor, noise: Tensor
) -> Tensor:
    """As `td_target`, for categorical critics: how likely each value of the grid is, [B, bins], both averaged."""
    assert learner.values is not None  # noqa: S101 - for the type checker
    then = drawn(learner, next_x, noise)[0]
    logits = outputs_of(learner.targets, next_x, then.action)
    discount = learner.training.gamma * (1 - terminated)
    shift = reward - discount * temperature * then.log_density
    return categorical.target(torch.softmax(logits, dim=-1).mean(0), shift, discount, learner.values)


def categorical_step(learner: Learner, x: Tensor, action: Tensor, likely: Tensor) -> tuple[Tensor, Tensor]:
    """Both critics towards `likely` [B, bins]: (the sum of their mean cross-entropies, the mean Q)."""
    assert learner.values is not None  # noqa: S101 - for the type checker
    with torch.enable_grad():
        logits = outputs_of(learner.critics, x, action)
        loss = categorical.cross_entropy(logits, likely).mean(dim=1).sum()
    _descend(learner, loss)
    return loss.detach(), categorical.mean(logits.detach(), learner.values).mean()


@torch.no_grad()
def actor_step(learner: Learner, x: Tensor, temperature: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The actor towards high Q and high entropy: (the loss, the log density [B] of the actions that it drew)."""
    now, layers = drawn(learner, x, noise)
    value, by_action = value_and_slope(learner, x, now.action)
    rows = x.shape[0]
    by_output = gaussian.slope(now, -by_action / rows, temperature / rows)
    learner.stacks["actor"].backward(layers, by_output.unsqueeze(0))
    _step(learner, "actor", [learner.stacks["actor"].flat])
    return (temperature * now.log_density - value).mean(), now.log_density


@torch.no_grad()
def temperature_step(learner: Learner, task: Tensor, log_density: Tensor) -> Tensor:
    """Each task's temperature up where its entropy is below the target, down where it is above. Returns the loss.

    A shared one is as many equal numbers, which get the same gradient.
    """
    gap = log_density + learner.training.target_entropy
    of_rows = learner.log_temperature[task]
    if learner.training.shared_temperature:
        learner.log_temperature.grad = -gap.mean().expand_as(learner.log_temperature).contiguous()
    else:
        by_task = torch.zeros_like(learner.log_temperature)
        learner.log_temperature.grad = by_task.index_add_(0, task, gap, alpha=-1 / len(task))
    _step(learner, "temperature", [])
    return -(of_rows * gap).mean()


@torch.no_grad()
def move_targets(learner: Learner) -> None:
    """Each target parameter a fraction tau of the way to its critic's."""
    if "targets" in learner.stacks:
        learner.stacks["targets"].flat.lerp_(learner.stacks["critics"].flat, learner.training.tau)
        return
    for target, critic in zip(learner.targets.parameters(), learner.critics.parameters(), strict=True):
        target.lerp_(critic, learner.training.tau)


def value_and_slope(learner: Learner, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """What the actor climbs: (Q of each row [B], its derivative by the action [B, A]); the critics get no gradients."""
    if "critics" in learner.stacks:
        q, layers = plain_values(learner, "critics", x, action)
        by_inputs = slope_of_smallest(learner.stacks["critics"], layers, q, chosen(learner, x))
        return q.amin(0), by_inputs[:, -ACT_DIM:]
    with torch.enable_grad():
        free = action.detach().requires_grad_()
        outputs = outputs_of(learner.critics, x, free)
        if learner.values is None:
            value = outputs.squeeze(-1).amin(0)
        else:
            value = categorical.mean(outputs, learner.values).mean(0)
        slope = torch.autograd.grad(value.sum(), free)[0]
    return value.detach(), slope


def nets_of(learner: Learner) -> dict[str, Tensor]:
    """What playing and forking need: actor, critics, log temperatures. Copies on the CPU."""
    named = {
        **_named("actor", learner.actor.state_dict()),
        **_named("critics", learner.critics.state_dict()),
        "log_temperature": learner.log_temperature.data,
    }
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in named.items()}


def rest_of(learner: Learner) -> dict[str, Tensor]:
    """What only an exact resume needs: targets, Adam's state, the noise's state. Copies on the CPU."""
    named = _named("targets", learner.targets.state_dict())
    for name, optimizer in learner.optimizers.items():
        for index, moments in optimizer.state_dict()["state"].items():
            named |= {f"adam.{name}.{index}.{key}": value for key, value in moments.items()}
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in named.items()}
    return {**copies, "largest_reward": learner.largest_reward.to("cpu", copy=True), "noise": learner.noise.get_state()}


def load_nets(learner: Learner, nets: Mapping[str, Tensor]) -> None:
    """Put `nets_of` another learner in place. Errors: KeyError, RuntimeError where names or shapes differ."""
    learner.actor.load_state_dict(_under("actor", nets))
    learner.critics.load_state_dict(_under("critics", nets))
    learner.log_temperature.data.copy_(nets["log_temperature"])


def load_rest(learner: Learner, rest: Mapping[str, Tensor]) -> None:
    """Put `rest_of` another learner in place. Errors: KeyError, RuntimeError where names or shapes differ."""
    learner.targets.load_state_dict(_under("targets", rest))
    for name, optimizer in learner.optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in _under(f"adam.{name}", rest).items():
            index, _, moment = key.partition(".")
            state.setdefault(int(index), {})[moment] = tensor.clone()  # Adam would go on writing to ours
        groups: Any = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    learner.largest_reward.copy_(rest["largest_reward"])
    learner.noise.set_state(rest["noise"])


def _descend(learner: Learner, loss: Tensor) -> None:
    """One Adam step of residual critics."""
    parameters = list(learner.critics.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    _step(learner, "critics", parameters)


def _step(learner: Learner, name: str, parameters: Sequence[Tensor]) -> None:
    """One Adam step along the gradients of `parameters`, which are clipped first where that is asked for."""
    if learner.training.grad_clip > 0 and parameters:
        nn.utils.clip_grad_norm_(parameters, learner.training.grad_clip)
    learner.optimizers[name].step()


def _observed(learner: Learner, obs: npt.NDArray[np.float32], task: npt.NDArray[np.integer]) -> Tensor:
    tasks = sent(torch.from_numpy(task.astype(np.int64)), learner.device)
    return with_task(sent(torch.from_numpy(obs), learner.device), tasks, learner.num_tasks)


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}
