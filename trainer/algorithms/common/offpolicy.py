"""What algorithms have in common that learn from kept transitions: MTSAC, SAC, TD3 and DrQ-v2.

They act at random first. Each transition after that earns a part of an update; updates are made beside the stepping.

`algorithm.shards` cuts the batch of an update into V parts, each differentiated by itself. Where several ranks share
them (`trainer.machine.group`), rank 0 alone has environments, rows and random streams: for each update it sends the
batch with all that is drawn for it, and each rank differentiates its own shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.base import Context
from trainer.algorithms.common.cuda_graph import not_recorded
from trainer.algorithms.common.descents import Descent, descend_all, of_shards
from trainer.algorithms.common.precision import must_be_had, rounding
from trainer.algorithms.common.sample import Sample
from trainer.algorithms.common.tensors import check_moments
from trainer.buffers.experience import Experience
from trainer.buffers.frames import FrameReplay
from trainer.buffers.replay import Ring, shares
from trainer.buffers.rows import Batch, Rows, rows_of
from trainer.config.settings import OffPolicySettings
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Obs, Spaces, drawn_actions
from trainer.errors import NotFiniteError
from trainer.nets.policy import FROZEN
from trainer.state import State
from trainer.streams import RandomStream, generator, seeds_of

#: Tensors of a state that another learner's do not replace: streams, what each environment drew, what a row repeats,
#: and what goes by the steps that were made.
_OWN = {"noise", "deviations", "actor_loss", "policy.free"}
#: Rows that are not whole yet.
_OWN_ROWS = "sums."
#: Rows of a probe: a batch, so that its cost follows an update's, but no more than a rank needs to be told from.
MAX_PROBE = 1024


class OffPolicy:
    """The experience, what is owed, and the first actions. How to act and to learn is an algorithm's own."""

    METRICS: ClassVar[tuple[str, ...]]

    def __init__(self, context: Context) -> None:
        training = context.training
        self.settings: OffPolicySettings = training.off_policy
        self._seed = training.seed
        self._exploration = generator(training.seed, RandomStream.EXPLORATION)
        self._action = context.spaces.action
        self._owed = Fraction(0)
        assert context.experience is not None  # noqa: S101 - its settings are `OffPolicySettings`
        self.experience: Experience = context.experience
        self._group = context.group
        self._learns_on = context.device
        must_be_had(self.settings, context.device)

    # --- what an algorithm has of its own ---------------------------------------------------------------------------

    def sampled(self, obs: Obs, task: I32) -> Actions:
        """Actions of the policy, to try; takes from its own noise."""
        raise NotImplementedError

    def draw(self, batch: Batch) -> dict[str, Tensor]:
        """All that an update of `batch` takes from the algorithm's own noise: [B, …] each, on the CPU."""
        raise NotImplementedError

    def see(self, batch: Batch) -> None:
        """Note what the whole batch shows, before it is differentiated; nothing."""

    def descents(self, sample: Sample) -> Iterator[Descent]:
        """The steps of an update, of a batch or a part of it; changes nothing, and draws nothing."""
        raise NotImplementedError

    def descend(self, name: str, gradients: Sequence[Tensor]) -> None:
        """One step of the optimizer that is called so."""
        raise NotImplementedError

    def conclude(self, measured: Mapping[str, Tensor]) -> Tensor:
        """Behind the steps of an update that `measured` this: move the targets. Returns `METRICS`."""
        raise NotImplementedError

    def prepared(self, transition: Transition) -> Transition:
        """As it is kept: where something reads pictures for good, what it makes of them."""
        return transition

    def kept(self, transition: Transition) -> Iterable[tuple[I32, Rows]]:
        """What goes into the replay now, where it keeps no frames: rows of tasks [B], one lot after another."""
        done = transition.step
        yield done.task, rows_of(transition.obs, transition.action, done.reward, done.next_obs, done.terminated)

    def tensors(self) -> Mapping[str, Tensor]:
        """All that it learned and draws from, copied."""
        raise NotImplementedError

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put `tensors` back."""
        raise NotImplementedError

    # --- what all have in common ------------------------------------------------------------------------------------

    @classmethod
    def choose_launch_mode(
        cls,
        training: Training,
        spaces: Spaces,  # noqa: ARG003 - as the protocol has it
        device: torch.device,
        recorded: str | None,  # noqa: ARG003
    ) -> tuple[str, str | None]:
        """One by one."""
        return not_recorded(training, device, training.algorithm.name)

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """At random for the first `random_steps`, then sampled from the policy."""
        if step < self.settings.random_steps:
            return drawn_actions(self._exploration, self._action, len(task))
        actions = self.sampled(obs, task)
        if not np.isfinite(actions).all():
            raise NotFiniteError(f"the actor's actions are not finite at step {step}", what=["actor"])
        return actions

    def observe(self, transition: Transition, step: int) -> None:
        """Into the replay; each transition past `random_steps` earns `updates_per_step` updates."""
        kept = self.prepared(transition)
        if self.keeps_frames:
            self.experience.observe(kept)
        else:
            for task, rows in self.kept(kept):
                self.experience.add(task, rows)
        settings, count = self.settings, transition.step.task.shape[0]
        self._owed += earned(step, step + count, settings.random_steps, settings.updates_per_step)

    @property
    def keeps_frames(self) -> bool:
        """Whether its replay keeps frames, and sums up steps itself."""
        return isinstance(self.experience.own, FrameReplay)

    @property
    def owed(self) -> int:
        """Whole updates; the rest of the fraction waits. None while nothing can be drawn."""
        return int(self._owed) if self.experience.is_ready else 0

    @property
    def must_learn(self) -> bool:
        """Never: updates run beside the stepping."""
        return False

    def update(self) -> Tensor:
        """One update of a batch of own rows and others'."""
        batch = self.experience.sample(self.settings.batch_size)
        measured = self.learn(batch)
        self._owed -= 1
        return measured

    def learn(self, batch: Batch) -> Tensor:
        """One update of `batch`, by all ranks; its `METRICS`."""
        sample = Sample(batch, self.draw(batch))
        if self._group.size > 1:
            self._group.share(sample.packed())
        return self._learn(sample)

    def assist(self) -> None:
        """The same as another rank than the first, which has no rows."""
        self._learn(Sample.unpacked(self._group.share()))

    def learn_whole(self, sample: Sample) -> Tensor:
        """One update of a batch that is not cut."""
        self.see(sample.batch)
        return self.conclude(descend_all(self.descents(sample), self.descend))

    def _learn(self, sample: Sample) -> Tensor:
        shards = self.settings.shards
        with rounding(self.settings, self._learns_on):
            if shards == 1:
                return self.learn_whole(sample)
            self.see(sample.batch)
            own = [self.descents(sample.shard(number, shards)) for number in self._group.own(shards)]
            return self.conclude(descend_all(of_shards(own, self._group), self.descend))

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with what another learner of the same shape came to (the tensors of its `state`): nets, targets,
        moments, temperatures, scales. Random streams, counters and rows stay the own ones. Errors: ValueError, and then
        nothing is changed.
        """
        own = self.state()
        learned = {name: tensor for name, tensor in tensors.items() if not _is_own(name)}
        for name, tensor in own.tensors.items():
            may_be_missing = _is_own(name) or _is_moment(name)
            if learned[name].shape != tensor.shape if name in learned else not may_be_missing:
                raise ValueError(f"{name} is missing or has another shape")
        if unknown := sorted(name for name in learned.keys() - own.tensors.keys() if not _is_moment(name)):
            raise ValueError(f"{unknown[0]} is nothing that is learned here")
        for name, tensor in learned.items():  # a moment that is not here yet is Adam's
            if tensor.dtype != (own.tensors[name].dtype if name in own.tensors else torch.float32):
                raise ValueError(f"{name} has numbers of another kind")
        for name in learned.keys() & own.tensors.keys():
            # What the replay has was made by the own one.
            if name.startswith(f"policy.{FROZEN}") and not torch.equal(learned[name], own.tensors[name]):
                raise ValueError("its frozen encoder is another one: set training.init_seed in a new run")
        check_moments(learned, own.tensors)
        kept = {name: tensor for name, tensor in own.tensors.items() if _is_own(name)}
        try:
            self.load(State({**learned, **kept}, own.numbers))
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            self.load(own)
            raise ValueError(str(error)) from error

    def weights(self) -> Mapping[str, Tensor]:
        """See `trainer.algorithms.base.Mixing`."""
        raise NotImplementedError

    def judged(self, batch: Batch, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """(the critics' loss, Q of what the actor does [B]) of `batch`, with `noise` alone; changes nothing."""
        raise NotImplementedError

    def judge(self, step: int) -> tuple[float, Tensor]:
        """See `trainer.algorithms.base.Mixing`."""
        batch, noise = probe(self.experience.own, self.settings.batch_size, self._seed, step)
        with torch.no_grad():
            loss, q = self.judged(batch, noise)
        return float(loss), q.cpu()

    def state(self) -> State:
        """Nets, optimizers, noise, and what is owed."""
        numbers = {
            "owed": [self._owed.numerator, self._owed.denominator],
            "exploration": self._exploration.bit_generator.state,
        }
        return State(self.tensors(), numbers)

    def load(self, state: State) -> None:
        """Go on from there; random streams are put back last."""
        self.load_tensors(state.tensors)
        self._owed = Fraction(*state.numbers["owed"])
        self._exploration.bit_generator.state = state.numbers["exploration"]


def learned_of(state: State) -> State:
    """What must be the same on all ranks: without what rank 0 alone has."""
    return State({name: tensor for name, tensor in state.tensors.items() if not _is_own(name)})


def _is_own(name: str) -> bool:
    """Whether a tensor of a state is of this training's own course, not of what it learned."""
    return name in _OWN or name.startswith(_OWN_ROWS)


def _is_moment(name: str) -> bool:
    """Whether a tensor is what an optimizer remembers: there is none before its first update."""
    return name.startswith("adam.")


def probe(replay: Ring, size: int, seed: int, step: int) -> tuple[Batch, torch.Generator]:
    """Own rows that `step` chooses, `MAX_PROBE` at most, and a stream for what is sampled on them: neither takes from a
    stream of the run. Errors: ValueError where nothing can be drawn.
    """
    rng = np.random.default_rng(seeds_of(seed, RandomStream.PROBE, step))
    counts, _ = shares(min(size, MAX_PROBE), np.where(replay.drawable, replay.sizes, 0), 0)
    batch = replay.pick(counts, rng)
    return batch, torch.Generator().manual_seed(int(rng.integers(2**62)))


def earned(before: int, after: int, random_steps: int, updates_per_step: float) -> Fraction:
    """Updates that the transitions in (before, after] earn, exactly: 0.1 is one tenth, not its binary neighbour."""
    return max(0, after - max(before, random_steps)) * Fraction(str(updates_per_step))
