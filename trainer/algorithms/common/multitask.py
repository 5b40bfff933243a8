"""What MTSAC's update works on, its nets, and what they are like inside.

All that an update draws or reads on the host is drawn and read before it, so that the update itself is a plain function
of tensors: the host need not wait for it, a GPU can replay it, and C can make it.

Shapes: B transitions, K tasks, O observation numbers, A action numbers; x = [obs, one-hot task] is [B, O + K].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from trainer.algorithms.common.diagnostics import Diagnosis, by_task, dormant, effective_rank, norm, watched
from trainer.algorithms.common.off_policy import probe_rows
from trainer.algorithms.common.sharding import Sample
from trainer.buffers.replay import Ring
from trainer.buffers.rows import Batch
from trainer.config.algorithms import Mtsac
from trainer.config.training import Training
from trainer.envs.spaces import STATE, Box, Spaces
from trainer.errors import ConfigError
from trainer.machine.device import on_device
from trainer.nets.critics import Critic, ResidualCritic
from trainer.nets.fused import Draw, Stacked
from trainer.nets.mlp import with_task
from trainer.nets.policy import PolicyNet, PolicySpec


@dataclass(frozen=True)
class Inputs:
    """A batch of B transitions as in `buffers.rows.Batch`, and standard normal noise [B, A] for the actions that the
    update draws: `next_noise` behind `next_obs`, `current_noise` behind `obs`. All on the learner's device.
    """

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    task: Tensor
    next_noise: Tensor
    current_noise: Tensor


def inputs_of(sample: Sample, device: torch.device) -> Inputs:
    """`sample` on `device`."""
    batch, drawn = sample.batch, sample.drawn
    arrays = batch.obs[STATE], batch.next_obs[STATE], batch.action, batch.reward, batch.terminated, batch.task
    return Inputs(*(on_device(numbers, device) for numbers in (*arrays, drawn["next_noise"], drawn["current_noise"])))


def outputs_of(critics: nn.ModuleList, x: Tensor, action: Tensor) -> Tensor:
    """[2, B, outputs] of critics or targets, by torch."""
    return torch.stack([critic(x, action).float() for critic in critics])


def actor_and_critics(
    training: Training, spaces: Spaces, init: torch.Generator | None
) -> tuple[PolicyNet, nn.ModuleList]:
    """The nets of `training`, their weights drawn from `init`; None: on torch's `meta` device, to be counted."""
    is_row = set(spaces.obs) == {STATE} and len(spaces.obs[STATE].shape) == 1
    if not is_row or not isinstance(spaces.action, Box):
        raise ConfigError("algorithm.needs-a-row", env=training.env.name)
    inputs, actions = spaces.obs[STATE].shape[0] + len(spaces.tasks), spaces.action.size
    actor = PolicyNet(PolicySpec(spaces, training.network, "squashed-normal"), init)
    settings, network, tasks = cast("Mtsac", training.algorithm), training.network, len(spaces.tasks)

    def critic() -> nn.Module:
        widths = network.critic_hidden
        if network.critic_net == "residual":
            outputs = settings.value_bins if settings.critic_loss == "categorical" else 1
            return ResidualCritic(inputs, tasks, actions, widths[0], len(widths), outputs, init)
        return Critic(inputs, actions, widths, init, heads=tasks if network.critic_net == "heads" else 1)

    return actor, nn.ModuleList(critic() for _ in range(2))


class Learner(Protocol):
    """What of MTSAC its compiled engine and its diagnostics know."""

    settings: Mtsac
    seed: int
    num_tasks: int
    target_entropy: float
    policy: PolicyNet
    critics: nn.ModuleList
    log_temperature: nn.Parameter
    largest_reward: Tensor
    values: Tensor | None
    stacks: dict[str, Stacked]
    optimizers: dict[str, torch.optim.Optimizer]

    @property
    def device(self) -> torch.device:
        """Where it learns."""

    def draw(self, batch: Batch, noise: torch.Generator) -> dict[str, Tensor]:
        """For the actions behind `next_obs` and behind `obs`."""

    def drawn(self, x: Tensor, noise: Tensor) -> tuple[Draw, list[Tensor]]:
        """Actions, and the values of the actor's layers."""

    def target(self, inputs: Inputs, next_x: Tensor, temperature: Tensor, largest_reward: Tensor) -> Tensor:
        """What the critics are to say."""

    def critic_loss(self, x: Tensor, action: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """(the loss, Q [2, B])."""

    def q_value_and_gradient(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """(Q [B], its derivative by the action [B, A])."""


def diagnose(learner: Learner, replay: Ring, step: int) -> Diagnosis:
    """Measure on a probe that `step` decides. Takes nothing from the run's streams, changes nothing.

    Errors: ValueError where the replay is empty.
    """
    return measure_batch(learner, *probe_rows(replay, learner.settings.batch_size, learner.seed, step))


def measure_batch(learner: Learner, batch: Batch, noise: torch.Generator) -> Diagnosis:
    """Measure on `batch`, with `noise` (of the CPU) for the actions that are sampled.

    `nets`: for the actor and for both critics together `dormant` (the part of the hidden neurons), `norm` (of all
    parameters) and `gradient` (the norm of the loss's gradient, before any clipping); `critics_rank`: the effective
    rank of the last hidden features, the mean of both critics. `tasks`: the means over a task's rows of Q and of
    |Q - target|, in scaled returns where critics are categorical. Numbers may be NaN or infinite where the learner is.
    """
    inputs = inputs_of(Sample(batch, learner.draw(batch, noise)), learner.device)
    x = with_task(inputs.obs, inputs.task, learner.num_tasks)
    temperature = learner.log_temperature.detach().exp()[inputs.task]

    with watched(learner.critics) as seen_of_critics:
        q, target, critic_loss = _q_target_and_loss(learner, inputs, x)

    with watched([learner.policy.body]) as seen_of_actor:
        outputs = learner.policy.body(x)
    own_action, log_prob = learner.policy.distribution.sample(outputs, inputs.current_noise)
    _, gradient = learner.q_value_and_gradient(x, own_action.detach())
    actor_loss = (temperature * log_prob - (gradient * own_action).sum(-1)).mean()

    nets = {"critics_rank": sum(map(effective_rank, seen_of_critics.features)) / len(seen_of_critics.features)}
    for name, net, loss, seen in (
        ("actor", learner.policy, actor_loss, seen_of_actor),
        ("critics", learner.critics, critic_loss, seen_of_critics),
    ):
        parameters = list(net.parameters())
        nets[f"{name}_dormant"] = dormant(seen.activity)
        nets[f"{name}_norm"] = norm(parameters)
        nets[f"{name}_gradient"] = norm(torch.autograd.grad(loss, parameters))
    error = (q - target).detach().abs()
    return Diagnosis(nets, by_task(batch.task, learner.num_tasks, q=q.detach().mean(0), td_error=error.mean(0)))


@torch.no_grad()
def critic_loss_and_q(learner: Learner, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """(the critics' loss, Q of what the actor does [B]). Changes nothing."""
    x = with_task(inputs.obs, inputs.task, learner.num_tasks)
    _, _, loss = _q_target_and_loss(learner, inputs, x)
    return loss, learner.q_value_and_gradient(x, learner.drawn(x, inputs.current_noise)[0].action)[0]


def _q_target_and_loss(learner: Learner, inputs: Inputs, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(each critic's Q [2, B], the target [B], the critics' loss) of `inputs`, whose observations with their tasks are
    `x`.
    """
    next_x = with_task(inputs.next_obs, inputs.task, learner.num_tasks)
    temperature = learner.log_temperature.detach().exp()[inputs.task]
    largest = learner.largest_reward.scatter_reduce(0, inputs.task, inputs.reward.abs(), "amax")
    target = learner.target(inputs, next_x, temperature, largest)
    loss, q = learner.critic_loss(x, inputs.action, target)
    return q, target if learner.values is None else target @ learner.values, loss
