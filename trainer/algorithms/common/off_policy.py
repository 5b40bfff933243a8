"""What algorithms share that learn from kept transitions: the replay, the updates that are owed, the first actions.

They act at random first. Each transition after that earns a part of an update; updates are made beside the stepping.

`algorithm.shards` cuts the batch of an update into V parts, each differentiated by itself. Where several ranks share
them (`trainer.machine.group`), rank 0 alone has environments, rows and random streams: for each update it sends the
batch with all that is drawn for it, and each rank differentiates its own shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.base import Context
from trainer.algorithms.common.sharding import OptimizerStep, Sample, in_step, take_steps
from trainer.buffers.frames import FrameReplay
from trainer.buffers.nstep import NStep
from trainer.buffers.replay import Ring, shares
from trainer.buffers.rows import Batch, rows_of
from trainer.config.settings import OffPolicySettings
from trainer.envs.collector import Transition
from trainer.envs.spaces import Actions, drawn_actions
from trainer.errors import ConfigError, NotFiniteError
from trainer.nets.encoders.base import kept_spaces
from trainer.streams import RandomStream, generator, seeds_of

#: Rows of a probe: a batch, so that its cost follows an update's, but no more than a rank needs to be told from.
MAX_PROBE = 1024

#: Whether the GPU here has instructions for it.
_ON_GPU: Callable[[], bool] = partial(torch.cuda.is_bf16_supported, including_emulation=False)
#: All that an update of a batch takes from a stream of noise: [B, …] each, on the CPU.
Draw = Callable[[Batch, torch.Generator], dict[str, Tensor]]


class UpdateBudget:
    """Updates that steps have earned and that are not made yet. Exact: 0.1 is one tenth, not its binary neighbour."""

    def __init__(self) -> None:
        self.owed = Fraction(0)

    def as_json(self) -> list[int]:
        """For a checkpoint."""
        return [self.owed.numerator, self.owed.denominator]

    def load_json(self, value: Sequence[int]) -> None:
        """Go on from there."""
        self.owed = Fraction(*value)


class OffPolicyUpdates:
    """The replay, what is owed, and updates that all shards and ranks make together."""

    def __init__(self, context: Context) -> None:
        training = context.training
        self.settings: OffPolicySettings = training.off_policy
        assert context.experience is not None  # noqa: S101 - its settings are `OffPolicySettings`
        self.experience, self.group = context.experience, context.group
        self._seed, self._device, self._action = training.seed, context.device, context.spaces.action
        self.exploration = generator(training.seed, RandomStream.EXPLORATION)
        self._budget = UpdateBudget()
        must_be_had(self.settings, context.device)
        self._sums: NStep | None = None
        if self.settings.sums_steps and not self._keeps_frames:
            kept = kept_spaces(context.spaces, training.network)
            gamma: float = self.settings.gamma  # type: ignore[attr-defined]
            self._sums = NStep(kept, self.settings.steps_summed, context.num_envs, gamma)

    def random_actions(self, count: int) -> Actions:
        """Uniform, for so many environments."""
        return drawn_actions(self.exploration, self._action, count)

    def observe(self, transition: Transition, step: int) -> None:
        """Into the replay; each transition past `random_steps` earns `updates_per_step` updates. Where the replay keeps
        frames it sums up steps itself.
        """
        done = transition.step
        if self._keeps_frames:
            self.experience.observe(transition)
        elif self._sums is not None:
            for task, rows in self._sums.add(transition):
                self.experience.add(task, rows)
        else:
            rows = rows_of(transition.obs, transition.action, done.reward, done.next_obs, done.terminated)
            self.experience.add(done.task, rows)
        settings = self.settings
        self._budget.owed += earned(step, step + len(done.task), settings.random_steps, settings.updates_per_step)

    @property
    def owed(self) -> int:
        """Whole updates; the rest of the fraction waits. None while nothing can be drawn."""
        return int(self._budget.owed) if self.experience.is_ready else 0

    def sample(self, draw: Draw, noise: torch.Generator) -> Sample:
        """What the next update works on: a batch of own rows and others'. The other ranks get it, too."""
        batch = self.experience.sample(self.settings.batch_size)
        self._budget.owed -= 1
        return self.shared(batch, draw, noise)

    def shared(self, batch: Batch, draw: Draw, noise: torch.Generator) -> Sample:
        """`batch` with what is drawn for its update, sent to the other ranks."""
        sample = Sample(batch, draw(batch, noise))
        if self.group.size > 1:
            self.group.share(sample.packed())
        return sample

    def take_steps(
        self,
        steps: Callable[[Sample], Iterator[OptimizerStep]],
        sample: Sample,
        step_optimizer: Callable[[str, Sequence[Tensor]], None],
    ) -> dict[str, Tensor]:
        """Make the optimizer `steps` of an update of `sample`, whole or in shards; all that was measured."""
        shards = self.settings.shards
        with self.rounding():
            if shards == 1:
                return take_steps(steps(sample), step_optimizer)
            own = [steps(sample.shard(number, shards)) for number in self.group.own(shards)]
            return take_steps(in_step(own, self.group), step_optimizer)

    def rounding(self) -> AbstractContextManager[object]:
        """In which losses are computed: `precision`."""
        return rounding(self.settings, self._device)

    def probe(self, draw: Draw, step: int) -> Sample:
        """As `probe_rows`, with what an update of them would draw."""
        batch, noise = probe_rows(self.experience.own, self.settings.batch_size, self._seed, step)
        return Sample(batch, draw(batch, noise))

    def parts(self) -> Mapping[str, Any]:
        """By the names of a checkpoint."""
        sums = {} if self._sums is None else {"sums": self._sums}
        return {"owed": self._budget, "exploration": self.exploration, **sums}

    @property
    def _keeps_frames(self) -> bool:
        return isinstance(self.experience.own, FrameReplay)


def probe_rows(replay: Ring, size: int, seed: int, step: int) -> tuple[Batch, torch.Generator]:
    """Own rows that `step` chooses, `MAX_PROBE` at most, and a stream for what is sampled on them: neither takes from a
    stream of the run. Errors: ValueError where nothing can be drawn.
    """
    rng = np.random.default_rng(seeds_of(seed, RandomStream.PROBE, step))
    counts, _ = shares(min(size, MAX_PROBE), np.where(replay.drawable, replay.sizes, 0), 0)
    batch = replay.pick(counts, rng)
    return batch, torch.Generator().manual_seed(int(rng.integers(2**62)))


def earned(before: int, after: int, random_steps: int, updates_per_step: float) -> Fraction:
    """Updates that the transitions in (before, after] earn."""
    return max(0, after - max(before, random_steps)) * Fraction(str(updates_per_step))


def must_be_finite(actions: Actions, step: int) -> Actions:
    """The same `actions`. Errors: NotFiniteError."""
    if not np.isfinite(actions).all():
        raise NotFiniteError("actor.not-finite", what=["actor"], step=step)
    return actions


def rounding(settings: OffPolicySettings, device: torch.device) -> AbstractContextManager[object]:
    """In which updates are made ("Automatic Mixed Precision" in torch's notes). With bf16 the inputs of matrix products
    are rounded to bfloat16, which has float32's range and 8 bits of its mantissa, so that no loss needs to be scaled.
    Parameters, moments, targets and sums over a batch stay float32. Rounded weights are not kept: a CUDA graph would go
    on with the first ones.
    """
    if settings.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def must_be_had(settings: OffPolicySettings, device: torch.device, on_gpu: Callable[[], bool] = _ON_GPU) -> None:
    """Errors: ConfigError where the GPU has no bfloat16."""
    if settings.precision == "bf16" and device.type == "cuda" and not on_gpu():
        raise ConfigError("algorithm.no-bf16")
