"""An arm of seven joints that reaches for places, as a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from trainer.config.suites import Arm
from trainer.envs.native.verdicts import chosen, none_natively
from trainer.envs.spaces import Obs
from trainer.envs.suite import Bounds, Env, StepperChoice
from trainer.envs.suites.arm.bounds import bounds_for
from trainer.envs.suites.arm.shapes import STEP_S, spaces

if TYPE_CHECKING:
    from trainer.envs.suites.arm.native.rows import ArmRows
    from trainer.envs.suites.arm.script import Reacher
    from trainer.envs.suites.arm.watched import WatchedArm


class Suite:
    """One task. An episode's seed decides start and goal, and whatever else is drawn."""

    starts = None
    tells_success = True
    #: Of the simulation.
    steps_a_second = round(1 / STEP_S)

    def __init__(self, settings: Arm, seed: int = 0, cache: Path | None = None) -> None:  # noqa: ARG002 - for others
        self.settings = settings
        self.spaces = spaces(settings)

    @property
    def bounds(self) -> Bounds | None:
        """As they were measured; none of pictures. Nothing can be simulated again without a start: trusted contributors
        alone count.
        """
        return None if self.settings.has_pictures else bounds_for(self.settings)

    def starts_near(self, task: int, obs: Obs) -> Sequence[int]:  # noqa: ARG002 - as the protocol has it
        """There are no fixed starts."""
        return ()

    @property
    def versions(self) -> dict[str, str]:
        """What its physics and its draws depend on."""
        return {name: version(name) for name in ("mujoco", "numpy")}

    def describe(self) -> dict[str, str]:
        """Settings that a state must share, beside its shapes."""
        return {"settings of the arm": self.settings.model_dump_json(exclude={"horizon"})}

    def make(self, task: int) -> Env:  # noqa: ARG002 - there is one
        """An arm."""
        from trainer.envs.suites.arm.env import ArmEnv  # noqa: PLC0415 - a learner with workers needs no simulator

        return ArmEnv(self.settings)

    def watched(self, task: int) -> WatchedArm:  # noqa: ARG002 - as above
        """One that can be drawn (`picture`)."""
        from trainer.envs.suites.arm.watched import WatchedArm  # noqa: PLC0415 - as above

        return WatchedArm(self.settings)

    def script(self, task: int) -> Reacher:  # noqa: ARG002 - as above
        """What reaches without having learned: action [7] of the whole state [25]."""
        from trainer.envs.suites.arm.script import Reacher  # noqa: PLC0415 - as above

        return Reacher()

    def stepped_natively(self, choice: StepperChoice) -> frozenset[int]:
        """All, where every bit is the Python path's on this machine; none where there are pictures."""
        if self.settings.has_pictures:
            return none_natively(choice, "the arm's pictures are drawn by Python")
        return frozenset({0}) if chosen(choice, self.spaces.tasks, self._judged) else frozenset()

    def stepper(
        self, places: int, fields: Mapping[str, npt.NDArray[Any]], threads: int, *, stop_at_success: bool
    ) -> ArmRows:
        """The C stepper."""
        from trainer.envs.suites.arm.native.library import load  # noqa: PLC0415 - as above
        from trainer.envs.suites.arm.native.rows import ArmRows  # noqa: PLC0415

        return ArmRows(load(), places, fields, threads, self.spaces.horizon, stop_at_success=stop_at_success)

    def _judged(self, tasks: Sequence[str]) -> frozenset[str]:  # noqa: ARG002 - there is one
        from trainer.envs.suites.arm.native.trial import approved  # noqa: PLC0415 - loads a library: where it is wanted

        return approved(self.settings)
