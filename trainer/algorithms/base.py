"""What every learning algorithm offers, and what it is made of.

`trainer/algorithms/<name>.py`, or `<name>/algorithm.py`, calls its own `Algorithm`. The loop, checkpoints, evaluation,
publishing and contributions know this protocol and no algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from trainer.algorithms.common.cuda_graph import KERNELS
from trainer.algorithms.common.diagnostics import Diagnosis
from trainer.buffers.experience import Experience
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Bools, Obs, Spaces
from trainer.machine.group import Group
from trainer.nets.policy import PolicyNet
from trainer.state import State


@dataclass(frozen=True)
class Context:
    """All that an algorithm is made of. `training.algorithm` has its own settings. `experience`: what is sampled from;
    None for those whose settings are not of `OffPolicySettings`.
    `way`: how updates get to the device (`trainer.algorithms.common.cuda_graph`). `num_envs`: of this process.
    """

    training: Training
    spaces: Spaces
    num_envs: int
    device: torch.device
    experience: Experience | None
    way: str = KERNELS
    group: Group = field(default_factory=Group.alone)


@dataclass(frozen=True)
class NetSize:
    """What a net takes of the memory. `field`: the setting that its size goes with, whose value is `widths`.

    `parameters`: numbers that it learns. `targets`: copies of them that do not learn. `values`: numbers that each row
    of a batch leaves in it for the way back. `moments`: what the optimizer remembers of each: two of Adam's, one of
    RMSprop's.
    """

    name: str
    field: str
    widths: tuple[int, ...]
    parameters: int
    targets: int = 0
    values: int = 0
    moments: int = 2


@runtime_checkable
class Adopting(Protocol):
    """An algorithm that can take another learner over."""

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with what another learner of the same shape came to: the tensors of its `state`, but for its streams.
        Rows, streams and counters stay the own ones. Errors: ValueError, and then nothing is changed.
        """


@runtime_checkable
class Mixing(Protocol):
    """An algorithm whose weights may be averaged with those of another learner of the same shape."""

    def weights(self) -> Mapping[str, Tensor]:
        """All weights that are learned and their targets, by the names of its `state`; who writes into them changes the
        learner. No moments, no streams.
        """

    def judge(self, step: int) -> tuple[float, Tensor]:
        """(the critics' loss, Q of what the actor does [B]) on own rows that `step` chooses. Draws from no stream of
        the run, changes nothing.
        """


@runtime_checkable
class Restarting(Protocol):
    """An algorithm that keeps something of episodes that still run (steps, sums, a memory), and is told of a break."""

    def begin_anew(self, anew: Bools) -> None:
        """A resume could not bring back the episodes of these environments [N] and began others, so that what is kept
        of them has no next step. Called after `load`, before the next `act`, where there is any.
        """


class Algorithm(Protocol):
    """One learning algorithm with all that it changes: nets, optimizers, buffers, noise.

    It knows no file, clock, process or environment. Between two calls it stands at a barrier.
    """

    METRICS: ClassVar[tuple[str, ...]]
    """The names of what an update measures."""

    def __init__(self, context: Context) -> None:
        """At step 0. Everything depends on the seed alone, not on the device."""

    @classmethod
    def choose_launch_mode(
        cls, training: Training, spaces: Spaces, device: torch.device, recorded: str | None
    ) -> tuple[str, str | None]:
        """How its updates get to `device`: (the name for `numeric`, a sentence for the user or None).

        `recorded`: how they did in what the run goes on from; None at its beginning. Errors: ConfigError where only
        that way has its bits, and it is not here.
        """

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:
        """Its nets, which are not made."""

    @property
    def policy(self) -> PolicyNet:
        """What acts, is evaluated and published."""

    @property
    def device(self) -> torch.device:
        """Where it learns."""

    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """Actions to try at `step`. Takes from its own noise only. Errors: NotFiniteError."""

    def observe(self, transition: Transition, step: int) -> None:
        """What came of the last `act`, at `step`: into the replay or the rollout."""

    @property
    def owed(self) -> int:
        """Gradient updates that may be made now."""

    @property
    def must_learn(self) -> bool:
        """Whether they must be made before the next `act`."""

    def update(self) -> Tensor:
        """One gradient update; its `METRICS` [M] float32 on the device, read later (a loss that is not finite shows
        there).
        """

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Numbers of each task, [K] each, for the row of metrics."""

    def diagnose(self, step: int) -> Diagnosis | None:
        """What the nets are like inside, None: nothing to say. Draws from no stream of the run, changes nothing."""

    def diagnose_contributors(self, step: int) -> Mapping[str, float]:
        """The mean TD error of each contributor's rows. As `diagnose`."""

    def state(self) -> State:
        """Tensors whose names begin with `policy.` are all that playing needs."""

    def load(self, state: State) -> None:
        """Go on from there."""
