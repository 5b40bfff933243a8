"""What one file of environments provides: the records and protocols between a suite and the vector that steps it.

`trainer/envs/suites/<name>.py` (or `<name>/suite.py`) calls its family of environments `Suite`; those of others are
found as `trainer.config.find` says. How they are stepped together, resumed, handed to workers and lent out is for this
folder: nothing here knows a suite by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self, cast

import numpy.typing as npt

from trainer.config.find import SUITES, find, settings_of
from trainer.config.settings import EnvSettings
from trainer.config.training import Training
from trainer.envs.foreign import Settled, limited
from trainer.envs.spaces import F32, Actions, Obs, Spaces
from trainer.state import State


@dataclass
class EpisodeStats:
    """Where an episode stands: steps, their rewards' sum, whether it is solved, if it ended here."""

    length: int = 0
    total: float = 0.0
    solved: bool = False


#: "auto": by a stepper where that is possible and gives the same bits. "native": likewise, and an error where it cannot
#: be used at all. "python": never.
StepperChoice = Literal["auto", "native", "python"]
#: An environment that is silent for so long while it is made, its first episode with it, hangs: from a cold network
#: folder that can take minutes.
BEGIN_S = 300.0
#: In the numbers of an environment's state: a sentence for the user, which is said once. It may be missing, or None.
TOLD = "told"


class EpisodeLostError(Exception):
    """The episode of a state cannot be brought back, and why: it is begun anew. It says nothing of other states."""


@dataclass(frozen=True)
class Outcome:
    """What one step of one environment did. `truncated` is the environment's own cut: the horizon is the vector's.

    `measures`: of the episode so far, as its settings name them (`EnvSettings.MEASURES`); NaN where there is none.
    """

    obs: Obs
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    measures: tuple[float, ...] = ()


class Env(Protocol):
    """One environment of one task. All that changes is in `snapshot`; two that are restored from one state go on alike.

    Errors of every method: whatever it likes; it becomes an EnvError that names environment and task.
    """

    def reset(self, start: int, seed: int) -> Obs:
        """Begin an episode; its first observation, without N. `start` numbers a fixed start, where the suite has some;
        `seed` (32 bits) is for those that draw theirs. The outcome depends on (task, start, seed) alone, whatever the
        instance did before.
        """

    def step(self, action: Actions) -> Outcome:
        """Act. Never resets by itself."""

    def snapshot(self) -> State:
        """The state between two steps, owning its memory."""

    def restore(self, state: State) -> None:
        """Go on from there. Errors: EpisodeLostError where that is not possible; reset it then."""

    def close(self) -> None:
        """Free it."""


class Binding(Protocol):
    """One place of a stepper: taken by an environment that it steps, or free."""

    @property
    def taken(self) -> bool:
        """Whether an environment is stepped here."""

    def take(self, env: Any, task: int, stats: EpisodeStats) -> None:
        """From here on `env`, which plays task number `task`, is stepped here."""

    def read(self) -> tuple[EpisodeStats, Obs | None]:
        """Bring the environment up to date: (its stats, its last observation or None where it was not stepped)."""

    def leave(self) -> None:
        """The environment is stepped by Python, or not at all."""


@dataclass(frozen=True)
class Bounds:
    """What honest experience of a suite obeys, where an observation is one row of numbers: what nobody needs to repeat
    an episode for.

    `obs`: the largest number of an observation. `reward`: the smallest and the largest. `terminates`: whether an
    episode may end before it is cut. `gap`: what does not join in the observations [T+1, O] of one episode of a task,
    or is not constant that is so in every true one, in a phrase.
    """

    obs: float
    reward: tuple[float, float]
    terminates: bool
    gap: Callable[[F32, str], str | None]


class StepFaultError(Exception):
    """The environment at `place` of a stepper failed. It does not say whether others of the same call did as well."""

    def __init__(self, place: int, text: str) -> None:
        super().__init__(text)
        self.place = place


class StepperUnavailableError(Exception):
    """No stepper can be used here, and why. Python steps everything as well, only slower."""


class Stepper(Protocol):
    """Steps some environments without Python, straight into the shared buffers."""

    def bind(self, place: int, index: int) -> Binding:
        """The binding of its row `place`, for environment number `index`."""

    def step(self) -> list[int]:
        """Step every taken place; those whose episode has ended. Errors: StepFaultError."""

    def close(self) -> None:
        """End its threads. May be called twice."""


class Suite(Protocol):
    """A family of environments that share their spaces."""

    def __init__(self, settings: Any, seed: int, cache: Path | None) -> None:
        """`settings`: of its own class (`trainer.config.find.settings_of`). `seed` decides the fixed starts, where
        there are some; what takes long to make may be kept in `cache`.
        """

    @property
    def spaces(self) -> Spaces:
        """What all its environments share."""

    @property
    def starts(self) -> int | None:
        """Fixed starts a task; None: an episode's seed decides."""

    @property
    def bounds(self) -> Bounds | None:
        """What experience of other machines is judged by; None: none is taken."""

    def starts_near(self, task: int, obs: Obs) -> Iterable[int]:
        """The fixed starts of a task, the likeliest one for this first observation first; none where it has none."""

    @property
    def tells_success(self) -> bool:
        """Whether its steps say what success is; else its evaluations go by their return."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Packages whose versions decide whether a resume is exact: other ones are warned of."""

    def describe(self) -> Mapping[str, str]:
        """What a state must share, in words → its digest: a state of something else is refused."""

    def make(self, task: int) -> Env:
        """A new environment of task number `task`."""

    def stepped_natively(self, choice: StepperChoice) -> frozenset[int]:
        """The tasks that `stepper` can step, as far as `choice` wants it.

        Errors: ValueError for another choice; StepperUnavailableError where it is "native" and there is none.
        """

    def stepper(
        self, places: int, fields: Mapping[str, npt.NDArray[Any]], threads: int, *, stop_at_success: bool
    ) -> Stepper:
        """Steps up to `places` environments, with the arrays of `SharedBuffers`. Errors: StepperUnavailableError."""


@dataclass(frozen=True)
class SuiteRef:
    """Which suite: enough for another process to open the same. `seed`: of its fixed starts."""

    settings: EnvSettings
    seed: int = 0
    cache: Path | None = None

    def open(self) -> Suite:
        """The suite. Errors: ValueError. What takes longer than `BEGIN_S` ends this process."""
        who = f"an environment ({', '.join(self.settings.tasks)})"
        words = f"{who} was not created and closed within {BEGIN_S:.0f} s: see its stacks above"
        with limited(BEGIN_S, words), Settled(who):
            suite: type[Suite] = find(SUITES, self.settings.name)
            return suite(self.settings, self.seed, self.cache)

    def as_json(self) -> dict[str, Any]:
        """For a worker."""
        cache = None if self.cache is None else str(self.cache)
        return {"settings": self.settings.model_dump(mode="json"), "seed": self.seed, "cache": cache}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` was made of."""
        cache = None if value["cache"] is None else Path(value["cache"])
        kind = cast("type[EnvSettings]", settings_of(SUITES, value["settings"]["name"]))
        return cls(kind.model_validate(value["settings"]), value["seed"], cache)


def suite_of(training: Training, cache: Path | None = None) -> SuiteRef:
    """The suite that `training` trains on."""
    return SuiteRef(training.env, training.seed, cache)


def spaces_of(training: Training) -> Spaces:
    """What its policy is given and gives."""
    return suite_of(training).open().spaces


def bounds_of(suite: Suite) -> Bounds:
    """What experience of others is judged by. Errors: ValueError where it says none."""
    if suite.bounds is None:
        raise ValueError("this suite has no bounds of honest experience")
    return suite.bounds


def mismatches(saved: Mapping[str, Any], now: Mapping[str, str]) -> Sequence[str]:
    """The names in `now` (`Suite.describe`) that `saved` has otherwise or not at all."""
    return [name for name, digest in now.items() if saved.get(name) != digest]
