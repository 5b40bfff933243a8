"""The losses of MTSAC on a probe, and what `trainer.algorithms.common.diagnostics` makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.common import categorical
from trainer.algorithms.common.diagnostics import Diagnosis, by_task, dormant, effective_rank, norm, watched
from trainer.algorithms.common.offpolicy import probe
from trainer.algorithms.mtsac.inputs import Inputs, prepare
from trainer.algorithms.mtsac.learner import Learner
from trainer.algorithms.mtsac.update import drawn, note_rewards, scaled, td_distribution, td_target, value_and_gradient
from trainer.buffers.contributed import Contributed
from trainer.buffers.replay import Ring, shares
from trainer.buffers.rows import Batch
from trainer.nets.inputs import with_task
from trainer.streams import RandomStream, seeds_of

#: Rows of one contributor in its probe: the error's mean is known to a tenth.
ROWS_OF_ONE = 128


def diagnose(learner: Learner, replay: Ring, step: int) -> Diagnosis:
    """Measure on a probe that `step` decides. Takes nothing from the run's streams, changes nothing.

    Errors: ValueError where the replay is empty.
    """
    return measure_batch(learner, *probe(replay, learner.settings.batch_size, learner.seed, step))


def measure_batch(learner: Learner, batch: Batch, noise: torch.Generator) -> Diagnosis:
    """Measure on `batch`, with `noise` (of the CPU) for the actions that are sampled.

    `nets`: for the actor and for both critics together `dormant` (the part of the hidden neurons), `norm` (of all
    parameters) and `gradient` (the norm of the loss's gradient, before any clipping); `critics_rank`: the effective
    rank of the last hidden features, the mean of both critics. `tasks`: the means over a task's rows of Q and of
    |Q - target|, in scaled returns where critics are categorical. Numbers may be NaN or infinite where the learner is.
    """
    twin = replace(learner, largest_reward=learner.largest_reward.clone())
    inputs = prepare(batch, noise, learner.device)
    x = with_task(inputs.obs, inputs.task, learner.num_tasks)
    temperature = learner.log_temperature.detach().exp()[inputs.task]

    with watched(learner.critics) as seen_of_critics:
        q, target, critic_loss = _judged(twin, inputs, x)

    with watched([learner.actor.body]) as seen_of_actor:
        outputs = learner.actor.body(x)
    own_action, log_prob = learner.actor.distribution.sample(outputs, inputs.current_noise)
    _, gradient = value_and_gradient(twin, x, own_action.detach())
    actor_loss = (temperature * log_prob - (gradient * own_action).sum(-1)).mean()

    nets = {"critics_rank": sum(map(effective_rank, seen_of_critics.features)) / len(seen_of_critics.features)}
    for name, net, loss, seen in (
        ("actor", learner.actor, actor_loss, seen_of_actor),
        ("critics", learner.critics, critic_loss, seen_of_critics),
    ):
        parameters = list(net.parameters())
        nets[f"{name}_dormant"] = dormant(seen.activity)
        nets[f"{name}_norm"] = norm(parameters)
        nets[f"{name}_gradient"] = norm(torch.autograd.grad(loss, parameters))
    error = (q - target).detach().abs()
    return Diagnosis(nets, by_task(batch.task, learner.num_tasks, q=q.detach().mean(0), td_error=error.mean(0)))


def td_errors(learner: Learner, batch: Batch, noise: torch.Generator) -> Tensor:
    """|Q - target| of each row of `batch`, [B], the mean of both critics, as in `measure_batch`. Changes nothing."""
    twin = replace(learner, largest_reward=learner.largest_reward.clone())
    inputs = prepare(batch, noise, learner.device)
    with torch.no_grad():
        q, target, _ = _judged(twin, inputs, with_task(inputs.obs, inputs.task, learner.num_tasks))
    return (q - target).abs().mean(0)


def loss_and_worth(learner: Learner, batch: Batch, noise: torch.Generator) -> tuple[Tensor, Tensor]:
    """(the critics' loss, Q of what the actor does [B]) of `batch`, as in `measure_batch`. Changes nothing."""
    twin = replace(learner, largest_reward=learner.largest_reward.clone())
    inputs = prepare(batch, noise, learner.device)
    with torch.no_grad():
        x = with_task(inputs.obs, inputs.task, learner.num_tasks)
        _, _, loss = _judged(twin, inputs, x)
        action = drawn(twin, x, inputs.current_noise)[0].action
        return loss, value_and_gradient(twin, x, action)[0]


def of_contributors(learner: Learner, others: Contributed, step: int) -> dict[str, float]:
    """The mean TD error of rows of each contributor, drawn alike from the tasks that it has rows of. As `diagnose`."""
    words = seeds_of(learner.seed, RandomStream.OTHERS_PROBE, step)
    rng = np.random.default_rng(words)
    found = {}
    for number, who in enumerate(others.sources):
        counts = np.zeros_like(others.sizes)
        if not others.sizes[number].sum():
            continue
        counts[number], _ = shares(ROWS_OF_ONE, others.sizes[number], 0)
        batch = others.pick(counts, rng)
        noise = torch.Generator().manual_seed(int(rng.integers(2**62)))
        found[who] = float(td_errors(learner, batch, noise).mean())
    return found


def _judged(twin: Learner, inputs: Inputs, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(each critic's Q [C, B], the target [B], the critics' loss) of `inputs`, whose observations with their tasks are
    `x`. `twin`: a learner that may be changed.
    """
    task, reward, terminated = inputs.task, inputs.reward, inputs.terminated
    next_x = with_task(inputs.next_obs, task, twin.num_tasks)
    temperature = twin.log_temperature.detach().exp()[task]
    outputs = torch.stack([critic(x, inputs.action) for critic in twin.critics])
    if twin.values is None:
        target = td_target(twin, reward, terminated, next_x, temperature, inputs.next_noise)
        q = outputs.squeeze(-1)
        return q, target, (q - target).square().mean(dim=1).sum()
    note_rewards(twin, task, reward)
    reward = scaled(twin, task, reward)
    target = td_distribution(twin, reward, terminated, next_x, temperature, inputs.next_noise)
    q = categorical.mean(outputs, twin.values)
    return q, target @ twin.values, categorical.cross_entropy(outputs, target).mean(dim=1).sum()
