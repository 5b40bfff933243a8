"""Everything that a run is made of between two vector steps, one vector step of it, and its way into a checkpoint.

Nothing in here looks at a clock, at what was saved, or at how often the run was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.algorithms import mtsac
from trainer.algorithms.mtsac import Learner
from trainer.algorithms.probe import INTERVAL_UPDATES, diagnose, of_contributors
from trainer.algorithms.recorded import KERNELS, Updates
from trainer.buffers.experience import Contributed, parts
from trainer.buffers.replay import Batch, Replay, joined, shares
from trainer.checkpoints.checkpoint import Contents
from trainer.config import Training
from trainer.envs.step import ACT_DIM, F32, I32, Observed, Step, VectorState
from trainer.errors import NotFiniteError
from trainer.history.metrics import Meter

#: Spawn keys of the numpy streams; the learner's own are 0 and 1 (`mtsac.create`).
_SAMPLING, _EXPLORATION = 2, 3


class Envs(Protocol):
    """What the loop needs of `trainer.envs.vector.VectorEnv`."""

    num_envs: int

    @property
    def stepping(self) -> dict[str, str]:
        """Task name → what steps it."""

    def reset(self) -> Observed:
        """Start afresh."""

    def step_async(self, actions: F32) -> None:
        """Begin to act in every environment."""

    def step_wait(self) -> Step:
        """What came of it."""

    def snapshot(self) -> VectorState:
        """Everything that `restore` needs."""

    def restore(self, state: VectorState) -> Observed:
        """Go on from there."""

    def close(self) -> None:
        """End it."""


@dataclass
class RunState:
    """A run at a barrier.

    `updater` makes the learner's updates, in a way that changes no number of the run. `owed`: the part of an update
    that the transitions so far have earned and not yet got. `wanted`: the steps that were chosen for an evaluation,
    ascending; which are made is for `trainer.evaluation` to know. `measured`: metrics of updates on their way to the
    meter (left on the device, so that an update waits for no copy). `contributed`: what others sent in, None until the
    first of it.
    """

    training: Training
    learner: Learner
    updater: Updates
    replay: Replay
    envs: Envs
    obs: F32
    task: I32
    sampling: np.random.Generator
    exploration: np.random.Generator
    meter: Meter
    step: int = 0
    updates: int = 0
    owed: Fraction = Fraction(0)
    wanted: list[int] = field(default_factory=list)
    contributed: Contributed | None = None
    measured: list[Tensor] = field(default_factory=list)


def fresh(training: Training, device: torch.device, envs: Envs, way: str = KERNELS) -> RunState:
    """A run at step 0. `way`: see `trainer.algorithms.recorded`."""
    observed = envs.reset()
    learner = mtsac.create(training, device)
    return RunState(
        training=training,
        learner=learner,
        updater=Updates(learner, way),
        replay=Replay(training.buffer_size, len(training.tasks)),
        envs=envs,
        obs=observed.obs,
        task=observed.task,
        sampling=np.random.default_rng(np.random.SeedSequence(training.seed, spawn_key=(_SAMPLING,))),
        exploration=np.random.default_rng(np.random.SeedSequence(training.seed, spawn_key=(_EXPLORATION,))),
        meter=Meter(mtsac.METRICS, training.tasks),
    )


def resumed(
    training: Training,
    device: torch.device,
    envs: Envs,
    contents: Contents,
    replay: Replay,
    contributed: Contributed | None = None,
    way: str = KERNELS,
) -> RunState:
    """A run at the barrier that `contents` was captured at; random streams are put back last."""
    saved = contents.state
    observed = envs.restore(VectorState(dict(contents.envs), saved["envs"]))
    learner = mtsac.create(training, device)
    mtsac.load_nets(learner, contents.nets)
    mtsac.load_rest(learner, contents.learner)
    state = RunState(
        training=training,
        learner=learner,
        updater=Updates(learner, way),
        replay=replay,
        envs=envs,
        obs=observed.obs,
        task=observed.task,
        sampling=np.random.default_rng(),
        exploration=np.random.default_rng(),
        meter=Meter(mtsac.METRICS, training.tasks),
        step=contents.step,
        updates=saved["updates"],
        owed=Fraction(*saved["owed"]),
        wanted=list(saved["wanted"]),
        contributed=contributed,
    )
    state.meter.load_state_dict(saved["meter"])
    state.sampling.bit_generator.state = saved["sampling"]
    state.exploration.bit_generator.state = saved["exploration"]
    return state


def advance(state: RunState) -> None:
    """One vector step: act; learn from what is in the replay while the environments step; remember.

    So the updates that a vector step earns are made during the next one, from a replay that has its rows; whether
    stepping and learning really run side by side changes no number.

    A loss that is not finite makes the actor so, and that is noticed here, at the next step. Errors: NotFiniteError,
    EnvError.
    """
    training, before = state.training, state.step
    if before < training.random_steps:
        actions = state.exploration.uniform(-1, 1, (state.envs.num_envs, ACT_DIM)).astype(np.float32)
    else:
        actions = mtsac.act(state.learner, state.obs, state.task)
        if not np.isfinite(actions).all():
            drain(state)  # which says more, where a loss was not finite
            raise NotFiniteError(f"the actor's actions are not finite at step {before}", what=["actor"])
    state.envs.step_async(actions)
    learn(state)
    step = state.envs.step_wait()
    state.replay.add(
        task=step.task,
        obs=state.obs,
        action=actions,
        reward=step.reward,
        next_obs=step.next_obs,
        terminated=step.terminated,
    )
    state.meter.add_episodes(step.finished, step.task, step.episode_return, step.episode_success)
    state.obs, state.task = step.obs, step.next_task
    state.step += state.envs.num_envs
    state.owed += earned(before, state.step, training.random_steps, training.updates_per_step)


def learn(state: RunState) -> None:
    """The updates that are owed."""
    while state.owed >= 1:
        state.measured.append(state.updater.update(draw(state)))
        state.owed -= 1
        state.updates += 1


def draw(state: RunState) -> Batch:
    """A batch: the run's own rows and, where there are any, a bounded share of what others sent in, task by task.

    Each ring has a random stream of its own, so one that is empty changes nothing.
    """
    own, others = state.replay, state.contributed
    counts = own.deal(state.training.batch_size)
    if others is None or not others.ring_rows:
        return own.pick(counts, state.sampling)
    taken = others.part_of(counts, own.sizes)
    return joined(own.pick(counts - taken.sum(axis=0), state.sampling), others.pick(taken))


def earned(before: int, after: int, random_steps: int, updates_per_step: float) -> Fraction:
    """Updates that the transitions in (before, after] earn, exactly: 0.1 is one tenth, not its binary neighbour."""
    return max(0, after - max(before, random_steps)) * Fraction(str(updates_per_step))


def crossed(before: int, after: int, interval: int) -> bool:
    """Whether a multiple of `interval` lies in (before, after]: what makes a vector step a barrier. 0: never."""
    return interval > 0 and after // interval > before // interval


def drain(state: RunState) -> None:
    """Hand the updates' measurements to the meter. Errors: NotFiniteError, at the first that is not finite."""
    first = state.updates - len(state.measured) + 1
    for number, values in enumerate(torch.stack(state.measured).tolist() if state.measured else (), first):
        wrong = [name for name, value in zip(mtsac.METRICS, values, strict=True) if not math.isfinite(value)]
        if wrong:
            where = f"at update {number}, before step {state.step}"
            raise NotFiniteError(f"a loss is not finite {where}: {', '.join(wrong)}", what=wrong, update=number)
        state.meter.add_update(values)
    state.measured.clear()


def row(state: RunState) -> dict[str, Any]:
    """The row of metrics that ends here; the sums start anew. Errors: NotFiniteError.

    In the first row past each multiple of `INTERVAL_UPDATES` updates there is more, from `trainer.algorithms.probe`:
    `diagnostics` of the nets, and `q` and `td_error` of each task.
    `contributed` is in it once others sent something in: rows in the ring, their share of a batch now, segments taken
    since the row before and how many steps behind their policies were; with the diagnostics each one's `td_error`.
    """
    drain(state)
    before = state.updates - state.meter.updates
    value = state.meter.row(state.step, state.learner.log_temperature.detach().exp().tolist())
    if crossed(before, state.updates, INTERVAL_UPDATES):
        found = diagnose(state.learner, state.replay, state.step)
        value["diagnostics"] = _readable(found.nets)
        for of_task, measured in zip(value["tasks"].values(), found.tasks, strict=True):
            of_task.update(_readable(measured))
    others = state.contributed
    if others is not None:
        own, size = state.replay, state.training.batch_size
        taken = parts(shares(size, own.sizes, own.turn)[0], own.sizes, others.sizes).sum()
        value["contributed"] = {"rows": others.ring_rows, "share": round(float(taken) / size, 4), **others.lag_row()}
        if "diagnostics" in value:
            value["contributed"]["td_error"] = _readable(of_contributors(state.learner, others, state.step))
    return value


def _readable(values: Mapping[str, float]) -> dict[str, float]:
    """Six digits of each, which say all that a probe can; without those that are not finite, which JSON has no word
    for (whether a training goes on is for its losses and parameters to say).
    """
    return {name: float(f"{value:.6g}") for name, value in values.items() if math.isfinite(value)}


def capture(state: RunState, numeric: Mapping[str, Any]) -> Contents:
    """A checkpoint's contents, copied, so that the run may go on at once. Changes no number of the run.

    `numeric`: the choices that bit equality also depends on. Errors: NotFiniteError.
    """
    drain(state)
    nets = mtsac.nets_of(state.learner)
    for name, tensor in nets.items():
        if not bool(torch.isfinite(tensor).all()):
            raise NotFiniteError(f"{name} is not finite at step {state.step}", what=[name])
    envs = state.envs.snapshot()
    others = {"contributed": state.contributed.state_dict()} if state.contributed is not None else {}
    return Contents(
        step=state.step,
        nets=nets,
        learner=mtsac.rest_of(state.learner),
        envs=envs.arrays,
        state={
            "updates": state.updates,
            "owed": [state.owed.numerator, state.owed.denominator],
            "wanted": list(state.wanted),
            "replay": {"counts": state.replay.counts.tolist(), "turn": state.replay.turn},
            "meter": state.meter.state_dict(),
            "numeric": dict(numeric),
            "envs": envs.meta,
            "sampling": state.sampling.bit_generator.state,
            "exploration": state.exploration.bit_generator.state,
            **others,
        },
    )


def greedy(state: RunState) -> Any:
    """The deterministic policy as `evaluation.protocol.evaluate` wants it; it leaves every random stream alone."""

    def act(obs: F32, task: I32) -> npt.NDArray[np.float32]:
        return mtsac.act_greedily(state.learner, obs, task)

    return act
