"""Multi-task soft actor-critic: one actor, twin critics, learned entropy temperatures. Read it top to bottom.

Haarnoja et al. 2018 (SAC with a learned temperature). Each task has a temperature of its own, as in Meta-World's MT-SAC
(Yu et al. 2020), or all have the same (`shared_temperature`, as in BRC, Nauman et al. 2025): then the entropy of all
tasks together is steered, and a task that is solved may leave its part to one that is not. The task is seen by every
net as a one-hot vector after the observation.

The critics are of one of two kinds. Squared: each gives a number, learns by squared error, and the smaller of the two
counts. Categorical (`trainer.algorithms.common.categorical`): each gives a distribution over a fixed grid, learns by
cross-entropy, the average of the two counts, and rewards are scaled task by task so that returns stay on the grid.

Shapes: B transitions, K tasks, O observation numbers, A action numbers; x = [obs, one-hot task] is [B, O + K].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from trainer.algorithms.common import categorical
from trainer.algorithms.common.descents import Descent, descend_all
from trainer.algorithms.common.tensors import take_step
from trainer.algorithms.mtsac.inputs import Inputs, prepare
from trainer.algorithms.mtsac.learner import Learner
from trainer.buffers.rows import Batch
from trainer.nets import fused
from trainer.nets.critic import Critic
from trainer.nets.fused import Draw, draw, min_q_input_gradient
from trainer.nets.inputs import with_task

#: What an update measures, in the order of the tensor that `update` returns.
METRICS = ("critic_loss", "actor_loss", "temperature_loss", "q", "entropy")

#: Rewards are in [0, 10]: below this a task has shown none worth scaling by.
_SMALLEST_REWARD = 1e-3


def update(learner: Learner, batch: Batch) -> Tensor:
    """One step of critics, actor, temperatures and targets. Returns `METRICS` as a tensor [5] on the device."""
    return learn(learner, prepare(batch, learner.noise, learner.device))


@torch.no_grad()
def learn(learner: Learner, inputs: Inputs) -> Tensor:
    """`update` from where everything is on the device: nothing in here reads a number back, or draws one."""
    note_rewards(learner, inputs.task, inputs.reward)
    return conclude(learner, descend_all(descents(learner, inputs), partial(descend, learner)))


@torch.no_grad()
def descents(learner: Learner, inputs: Inputs) -> Iterator[Descent]:
    """The steps of an update: the critics; then the actor and the temperatures."""
    reward, task = inputs.reward, inputs.task
    x, next_x = (with_task(seen, task, learner.num_tasks) for seen in (inputs.obs, inputs.next_obs))
    temperature = learner.log_temperature.detach().exp()[task]

    if learner.values is None:
        target = td_target(learner, reward, inputs.terminated, next_x, temperature, inputs.next_noise)
        critics, critic_loss, q = critic_gradient(learner, x, inputs.action, target)
    else:
        reward = scaled(learner, task, reward)
        target = td_distribution(learner, reward, inputs.terminated, next_x, temperature, inputs.next_noise)
        critics, critic_loss, q = categorical_gradient(learner, x, inputs.action, target)
    yield Descent({"critics": critics}, {"critic_loss": critic_loss, "q": q})

    actor, actor_loss, log_prob = actor_gradient(learner, x, temperature, inputs.current_noise)
    temperatures, temperature_loss = temperature_gradient(learner, task, log_prob)
    measured = {"actor_loss": actor_loss, "temperature_loss": temperature_loss, "entropy": -log_prob.mean()}
    yield Descent({"actor": actor, "temperature": temperatures}, measured)


@torch.no_grad()
def descend(learner: Learner, name: str, gradients: Sequence[Tensor]) -> None:
    """One Adam step of "critics", "actor" or "temperature"; nets' gradients are clipped where that is asked for."""
    optimizer = learner.optimizers[name]
    parameters: list[nn.Parameter] = optimizer.param_groups[0]["params"]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if name in learner.stacks:
            cast("Tensor", parameter.grad).copy_(gradient)  # the modules' own are windows into it
        else:
            parameter.grad = gradient
    if learner.settings.grad_clip > 0 and name != "temperature":
        nn.utils.clip_grad_norm_(parameters, learner.settings.grad_clip)
    take_step(optimizer)


@torch.no_grad()
def conclude(learner: Learner, measured: Mapping[str, Tensor]) -> Tensor:
    """Behind the steps: the targets move. Returns `METRICS` as a tensor [5]."""
    move_targets(learner)
    return torch.stack([measured[name] for name in METRICS])


@torch.no_grad()
def td_target(
    learner: Learner, reward: Tensor, terminated: Tensor, next_x: Tensor, temperature: Tensor, noise: Tensor
) -> Tensor:
    """The target r + gamma (1 - terminated)(min Q'(s', a') - temperature log pi(a'|s')), [B].

    Only a true termination stops the sum. An episode that was cut by the horizon goes on in the mind: its `next_obs`
    is the state that the cut left, not the next episode's first.
    """
    following = drawn(learner, next_x, noise)[0]
    if "targets" in learner.stacks:
        both, _ = plain_values(learner, "targets", next_x, following.action)
    else:
        both = outputs_of(learner.targets, next_x, following.action).squeeze(-1)
    return reward + learner.settings.gamma * (1 - terminated) * (both.amin(0) - temperature * following.log_prob)


@torch.no_grad()
def critic_gradient(
    learner: Learner, x: Tensor, action: Tensor, target: Tensor
) -> tuple[Sequence[Tensor], Tensor, Tensor]:
    """Both critics towards `target` [B]: (the gradients, the sum of their mean squared errors, the mean Q)."""
    if "critics" not in learner.stacks:
        with torch.enable_grad():
            q = outputs_of(learner.critics, x, action).squeeze(-1)
            loss = (q - target).square().mean(dim=1).sum()
        return _by_torch(learner, loss), loss.detach(), q.detach().mean()
    q, layers = plain_values(learner, "critics", x, action)
    td_error = q - target
    learner.stacks["critics"].backward(layers, (2 / len(target) * td_error).unsqueeze(-1) * chosen(learner, x))
    return _of_stack(learner, "critics"), td_error.square().mean(dim=1).sum(), q.mean()


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
    return torch.stack([critic(x, action).float() for critic in critics])


def drawn(learner: Learner, x: Tensor, noise: Tensor) -> tuple[Draw, list[Tensor]]:
    """Actions for `x` [B, O + K] by standard normal `noise` [B, A], and the values of the actor's layers."""
    layers = learner.stacks["actor"].forward(x)
    return draw(layers[-1][0], noise), layers


@torch.no_grad()
def note_rewards(learner: Learner, task: Tensor, reward: Tensor) -> None:
    """Remember the largest |`reward`| [B] of each task, where critics are categorical."""
    if learner.values is not None:
        learner.largest_reward.scatter_reduce_(0, task, reward.abs(), "amax")


@torch.no_grad()
def scaled(learner: Learner, task: Tensor, reward: Tensor) -> Tensor:
    """`reward` [B] such that no discounted sum of its task's rewards that were noted leaves the grid.

    BRC divides by the largest return that it has seen; the largest reward / (1 - gamma) bounds every return, and needs
    nothing but the batch.
    """
    bound = learner.largest_reward.clamp(min=_SMALLEST_REWARD) / (1 - learner.settings.gamma)
    return reward * (learner.settings.value_limit / bound)[task]


@torch.no_grad()
def td_distribution(
    learner: Learner, reward: Tensor, terminated: Tensor, next_x: Tensor, temperature: Tensor, noise: Tensor
) -> Tensor:
    """As `td_target`, for categorical critics: the probability of each value of the grid, [B, bins], both averaged."""
    assert learner.values is not None  # noqa: S101 - for the type checker
    following = drawn(learner, next_x, noise)[0]
    logits = outputs_of(learner.targets, next_x, following.action)
    discount = learner.settings.gamma * (1 - terminated)
    shift = reward - discount * temperature * following.log_prob
    return categorical.target(torch.softmax(logits, dim=-1).mean(0), shift, discount, learner.values)


def categorical_gradient(
    learner: Learner, x: Tensor, action: Tensor, target: Tensor
) -> tuple[Sequence[Tensor], Tensor, Tensor]:
    """Both critics towards `target` [B, bins]: (the gradients, the sum of their mean cross-entropies, the mean Q)."""
    assert learner.values is not None  # noqa: S101 - for the type checker
    with torch.enable_grad():
        logits = outputs_of(learner.critics, x, action)
        loss = categorical.cross_entropy(logits, target).mean(dim=1).sum()
    return _by_torch(learner, loss), loss.detach(), categorical.mean(logits.detach(), learner.values).mean()


@torch.no_grad()
def actor_gradient(
    learner: Learner, x: Tensor, temperature: Tensor, noise: Tensor
) -> tuple[Sequence[Tensor], Tensor, Tensor]:
    """The actor towards high Q and high entropy: (the gradients, the loss, the log density [B] of the actions that it
    drew).
    """
    current, layers = drawn(learner, x, noise)
    value, action_gradient = value_and_gradient(learner, x, current.action)
    rows = x.shape[0]
    output_gradient = fused.output_gradient(current, -action_gradient / rows, temperature / rows)
    learner.stacks["actor"].backward(layers, output_gradient.unsqueeze(0))
    loss = (temperature * current.log_prob - value).mean()
    return _of_stack(learner, "actor"), loss, current.log_prob


@torch.no_grad()
def temperature_gradient(learner: Learner, task: Tensor, log_prob: Tensor) -> tuple[Sequence[Tensor], Tensor]:
    """Each task's temperature up where its entropy is below the target, down where it is above: (the gradient, the
    loss).

    A shared one is as many equal numbers, which get the same gradient.
    """
    missing_entropy = log_prob + learner.target_entropy
    of_rows = learner.log_temperature[task]
    if learner.settings.shared_temperature:
        gradient = -missing_entropy.mean().expand_as(learner.log_temperature).contiguous()
    else:
        by_task = torch.zeros_like(learner.log_temperature)
        gradient = by_task.index_add_(0, task, missing_entropy, alpha=-1 / len(task))
    return [gradient], -(of_rows * missing_entropy).mean()


@torch.no_grad()
def move_targets(learner: Learner) -> None:
    """Each target parameter a fraction tau of the way to its critic's."""
    if "targets" in learner.stacks:
        learner.stacks["targets"].flat.lerp_(learner.stacks["critics"].flat, learner.settings.tau)
        return
    for target, critic in zip(learner.targets.parameters(), learner.critics.parameters(), strict=True):
        target.lerp_(critic, learner.settings.tau)


def value_and_gradient(learner: Learner, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """What the actor climbs: (Q of each row [B], its derivative by the action [B, A]); the critics get no gradients."""
    if "critics" in learner.stacks:
        q, layers = plain_values(learner, "critics", x, action)
        input_gradient = min_q_input_gradient(learner.stacks["critics"], layers, q, chosen(learner, x))
        return q.amin(0), input_gradient[:, -action.shape[1] :]
    with torch.enable_grad():
        free = action.detach().requires_grad_()
        outputs = outputs_of(learner.critics, x, free)
        if learner.values is None:
            value = outputs.squeeze(-1).amin(0)
        else:
            value = categorical.mean(outputs, learner.values).mean(0)
        gradient = torch.autograd.grad(value.sum(), free)[0]
    return value.detach(), gradient


def _of_stack(learner: Learner, name: str) -> list[Tensor]:
    """The gradient that a net's `backward` left, of all of it together."""
    return [cast("Tensor", learner.stacks[name].flat.grad)]


def _by_torch(learner: Learner, loss: Tensor) -> Sequence[Tensor]:
    """The gradients of residual critics."""
    return torch.autograd.grad(loss, list(learner.critics.parameters()))
