"""Point masses on a line: a suite in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from anchorleg_toys.settings import PointsSettings
from trainer.envs.pictures import with_pictures
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE, Actions, ArraySpec, Box, Discrete, Obs, Spaces
from trainer.envs.suite import Outcome, Stepper, StepperChoice, StepperUnavailableError
from trainer.state import State


class Point:
    """A mass that a tenth of the action moves; nearer to the goal is better. Over at the goal itself."""

    def __init__(self, goal: float, settings: PointsSettings) -> None:
        self.goal = goal
        self.pushes = settings.pushes
        self.horizon = settings.horizon
        self.settings = settings
        self.place = 0.0
        self.steps = 0

    def reset(self, start: int, seed: int) -> Obs:
        """The suite has no fixed starts, so `start` says nothing and `seed` all."""
        self.place, self.steps = float(np.random.default_rng(seed).uniform(-0.5, 0.5)), 0
        return self._obs()

    def step(self, action: Actions) -> Outcome:
        """Move."""
        push = float(np.clip(action[0], -1, 1)) if self.pushes == "any" else int(action) - 1
        self.place += 0.1 * push
        self.steps += 1
        distance = abs(self.place - self.goal)
        return Outcome(self._obs(), 1 - distance, distance < 0.02, truncated=False, success=distance < 0.1)

    def snapshot(self) -> State:
        """All that changes."""
        return State({"place": np.array([self.place])}, {"steps": self.steps})

    def restore(self, state: State) -> None:
        """Go on from there."""
        self.place, self.steps = float(state.tensors["place"][0]), int(state.numbers["steps"])

    def close(self) -> None:
        """There is nothing to free."""

    def _obs(self) -> Obs:
        state = np.array([self.place, self.steps / self.horizon], np.float32)
        if not self.settings.has_pictures:
            return {STATE: state}
        seen = {IMAGE: self._picture(), STATE: state[:1], PRIVILEGED: state}
        return {key: seen[key] for key in with_pictures(self.settings, ArraySpec((2,)), 1)}

    def _picture(self) -> npt.NDArray[np.uint8]:
        """A bright column where the mass is, over a ground that darkens with the steps; the same from everywhere."""
        size = self.settings.image_size
        picture = np.full((3, size, size), 200 - 100 * self.steps // self.horizon, np.uint8)
        column = int(np.clip((self.place + 1) / 2 * size, 0, size - 1))
        picture[0, :, column] = 255
        return np.concatenate([picture] * len(self.settings.seen_by))


class Points:
    """A goal a task; where an episode starts is drawn from its seed."""

    #: For `anchorleg_toys.points:Points` in a config; by the name `points` its entry point is asked.
    Settings: ClassVar = PointsSettings
    starts = None
    #: A step that comes near to the goal says so, and evaluations count that.
    tells_success = True
    #: Packages whose versions decide whether a resume is exact.
    versions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, settings: PointsSettings, seed: int, cache: Path | None) -> None:
        self.goals = np.linspace(-0.5, 0.5, len(settings.tasks) + 2)[1:-1]
        self.settings = settings
        action = Box(1) if settings.pushes == "any" else Discrete(3)
        seen = with_pictures(settings, ArraySpec((2,)), 1)
        self.spaces = Spaces(seen, action, settings.tasks, settings.horizon)

    @property
    def bounds(self) -> None:
        """Nobody measured what honest experience obeys: none is taken."""

    def starts_near(self, task: int, obs: Obs) -> Sequence[int]:
        """There are no fixed starts."""
        return ()

    def describe(self) -> Mapping[str, str]:
        """A state of other goals is refused."""
        return {"goals": str(self.goals.tolist())}

    def make(self, task: int) -> Point:
        """An environment."""
        return Point(float(self.goals[task]), self.settings)

    def stepped_natively(self, choice: StepperChoice) -> frozenset[int]:
        """None: Python steps all."""
        if choice == "native":
            raise StepperUnavailableError("point masses are stepped by Python alone")
        return frozenset()

    def stepper(
        self, places: int, fields: Mapping[str, npt.NDArray[Any]], threads: int, *, stop_at_success: bool
    ) -> Stepper:
        """There is none."""
        raise StepperUnavailableError("point masses are stepped by Python alone")
