"""Experience done again: the same start, the same actions, and the same must come out.

A reset is a function of task and start, and where a suite has fixed starts (Meta-World's goals) the first observation
of an episode says which it was; the actions say all the rest. A sender of rewards that he did not get, observations
that nobody saw, or an end that did not come, is found out by doing it. The episode is stepped by the native stepper
where the learner's are; both paths give the same bits (`trainer.envs.native.verdicts`).

Another type of processor may round otherwise. The widest gap that was measured between honest machines is 1.3e-3, and
no lie that was tried (false rewards, shifted or swapped rows, other goals) stayed below `TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainer.envs.instances import EnvInstances
from trainer.envs.shared import SharedBuffers
from trainer.envs.spaces import F32, STATE
from trainer.envs.suite import Env, EpisodeStats, StepFaultError, StepperChoice, SuiteRef
from trainer.sharing.segment import Segment
from trainer.sharing.spotcheck import Redone

#: Metres, quaternion parts, and points of reward.
TOLERANCE = 1e-2


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
                return Redone(gap, 0, "its first observation is that of none of this task's goals")
            self._instances.reset(env, task, begin)
            for step, (observed, reward, ended) in enumerate(self._play(env, task, segment.action)):
                sent = segment.obs[step + 1], segment.reward[step]
                off = max(float(np.abs(observed - sent[0]).max()), abs(float(reward - sent[1])))
                gap = max(gap, off)
                if not off <= TOLERANCE:
                    return Redone(gap, step + 1, _words(step, observed, reward, sent[0], sent[1]))
                if ended != bool(segment.terminated[step]):
                    what = "ends the episode, which was sent as going on" if ended else "does not end the episode"
                    return Redone(gap, step + 1, f"done again, step {step} {what}")
        except (StepFaultError, ValueError) as error:
            return Redone(float("inf"), 0, f"its actions cannot be done ({error})")
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
        return f"done again, step {step} gives a reward of {reward:.4g} and not of {claimed:.4g}"
    worst = int(np.abs(observed - sent).argmax())
    return (
        f"done again, step {step} leads elsewhere: number {worst} of the observation is {observed[worst]:.4g} "
        f"and not {sent[worst]:.4g}"
    )
