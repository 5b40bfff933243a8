"""What every learning algorithm offers, and what it is made of.

`trainer/algorithms/<name>.py` has one class that inherits `Algorithm`, and so has a plug-in's file. Required are
`METRICS`, `__init__`, `policy`, `act`, `observe`, `update` and `parts`; everything else has a default. The loop,
checkpoints, evaluation, publishing and contributions know this class and no algorithm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from trainer.algorithms.common.cuda_graph import KERNELS
from trainer.algorithms.common.diagnostics import Diagnosis
from trainer.algorithms.common.parts import load_state, state_of
from trainer.buffers.experience import Experience
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.spaces import I32, Actions, Bools, Obs, Spaces
from trainer.machine.group import Group
from trainer.nets.policy import PolicyNet
from trainer.state import State


@dataclass(frozen=True)
class Context:
    """What an algorithm is given. `training.algorithm` has its own settings. `experience`: the replay; None for those
    whose settings are not `OffPolicySettings`. `way`: how updates get to the device
    (`trainer.algorithms.common.cuda_graph`). `num_envs`: of this process.
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
    """The memory that a net takes. `field`: the setting that decides its size, with the value `widths`.

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


class Algorithm(ABC):
    """One learning algorithm with all that it changes: nets, optimizers, buffers, noise.

    It knows no file, clock, process or environment. Between two calls it stands at a barrier.
    """

    METRICS: ClassVar[tuple[str, ...]]
    """The names of what an update measures, as rows of metrics and TensorBoard have them: `docs/watching.md` says what
    each means. A new one stands here, and among what `update` hands to `metrics`.
    """
    policy: PolicyNet
    """What acts, is evaluated and published."""

    @abstractmethod
    def __init__(self, context: Context) -> None:
        """At step 0. Everything depends on the seed alone, not on the device."""

    @abstractmethod
    def act(self, obs: Obs, task: I32, step: int) -> Actions:
        """Actions to try at `step`. Draws from its own noise only. Errors: NotFiniteError."""

    @abstractmethod
    def observe(self, transition: Transition, step: int) -> None:
        """Keep what came of the last `act`, at `step`: in the replay or the rollout."""

    @abstractmethod
    def update(self) -> Tensor:
        """Make one gradient update; its `METRICS` [M] float32 on the device, read later (a loss that is not finite
        shows there).
        """

    @abstractmethod
    def parts(self) -> Mapping[str, Any]:
        """Everything stateful by its name in a checkpoint, as `trainer.algorithms.common.parts` has it. The net that
        acts is called "policy". `state` and `load` follow from this.
        """

    @classmethod
    def metrics(cls, measured: Mapping[str, Tensor]) -> Tensor:
        """What `update` returns, of the numbers that it `measured` by the names of `METRICS`."""
        return torch.stack([measured[name] for name in cls.METRICS])

    # --- optional: when it learns -------------------------------------------------------------------------------------

    @property
    def owed(self) -> int:
        """Gradient updates that may be made beside the next vector step."""
        return 0

    @property
    def must_learn(self) -> bool:
        """Whether an update must be made before the next `act`."""
        return False

    def begin_anew(self, anew: Bools) -> None:  # noqa: B027 - optional
        """Forget what is kept of running episodes where `anew` [N]: a resume began others there. Called after `load`,
        before the next `act`.
        """

    # --- optional: what is known before it is made --------------------------------------------------------------------

    @classmethod
    def sizes(cls, training: Training, spaces: Spaces) -> Sequence[NetSize]:  # noqa: ARG003 - for those that know
        """Its nets, which are not made: memory is estimated from them."""
        return ()

    @classmethod
    def choose_launch_mode(
        cls,
        training: Training,
        spaces: Spaces,  # noqa: ARG003 - for those that record
        device: torch.device,
        recorded: str | None,  # noqa: ARG003 - for those that have several
    ) -> tuple[str, str | None]:
        """How updates get to `device`: (the name for `numeric`, a sentence for the user or None). Here: by kernels.

        `recorded`: how they did in what the run goes on from; None at its beginning. Errors: ConfigError where only
        that way has its bits, and it is not here.
        """
        if not training.cuda_graph or device.type != "cuda":
            return KERNELS, None
        return KERNELS, f"training.cuda_graph is ignored: {training.algorithm.name} does not support it"

    # --- optional: what is told of it ---------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where it learns."""
        return self.policy.device

    def measures(self) -> Mapping[str, Sequence[float]]:
        """Numbers of each task, [K] each, for the row of metrics."""
        return {}

    def diagnose(self, step: int) -> Diagnosis | None:  # noqa: ARG002 - for those that have something to say
        """What the nets are like inside. Draws from no stream of the run, changes nothing."""
        return None

    # --- optional: other ranks, and other slots of a group ------------------------------------------------------------

    def learn(self, sample: Any) -> Tensor:
        """`update` of a batch that is at hand, with all that is drawn for it (`trainer.algorithms.common.sharding`):
        rank 0 of an off-policy training sends it to the others.
        """
        raise NotImplementedError

    def weights(self) -> Mapping[str, Tensor]:
        """All weights that are learned and their targets, by the names of its `state`: they may be averaged with those
        of another slot, and writing into them changes the learner. No moments, no streams. Empty: they may not.
        """
        return {}

    def probe(self, step: int) -> tuple[float, Tensor]:
        """(the critics' loss, Q of what the actor does [B]) on own rows that `step` chooses, for those that have
        `weights`. Draws from no stream of the run, changes nothing.
        """
        raise NotImplementedError

    # --- its way into a checkpoint ------------------------------------------------------------------------------------

    def state(self) -> State:
        """Copies of all parts. Tensors whose names begin with `policy.` are all that playing needs."""
        return state_of(self.parts())

    def load(self, state: State) -> None:
        """Go on from there."""
        load_state(self, self.parts(), state)
