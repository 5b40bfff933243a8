"""An arm to look at: one that is reset by its seed, as evaluations do, and drawn."""

from __future__ import annotations

from typing import Any

from trainer.config.pictures import OF_PICTURES
from trainer.config.suites import Arm
from trainer.envs.spaces import Actions, Obs
from trainer.envs.suite import Outcome
from trainer.envs.suites.arm.env import ArmEnv
from trainer.envs.suites.arm.gym import ArmReach

#: Pixels a side: what the scene's buffer holds.
SIZE = 480


class WatchedArm:
    """`upstream` is the Gymnasium environment that draws it."""

    def __init__(self, settings: Arm) -> None:
        own = settings.model_dump(exclude={"name", "tasks", "observation", *OF_PICTURES})
        self.upstream = ArmReach("rgb_array", width=SIZE, height=SIZE, **own)
        self.upstream.arm = ArmEnv(settings)  # which shows what the policy is to see

    def reset(self, seed: int) -> Obs:
        """Begin the episode that `seed` decides."""
        return self.upstream.arm.reset(0, seed)

    def step(self, action: Actions) -> Outcome:
        """Act."""
        return self.upstream.arm.step(action)

    def picture(self) -> Any:
        """As it looks now, uint8 [H, W, 3]."""
        return self.upstream.render()

    def close(self) -> None:
        """Free the renderer."""
        self.upstream.close()
