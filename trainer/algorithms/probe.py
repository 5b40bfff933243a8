"""What the nets are like inside: dead neurons, rank of the features, norms, and each task's Q and TD error.

Measured on a probe of the replay's own rows, with random streams that are made for the occasion from the seed and the
step. So it takes nothing from the run's streams and changes none of its numbers, and an interrupted run measures the
same digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.algorithms import categorical, mtsac
from trainer.algorithms.inputs import Inputs, prepare
from trainer.algorithms.mtsac import Learner
from trainer.buffers.experience import Contributed
from trainer.buffers.replay import Batch, Replay, shares
from trainer.nets.distributions import GaussianActor, sample
from trainer.nets.mlp import MLP
from trainer.nets.residual import ResidualCritic

#: A neuron whose mean activity is at most this part of its layer's mean is dormant. Sokar et al. 2023 (arXiv
#: 2302.12902) use 0 to 0.1; McLean et al. 2025 report multi-task agents at 0.1.
TAU = 0.1
#: The part of the singular values' sum that the effective rank may leave out (Kumar et al. 2021, arXiv 2010.14498).
DELTA = 0.01
#: Measured with the first row past each multiple of so many updates: it costs as much as 1.4 to 1.9 of them
#: (bench/diagnosing.py), so 0.3 to 0.4 % of the learning, whatever the nets and `metrics_interval`.
INTERVAL_UPDATES = 500
#: Rows of the probe: a batch, so that its cost follows an update's, but no more than a rank needs to be told from.
MAX_ROWS = 1024
#: The spawn key of the probe's stream; the run's others are 0 to 4 (`trainer.buffers.experience`).
_PROBE, _OF_OTHERS = 5, 6
#: Rows of one contributor in its probe: the error's mean is known to a tenth.
ROWS_OF_ONE = 128


@dataclass(frozen=True)
class Diagnosis:
    """`nets`: name → number. `tasks`: for each task "q" and "td_error", nothing where the probe has no row of it."""

    nets: dict[str, float]
    tasks: tuple[dict[str, float], ...]


def diagnose(learner: Learner, replay: Replay, step: int) -> Diagnosis:
    """Measure on a probe that `step` decides. Takes nothing from the run's streams, changes nothing.

    Errors: ValueError where the replay is empty.
    """
    training = learner.training
    words = np.random.SeedSequence(training.seed, spawn_key=(_PROBE, step))
    rng = np.random.default_rng(words)
    counts, _ = shares(min(training.batch_size, MAX_ROWS), replay.sizes, 0)
    batch = replay.pick(counts, rng)
    return measure(learner, batch, torch.Generator().manual_seed(int(rng.integers(2**62))))


def measure(learner: Learner, batch: Batch, noise: torch.Generator) -> Diagnosis:
    """Measure on `batch`, with `noise` (of the CPU) for the actions that are sampled.

    `nets`: for the actor and for both critics together `dormant` (the part of the hidden neurons), `norm` (of all
    parameters) and `gradient` (the norm of the loss's gradient, before any clipping); `critics_rank`: the effective
    rank of the last hidden features, the mean of both critics. `tasks`: the means over a task's rows of Q and of
    |Q - target|, in scaled returns where critics are categorical. Numbers may be NaN or infinite where the learner is.
    """
    twin = replace(learner, largest_reward=learner.largest_reward.clone())
    inputs = prepare(batch, noise, learner.device)
    x = mtsac.with_task(inputs.obs, inputs.task, learner.num_tasks)
    temperature = learner.log_temperature.detach().exp()[inputs.task]

    with watched(learner.critics) as seen_of_critics:
        q, goal, critic_loss = _judged(twin, inputs, x)

    with watched([learner.actor]) as seen_of_actor:
        mean, log_std = learner.actor(x)
    own_action, log_density = sample(mean, log_std, inputs.now_noise)
    _, slope = mtsac.value_and_slope(twin, x, own_action.detach())
    actor_loss = (temperature * log_density - (slope * own_action).sum(-1)).mean()

    nets = {"critics_rank": sum(map(effective_rank, seen_of_critics.features)) / len(seen_of_critics.features)}
    for name, net, loss, seen in (
        ("actor", learner.actor, actor_loss, seen_of_actor),
        ("critics", learner.critics, critic_loss, seen_of_critics),
    ):
        parameters = list(net.parameters())
        nets[f"{name}_dormant"] = dormant(seen.activity)
        nets[f"{name}_norm"] = norm(parameters)
        nets[f"{name}_gradient"] = norm(torch.autograd.grad(loss, parameters))
    error = (q - goal).detach().abs()
    return Diagnosis(nets, _by_task(batch.task, learner.num_tasks, q=q.detach().mean(0), td_error=error.mean(0)))


def td_errors(learner: Learner, batch: Batch, noise: torch.Generator) -> Tensor:
    """|Q - target| of each row of `batch`, [B], the mean of both critics; as `measure` has it. Changes nothing."""
    twin = replace(learner, largest_reward=learner.largest_reward.clone())
    inputs = prepare(batch, noise, learner.device)
    with torch.no_grad():
        q, goal, _ = _judged(twin, inputs, mtsac.with_task(inputs.obs, inputs.task, learner.num_tasks))
    return (q - goal).abs().mean(0)


def of_contributors(learner: Learner, others: Contributed, step: int) -> dict[str, float]:
    """The mean TD error of rows of each contributor, drawn alike from the tasks that it has rows of. As `diagnose`."""
    words = np.random.SeedSequence(learner.training.seed, spawn_key=(_OF_OTHERS, step))
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
    next_x = mtsac.with_task(inputs.next_obs, task, twin.num_tasks)
    temperature = twin.log_temperature.detach().exp()[task]
    outputs = torch.stack([critic(x, inputs.action) for critic in twin.critics])
    if twin.values is None:
        goal = mtsac.td_target(twin, reward, terminated, next_x, temperature, inputs.then_noise)
        q = outputs.squeeze(-1)
        return q, goal, (q - goal).square().mean(dim=1).sum()
    reward = mtsac.scaled(twin, task, reward)
    likely = mtsac.td_distribution(twin, reward, terminated, next_x, temperature, inputs.then_noise)
    q = categorical.mean(outputs, twin.values)
    return q, likely @ twin.values, categorical.cross_entropy(outputs, likely).mean(dim=1).sum()


@dataclass
class Seen:
    """What went through some nets: the mean activity |h| of each hidden layer's neurons, [width] each, over the rows,
    and the last hidden features of each net, [B, width].
    """

    activity: list[Tensor] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(nets: Iterable[nn.Module]) -> Iterator[Seen]:
    """While it lasts, what goes through `nets` is seen."""
    seen = Seen()

    def after_relu(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        seen.activity.append(torch.relu(output.detach()).mean(0))

    def before_last(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.features.append(inputs[0].detach())

    hooks = []
    for net in nets:
        *hidden, last = layers(net)
        hooks += [layer.register_forward_hook(after_relu) for layer in hidden]
        hooks.append(last.register_forward_pre_hook(before_last))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def layers(net: nn.Module) -> list[nn.Module]:
    """The modules of `net` whose output goes through a ReLU, then the one that makes its outputs.

    Errors: TypeError for a net that is none of ours.
    """
    if isinstance(net, GaussianActor):
        return layers(net.body)
    if isinstance(net, MLP):
        return list(net.layers)
    if isinstance(net, ResidualCritic):
        return [net.norm, *(block.get_submodule("inner_norm") for block in net.blocks), net.last]
    raise TypeError(f"{type(net).__name__} is no net of this trainer")


def dormant(activity: Iterable[Tensor]) -> float:
    """The part of all neurons whose activity is at most `TAU` of their layer's mean; `activity`: [width] a layer.

    A layer in which nothing fires is dormant as a whole.
    """
    asleep = [one <= TAU * one.mean() for one in activity]
    return float(torch.cat(asleep).cpu().double().mean())  # there are no doubles on a Mac's GPU


def effective_rank(features: Tensor) -> float:
    """How many singular values of `features` [B, d] make up all but `DELTA` of their sum: 0 to min(B, d).

    NaN where a feature is not finite. By the eigenvalues of the smaller product of the features with themselves, in
    double precision: single values below 1e-8 of the largest are lost, which counts for nothing here.
    """
    exact = features.cpu().double()
    if not bool(torch.isfinite(exact).all()):
        return float("nan")
    rows, width = exact.shape
    squared = torch.linalg.eigvalsh(exact @ exact.T if rows < width else exact.T @ exact)
    values = squared.clamp(min=0).sqrt().flip(0)
    total = values.sum()
    if total == 0:
        return 0.0
    return float((values.cumsum(0) < (1 - DELTA) * total).sum() + 1)


def norm(tensors: Iterable[Tensor]) -> float:
    """The Euclidean norm of all `tensors` together."""
    return float(torch.stack([tensor.detach().norm() for tensor in tensors]).norm())


def _by_task(task: npt.NDArray[np.int64], num_tasks: int, **values: Tensor) -> tuple[dict[str, float], ...]:
    """The mean of each of `values` [B] over each task's rows."""
    rows = np.bincount(task, minlength=num_tasks)
    sums = {name: np.bincount(task, value.cpu().numpy(), num_tasks) for name, value in values.items()}
    return tuple(
        {name: float(total[k] / rows[k]) for name, total in sums.items()} if rows[k] else {} for k in range(num_tasks)
    )
