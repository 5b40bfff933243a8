"""Which segments are simulated again before their rows enter, and how: the same start, the same actions, and the same
must come out.

Of each contributor the first `FIRST` episodes that an attempt judges, whole or as many beginnings as have their rows,
then a share that nobody can foresee. It falls as more rows of its sender have passed (BOINC's adaptive replication),
down to the run's own (`contribution_check_share`), and is five times as much for a contributor who was held lately. So
a lie enters at times; as soon as one is found, all that its sender ever gave leaves the ring again.

A reset is a function of task and start, and where a suite has fixed starts (Meta-World's goals) the first observation
of an episode says which it was; the actions say all the rest. The episode is stepped by the native stepper where the
learner's are; both paths give the same bits (`trainer.envs.native.verdicts`). Another type of processor may round
otherwise. The widest gap that was measured between honest machines is 1.3e-3, and no lie that was tried (false rewards,
shifted or swapped rows, other goals) stayed below `TOLERANCE`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trainer.envs.episodes import EnvInstances
from trainer.envs.shared import SharedBuffers
from trainer.envs.spaces import F32, STATE
from trainer.envs.suite import Env, EpisodeStats, StepFaultError, StepperChoice, SuiteRef
from trainer.sharing.segment import Segment

#: Episodes: enough to show that somebody's machine and version do the same as ours, a second of one core.
FIRST = 20
#: How much more often a contributor who was held lately is checked.
IN_DOUBT = 5.0
#: Metres, quaternion parts, and points of reward.
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Redone:
    """What came out. `gap`: the largest difference of a number; 0.0 where every bit is the same. `rows`: steps done.

    `wrong`: one sentence where it is not what was sent, else empty.
    """

    gap: float
    rows: int
    wrong: str = ""


class Resimulator:
    """Does segments of the tasks of `suite` again, at the run's own starts. For one thread.

    It builds a task's environment when it first needs it (0.1 s, 20 MiB) and keeps it. Errors of the constructor:
    StepperUnavailableError where `stepper` is "native" and cannot be had.
    """

    def __init__(self, suite: SuiteRef, stepper: StepperChoice = "auto") -> None:
        opened = suite.open()
        self._suite, self._tasks = opened, opened.spaces.tasks
        self._instances = EnvInstances(opened)
        self._native = opened.stepped_natively(stepper)
        self._buffers = SharedBuffers(opened.spaces, 1, measures=len(suite.settings.MEASURES))
        self._stepper = opened.stepper(1, self._buffers.fields, 1, stop_at_success=False) if self._native else None
        self._binding = self._stepper.bind(0, 0) if self._stepper else None
        self._starts: dict[tuple[int, int], F32] = {}

    def redo(self, segment: Segment) -> Redone:
        """Do `segment`, the beginning of an episode of one of the tasks, again from its first observation."""
        task = self._tasks.index(segment.task)
        env = self._instances.borrow(task)
        try:
            begin, gap = self._start_of(env, task, segment.obs[0])
            if not gap <= TOLERANCE:
                return Redone(gap, 0, "its first observation belongs to none of this task's goals")
            self._instances.reset(env, task, begin)
            for step, (observed, reward, ended) in enumerate(self._play(env, task, segment.action)):
                sent = segment.obs[step + 1], segment.reward[step]
                off = max(float(np.abs(observed - sent[0]).max()), abs(float(reward - sent[1])))
                gap = max(gap, off)
                if not off <= TOLERANCE:
                    return Redone(gap, step + 1, _words(step, observed, reward, sent[0], sent[1]))
                if ended != bool(segment.terminated[step]):
                    what = "ends the episode, but the segment continues it" if ended else "does not end the episode"
                    return Redone(gap, step + 1, f"repeated step {step} {what}")
        except (StepFaultError, ValueError) as error:
            return Redone(float("inf"), 0, f"its actions cannot be repeated ({error})")
        finally:
            self._instances.give_back(task, env)
        return Redone(gap, segment.steps)

    def close(self) -> None:
        """Free the environments."""
        if self._stepper is not None:
            self._stepper.close()
        self._buffers.close()
        self._instances.close()

    def _start_of(self, env: Env, task: int, first: F32) -> tuple[int, float]:
        """(the start whose first observation is `first` or nearest to it, how far it is off).

        Those that the suite takes for likely are tried first, and the same bits end the search.
        """
        best, least = 0, float("inf")
        for number in self._suite.starts_near(task, {STATE: first}):
            start = self._starts.get((task, number))
            if start is None:
                start = self._starts[task, number] = self._instances.reset(env, task, number)[STATE]
            gap = float(np.abs(start - first).max())
            if gap < least:
                best, least = number, gap
            if gap == 0.0:
                break
        return best, least

    def _play(self, env: Env, task: int, actions: F32) -> Iterator[tuple[F32, np.float32, bool]]:
        """(observation [O], reward, whether it terminated) after each of `actions` [T, A], from the state that `env` is
        in.
        """
        if self._stepper is None or self._binding is None or task not in self._native:
            for action in actions:
                outcome = env.step(action)
                yield outcome.obs[STATE], np.float32(outcome.reward), bool(outcome.terminated)
            return
        fields = self._buffers.fields
        self._binding.take(env, task, EpisodeStats())
        try:
            for action in actions:
                fields["actions"][0] = action
                self._stepper.step()
                yield self._buffers.next_obs[STATE][0], fields["reward"][0], bool(fields["terminated"][0])
        finally:
            self._binding.leave()


def _words(step: int, observed: F32, reward: np.float32, sent: F32, claimed: np.float32) -> str:
    if abs(float(reward - claimed)) > TOLERANCE:
        return f"repeated step {step} gives a reward of {reward:.4g} and not of {claimed:.4g}"
    worst = int(np.abs(observed - sent).argmax())
    return (
        f"repeated step {step} differs: number {worst} of the observation is {observed[worst]:.4g} "
        f"and not {sent[worst]:.4g}"
    )


def share(wanted: float, passed: float, *, in_doubt: bool) -> float:
    """The part of a contributor's segments that is checked after the rows of `passed` episodes came out as they were
    sent. Pure. The way from the first ones to `wanted` is gone at any rate: it costs FIRST * ln(1 / wanted) checks.
    """
    unproven = FIRST / max(passed, FIRST)
    usual = wanted * (IN_DOUBT if in_doubt else 1.0)
    return min(1.0, max(usual, unproven if unproven > wanted > 0 else 0.0))


class SpotChecks:
    """Checks for one slot. `wanted`: the share of the segments to do again. `chance`: uniform in [0, 1), secret."""

    def __init__(
        self,
        make: Callable[[], Resimulator | None],
        wanted: float,
        *,
        chance: Callable[[], float] = random.SystemRandom().random,
    ) -> None:
        self._make, self._wanted, self._chance = make, wanted, chance
        self._redo: Resimulator | None = None
        self._is_made = False
        self._passed: dict[str, int] = {}  # rows

    @property
    def can_repeat(self) -> bool:
        """Whether this run's environments can be done again at all. Makes them ready when asked first."""
        if not self._is_made:
            self._redo, self._is_made = self._make(), True
        return self._redo is not None

    def check(self, who: str, segment: Segment, *, in_doubt: bool) -> Redone | None:
        """What came out where `segment` of `who` was done again; None where it was not its turn.

        A sender who fails begins anew: its next segments are all checked.
        """
        passed = self._passed.get(who, 0)
        episodes = passed / segment.horizon
        if episodes >= FIRST and self._chance() >= share(self._wanted, episodes, in_doubt=in_doubt):
            return None
        if not self.can_repeat or self._redo is None:
            return None
        done = self._redo.redo(segment)
        self._passed[who] = 0 if done.wrong else passed + segment.steps
        return done

    def close(self) -> None:
        """Free the environments."""
        if self._redo is not None:
            self._redo.close()
            self._redo = None
