"""Whether a training can learn from the steps of others at all."""

from __future__ import annotations

from trainer.config.training import Training
from trainer.envs.spaces import STATE, Discrete, Spaces
from trainer.envs.suite import Suite
from trainer.sharing.segment import MAX_RAW_BYTES, can_hold_whole, can_record


def why_none(training: Training, suite: Suite) -> str | None:
    """Why nothing of others can be learned from here; None: it can."""
    if not training.uses_experience:
        return f"{training.algorithm.name} learns from its own steps alone"
    if training.env.draws != "no":
        return "its policy sees pictures, and segments of others hold rows of numbers alone"
    if suite.bounds is None:
        return f"the suite {training.env.name} does not say what honest experience obeys (its bounds)"
    if not can_record(suite.spaces):
        return (
            f"segments hold one row of real numbers seen ({STATE!r}) and done, and environments of the suite "
            f"{training.env.name} have {_kinds(suite.spaces)}"
        )
    if not can_hold_whole(suite.spaces):
        return (
            f"an episode of {suite.spaces.horizon:,} steps takes more than the {MAX_RAW_BYTES // 1024} KiB that a "
            "segment may have"
        )
    return None


def _kinds(spaces: Spaces) -> str:
    seen = ", ".join(f"{key!r} of {array.dtype} {list(array.shape)}" for key, array in sorted(spaces.obs.items()))
    done = f"one of {spaces.action.n} actions" if isinstance(spaces.action, Discrete) else "actions of real numbers"
    return f"observations {seen} and {done}"
