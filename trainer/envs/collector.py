"""N environments and where they stand: training, evaluation and actors step through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trainer.envs.spaces import Actions, Obs, Spaces
from trainer.envs.step import Observed, Step
from trainer.state import State


class Envs(Protocol):
    """What is needed of `trainer.envs.vector.VectorEnv`."""

    num_envs: int
    spaces: Spaces

    @property
    def stepping(self) -> dict[str, str]:
        """Task name → what steps it."""

    def reset(self) -> Observed:
        """Start afresh."""

    def step_async(self, actions: Actions, *, beside: bool = True) -> None:
        """Begin to act in every environment. `beside`: whether something is done before `step_wait`."""

    def step_wait(self) -> Step:
        """What came of it."""

    def snapshot(self) -> State:
        """Everything that `restore` needs."""

    def restore(self, state: State) -> Observed:
        """Go on from there."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Transition:
    """What one vector step was: `action` in `obs`, and the step that came of them."""

    obs: Obs
    action: Actions
    step: Step


class Collector:
    """`envs`, begun or restored, and where they stand: `obs` by key [N, …], `task` [N] (`NO_TASK`: its script is over).

    Errors of every method: those of `envs`.
    """

    def __init__(self, envs: Envs, state: State | None = None) -> None:
        """Begin afresh, or go on from `state`."""
        self.envs = envs
        observed = envs.restore(state) if state is not None else envs.reset()
        self.obs, self.task = observed.obs, observed.task
        #: [N] whose episode is another one than `state` has; None: nobody's.
        self.anew = observed.anew
        self._actions: Actions | None = None

    @property
    def num_envs(self) -> int:
        """N."""
        return self.envs.num_envs

    def begin(self, actions: Actions, *, beside: bool = True) -> None:
        """Begin to act; `wait` must follow. `beside`: whether something is done between the two."""
        self._actions = actions
        self.envs.step_async(actions, beside=beside)

    def wait(self) -> Transition:
        """What came of it; `obs` and `task` are then what to act on."""
        if self._actions is None:
            raise RuntimeError("call begin() before wait()")
        step = self.envs.step_wait()
        transition = Transition(self.obs, self._actions, step)
        self.obs, self.task, self._actions = step.obs, step.next_task, None
        return transition

    def step(self, actions: Actions) -> Transition:
        """Both at once."""
        self.begin(actions, beside=False)
        return self.wait()

    def state(self) -> State:
        """All environments, between two steps."""
        return self.envs.snapshot()
