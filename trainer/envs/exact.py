"""Going on in mid-episode, whatever an environment is.

Where all of its state can be taken (`trainer.envs.snapshots`), that is put back. Else its episode is played again: the
seed, the same actions, and what the last step gave must then be what it was, to the bit. Both are tried in each process
before its first episode; where neither holds, a state says so, and a resume begins the episode anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from trainer.envs.snapshots import SnapshotWay, way_of
from trainer.envs.spaces import Actions, Box, Discrete, Obs, drawn_actions
from trainer.envs.suite import TOLD, EpisodeLostError, Outcome
from trainer.machine.shortage import is_for_a_moment
from trainer.state import State

#: The ways beside those of `snapshots`.
REPLAY, ANEW = "replay", "anew"
#: Steps of a check before its snapshot, and after it. A clock or a foreign random source shows in the first of them.
CHECKED_STEPS = 12
#: So often: what is missing may matter now and then only.
CHECKS = 4
#: After so long no further check is made. An environment that takes `suite.BEGIN_S` for the first one is too slow to be
#: trained on, and ends with that sentence.
CHECK_S = 60.0
#: Many environments keep their seed in a number with a sign.
SEEDS = 2**31
#: Steps of an episode before that one: what an instance did must not matter.
_EARLIER_STEPS = 5
#: How a state's tensors are named: the last observation's, and those of the environment's own state.
_LAST, _OWN = "last.", "own."


class PlayedEnv(Protocol):
    """An environment as its suite plays it; `upstream` is what its state is taken of. Errors: whatever they like."""

    @property
    def upstream(self) -> Any:
        """The environment itself, with its wrappers."""

    def reset(self, seed: int) -> Obs:
        """Begin an episode that depends on the seed alone."""

    def step(self, action: Actions) -> Outcome:
        """Act."""

    def close(self) -> None:
        """Free it."""


@dataclass(frozen=True)
class Exactness:
    """How states are taken. `told`: what a user should know of it, in a sentence."""

    way: str
    told: str | None = None


class StepError(Exception):
    """What an environment did wrong, and at which step of which episode."""


class ExactEnv:
    """`played` as an `Env` (`trainer.envs.suite`) without fixed starts. Errors of `reset` and `step`: StepError."""

    def __init__(self, played: PlayedEnv, choice: Exactness) -> None:
        self._played = played
        self._choice = choice
        self._chosen: SnapshotWay | None = None if choice.way in {REPLAY, ANEW} else way_of(played.upstream)
        #: By which this episode's state is taken: the chosen one, or that which it was put back by.
        self._way = self._chosen
        self._seed = 0
        self._steps = 0
        self._last: Outcome | None = None
        #: Of this episode, to play it again; None where nobody will, or where it did not begin here.
        self._actions: list[npt.NDArray[Any]] | None = None

    @property
    def simulation(self) -> Any:
        """MuJoCo's (model, data), to draw from, where it has them (`trainer.envs.shown`)."""
        return getattr(self._played, "simulation", None)

    @property
    def camera(self) -> Any:
        """Where it is looked at from, where it says so."""
        return getattr(self._played, "camera", None)

    @property
    def goal(self) -> Any:
        """The place that its agent is to reach, where it says so."""
        return getattr(self._played, "goal", None)

    def reset(self, start: int, seed: int) -> Obs:  # noqa: ARG002 - there are no fixed starts
        self._seed, self._steps = seed % SEEDS, 0
        self._way = self._chosen
        self._actions = [] if self._choice.way == REPLAY else None
        try:
            obs = self._played.reset(self._seed)
        except Exception as error:
            raise StepError(f"at its reset with seed {self._seed}: {str(error) or type(error).__name__}") from error
        self._last = Outcome(obs, 0.0, terminated=False, truncated=False, success=False)
        return obs

    def step(self, action: Actions) -> Outcome:
        self._steps += 1
        try:
            outcome = self._played.step(action)
        except Exception as error:
            words = str(error) or type(error).__name__
            raise StepError(f"at step {self._steps} of its episode with seed {self._seed}: {words}") from error
        if self._actions is not None:
            self._actions.append(np.array(action))
        self._last = outcome
        return outcome

    def snapshot(self) -> State:
        """Its state, or what it takes to play the episode again. Where it cannot be taken any more, that alone. Errors:
        whatever is for a moment (`is_for_a_moment`): the job after this one plays the episode on.
        """
        try:
            return self.taken()
        except Exception as error:  # somebody else's code, which plays on
            if is_for_a_moment(error):
                raise
            why = " ".join(str(error).split()) or type(error).__name__
            told = f"its state could not be taken ({why}), so a resume restarts this episode"
            return State({}, {"way": ANEW, "seed": self._seed, "steps": self._steps, TOLD: told})

    def taken(self) -> State:
        """As `snapshot`. Errors: whatever its own snapshot raises, also where a file cannot keep what it gives."""
        way, told = self._choice.way, self._choice.told
        tensors: dict[str, npt.NDArray[Any]] = {}
        more: dict[str, Any] = {}
        if self._last is not None and self._way is not None:
            own = self._way.take()
            _through_a_file(own)
            way, told, more = self._way.name, None, {"own": own.numbers}
            tensors = {f"{_OWN}{name}": array for name, array in own.tensors.items()}
        elif self._last is not None and self._actions is not None:
            tensors = {"actions": np.array(self._actions), **_last_of(self._last)}
        elif way != ANEW:
            way, told = ANEW, "the method of its snapshots changed in mid-episode: it restarts"
        return State(tensors, {"way": way, "seed": self._seed, "steps": self._steps, TOLD: told, **more})

    def restore(self, state: State) -> None:
        """Go on from there. Errors: EpisodeLostError where the episode cannot be brought back; whatever is for a
        moment (`is_for_a_moment`): the job after this one may bring it back.
        """
        numbers = state.numbers
        way = numbers["way"]
        if way == ANEW:
            raise EpisodeLostError(numbers[TOLD])
        try:
            self.reset(0, int(numbers["seed"]))
            if way == REPLAY:
                self._play_again(state)
            else:
                self._put(state)
        except EpisodeLostError:
            raise
        except Exception as error:
            if is_for_a_moment(error):
                raise
            words = str(error) or type(error).__name__
            raise EpisodeLostError(f"its episode cannot be restored ({words})") from error

    def close(self) -> None:
        self._played.close()

    def _play_again(self, state: State) -> None:
        for action in state.tensors["actions"]:
            self.step(action)
        if self._last is None or not _same(_last_of(self._last), state):
            raise EpisodeLostError(f"its episode, replayed from seed {self._seed}, differs after {self._steps:,} steps")

    def _put(self, state: State) -> None:
        way = self._way or way_of(self._played.upstream)
        if way is None or way.name != state.numbers["way"]:
            raise EpisodeLostError(f"its state was taken by {state.numbers['way']!r}, which is not possible here")
        own = {name.removeprefix(_OWN): array for name, array in state.tensors.items() if name.startswith(_OWN)}
        way.put(State(own, state.numbers["own"]))
        self._steps, self._actions = int(state.numbers["steps"]), None


def choose_exactness(
    make: Callable[[], PlayedEnv], action: Box | Discrete, clock: Callable[[], float] = time.monotonic
) -> Exactness:
    """The best way that holds for what `make` makes, tried on a few steps. Errors: those of `make`; whatever is for a
    moment (`is_for_a_moment`), which says nothing of a way.
    """
    with closing(make()) as probe:
        way = way_of(probe.upstream)
    told = None
    for name in ([] if way is None else [way.name]) + [REPLAY]:
        why = _why_not(make, name, action, clock)
        if why is None:
            return Exactness(name, told)
        told = f"its own state is not exact ({why}); a resume replays its episodes"
    return Exactness(ANEW, f"it cannot be restored in mid-episode ({why}): a resume restarts its episodes")


def _why_not(make: Callable[[], PlayedEnv], way: str, action: Box | Discrete, clock: Callable[[], float]) -> str | None:
    """Why `way` does not hold; None: it does. Errors: whatever is for a moment."""
    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        one, other = (ExactEnv(stack.enter_context(closing(make())), Exactness(way)) for _ in range(2))
        began = clock()
        try:
            one.reset(0, 0)
            _bits(one, list(drawn_actions(rng, action, _EARLIER_STEPS)))
            for seed in range(CHECKS):
                one.reset(0, seed)
                _through_a_file(one.taken())  # what is infinite before the first step cannot be kept
                for number, each in enumerate(drawn_actions(rng, action, CHECKED_STEPS)):
                    outcome = one.step(each)
                    if outcome.terminated or outcome.truncated:
                        one.reset(0, CHECKS + number)
                state = _through_a_file(one.taken())
                then = list(drawn_actions(rng, action, CHECKED_STEPS))
                expected = _bits(one, then)
                for env in (other, one):
                    env.restore(state)
                    if _bits(env, then) != expected:
                        return "the same actions give different steps"
                if clock() - began >= CHECK_S:
                    break
        except Exception as error:
            if is_for_a_moment(error):
                raise
            if way == REPLAY and isinstance(error, EpisodeLostError):
                # In the same words in every process, so that they are said once.
                return "a replayed episode differs"
            return " ".join(str(error).split()) or type(error).__name__
    return None


def _through_a_file(state: State) -> State:
    numbers = json.loads(json.dumps(state.numbers, allow_nan=False))
    return State(load(save(dict(state.tensors))), numbers)


def _bits(env: ExactEnv, actions: Sequence[Actions]) -> list[tuple[Any, ...]]:
    """What `actions` give, to the end of the episode at most."""
    seen = []
    for action in actions:
        outcome = env.step(action)
        seen.append(tuple((name, array.tobytes()) for name, array in sorted(_last_of(outcome).items())))
        if outcome.terminated or outcome.truncated:
            break
    return seen


def _last_of(outcome: Outcome) -> dict[str, npt.NDArray[Any]]:
    """All that a step gave, as arrays."""
    flags = (outcome.terminated, outcome.truncated, outcome.success)
    obs = {f"{_LAST}obs.{key}": np.array(array) for key, array in outcome.obs.items()}
    return {**obs, f"{_LAST}reward": np.array([outcome.reward], np.float64), f"{_LAST}flags": np.array(flags, np.bool_)}


def _same(found: dict[str, npt.NDArray[Any]], state: State) -> bool:
    return all(
        name in state.tensors
        and (array.dtype, array.shape) == (state.tensors[name].dtype, state.tensors[name].shape)
        and array.tobytes() == state.tensors[name].tobytes()
        for name, array in found.items()
    )
