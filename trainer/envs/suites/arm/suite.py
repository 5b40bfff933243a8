"""An arm of seven joints that reaches for places, as a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainer.config.suites import Arm
from trainer.envs.native.verdicts import chosen, none_natively
from trainer.envs.spaces import F32, Obs
from trainer.envs.suite import Bounds, Env, StepperChoice
from trainer.envs.suites.arm.shapes import JOINTS, STEP_S, spaces

if TYPE_CHECKING:
    from trainer.envs.suites.arm.env import Reacher
    from trainer.envs.suites.arm.gym import WatchedArm
    from trainer.envs.suites.arm.native.library import ArmRows

#: Rewards of a step, by their name; a hundredth for the arithmetic in single precision.
_REWARDS = {"dense": (-2.1, 1.01), "tanh": (-0.01, 1.01), "sparse": (-1.01, 0.01)}
#: Twice what was measured, radians a step and radians a second.
_TURN, _FARTHEST = 0.6, 12.0
#: Metres by which goal - hand may differ from its parts, which are rounded one by one.
_ROUNDING = 1e-5
#: Columns of the default observation.
_HAND, _GOAL, _WAY = slice(14, 17), slice(17, 20), slice(20, 23)


def bounds_for(settings: Arm) -> Bounds:
    """What honest experience of arms with `settings` obeys.

    Measured with random, held, alternating and swinging extreme actions, also against the table, with and without
    randomisation (1,280 episodes, mujoco 3.3.0): angles up to 2.92 rad, speeds up to 6.1 rad/s, places up to 1.9 m,
    dense rewards in [-1.87, 0.97]; no joint turned farther than 0.30 rad in a step.
    """
    low, high = _REWARDS[settings.reward]
    angles = slice(1, 1 + JOINTS) if settings.observation == "legacy" else slice(0, JOINTS)
    return Bounds(
        obs=_FARTHEST,
        reward=(low, high * settings.horizon if settings.end_on_success else high),
        terminates=settings.end_on_success,
        gap=_gap(settings, angles),
    )


def _gap(settings: Arm, angles: slice) -> Callable[[F32, str], str | None]:
    def gap(obs: F32, _task: str) -> str | None:
        """Joints move little by little, the goal stays, and the way to it is the way from hand to goal."""
        turns = np.abs(np.diff(obs[:, angles], axis=0)).max(axis=1, initial=0.0)
        if (turns > _TURN).any():
            return f"a joint jumps at step {int(turns.argmax())}"
        if settings.observation == "legacy":
            return None
        if not settings.randomize and (obs[1:, _GOAL] != obs[0, _GOAL]).any():
            return "the goal moves within the episode"
        if np.abs(obs[:, _GOAL] - obs[:, _HAND] - obs[:, _WAY]).max() > _ROUNDING:
            return "the vector to the goal does not match hand and goal"
        return None

    return gap


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
        return ()

    @property
    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("mujoco", "numpy")}

    def describe(self) -> dict[str, str]:
        return {"settings of the arm": self.settings.model_dump_json(exclude={"horizon"})}

    def make(self, task: int) -> Env:  # noqa: ARG002 - there is one
        from trainer.envs.suites.arm.env import ArmEnv

        return ArmEnv(self.settings)

    def watched(self, task: int) -> WatchedArm:  # noqa: ARG002 - as above
        """One that can be drawn (`picture`)."""
        from trainer.envs.suites.arm.gym import WatchedArm

        return WatchedArm(self.settings)

    def script(self, task: int) -> Reacher:  # noqa: ARG002 - as above
        """What reaches without having learned: action [7] of the whole state [25]."""
        from trainer.envs.suites.arm.env import Reacher

        return Reacher()

    def stepped_natively(self, choice: StepperChoice) -> frozenset[int]:
        if self.settings.has_pictures:
            return none_natively(choice, "the arm's pictures are drawn by Python")
        return frozenset({0}) if chosen(choice, self.spaces.tasks, self._judged) else frozenset()

    def stepper(
        self, places: int, fields: Mapping[str, npt.NDArray[Any]], threads: int, *, stop_at_success: bool
    ) -> ArmRows:
        from trainer.envs.suites.arm.native.library import ArmRows, load

        return ArmRows(load(), places, fields, threads, self.spaces.horizon, stop_at_success=stop_at_success)

    def _judged(self, tasks: Sequence[str]) -> frozenset[str]:  # noqa: ARG002 - there is one
        from trainer.envs.suites.arm.native.library import approved

        return approved(self.settings)
