"""Both paths side by side: whether arms step natively as they do in Python, to the last bit."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from trainer.config.suites import Arm
from trainer.envs.native import verdicts
from trainer.envs.shared import SharedBuffers
from trainer.envs.spaces import STATE
from trainer.envs.suite import EpisodeStats, StepFaultError
from trainer.envs.suites.arm.env import ArmEnv
from trainer.envs.suites.arm.native.library import ArmLibrary, ArmRows, load
from trainer.envs.suites.arm.shapes import JOINTS, spaces

#: Of each of two episodes.
_STEPS = 60
#: An action lasts so many: enough to reach limits and the table.
_TURN = 10
#: When the goal comes to the hand, and how near, metres.
_MEET, _NEAR = 35, 0.02
#: Packages whose version may change a bit of a step.
_PACKAGES = ("mujoco", "numpy")
_SUITE = Path(__file__).parents[1]

_log = logging.getLogger(__name__)


def name_of(settings: Arm) -> str:
    """What is judged: all that the stepper does differently by `settings`."""
    more = [name for name in ("end_on_success", "randomize") if getattr(settings, name)]
    return " ".join([settings.reward, settings.observation, *more])


def approved(settings: Arm) -> frozenset[str]:
    """The name of `settings` where arms of them step alike on both paths. Errors: StepperUnavailableError."""
    library = load()
    name = name_of(settings)
    return verdicts.approved(library, [name], _PACKAGES, _SUITE, lambda _: steps_alike(library, settings))


def steps_alike(library: ArmLibrary, settings: Arm) -> bool:
    """Two episodes of actions that go one way for a while, and farther than they may, side by side on both paths."""
    settings = settings.model_copy(update={"horizon": _STEPS})
    buffers = SharedBuffers(spaces(settings), 1, measures=len(settings.MEASURES))
    rows = ArmRows(library, 1, buffers.fields, 1, _STEPS)
    binding, ours, theirs = rows.bind(0, 0), ArmEnv(settings), ArmEnv(settings)
    rng = np.random.default_rng(0)
    try:
        for seed in range(2):
            ours.reset(0, seed)
            theirs.reset(0, seed)
            binding.take(ours, 0, EpisodeStats())
            actions = rng.uniform(-1.5, 1.5, (_STEPS // _TURN, JOINTS)).astype(np.float32).repeat(_TURN, axis=0)
            for step, action in enumerate(actions):
                if step == _MEET:  # so that what happens at the goal is compared as well
                    ours.data.mocap_pos[0] = theirs.data.mocap_pos[0] = theirs.data.site_xpos[theirs.grip] + _NEAR
                buffers.fields["actions"][0] = action
                rows.step()
                outcome = theirs.step(action)
                row = rows.rows[0]
                seen = buffers.next_obs[STATE][0].tobytes(), row["reward"].tobytes(), bool(buffers.fields["success"][0])
                if seen != (outcome.obs[STATE].tobytes(), np.float64(outcome.reward).tobytes(), outcome.success):
                    return False
            binding.read()
            if not verdicts.are_same(ours.snapshot(), theirs.snapshot()):
                return False
    except (StepFaultError, ValueError) as error:
        _log.warning("the check of the arm failed: %s", error)
        return False
    finally:
        rows.close()
        buffers.close()
    return True
