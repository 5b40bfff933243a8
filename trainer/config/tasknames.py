"""The names of the Meta-World v3 tasks, in Meta-World's own order. A login node reads this too.

Source: `metaworld.env_dict` 3.1.1 (`MT10_V3`, `MT50_V3`); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from anchorleg.words import did_you_mean
from trainer.errors import FieldError

#: The ten tasks of MT10. A task's place here is its index, which the one-hot id is made of.
MT10: tuple[str, ...] = (
    "reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "drawer-close-v3",
    "button-press-topdown-v3", "peg-insert-side-v3", "window-open-v3", "window-close-v3",
)  # fmt: skip

#: All fifty v3 tasks.
MT50: tuple[str, ...] = (
    "assembly-v3", "basketball-v3", "bin-picking-v3", "box-close-v3", "button-press-topdown-v3",
    "button-press-topdown-wall-v3", "button-press-v3", "button-press-wall-v3", "coffee-button-v3", "coffee-pull-v3",
    "coffee-push-v3", "dial-turn-v3", "disassemble-v3", "door-close-v3", "door-lock-v3", "door-open-v3",
    "door-unlock-v3", "hand-insert-v3", "drawer-close-v3", "drawer-open-v3", "faucet-open-v3", "faucet-close-v3",
    "hammer-v3", "handle-press-side-v3", "handle-press-v3", "handle-pull-side-v3", "handle-pull-v3", "lever-pull-v3",
    "pick-place-wall-v3", "pick-out-of-hole-v3", "pick-place-v3", "plate-slide-v3", "plate-slide-side-v3",
    "plate-slide-back-v3", "plate-slide-back-side-v3", "peg-insert-side-v3", "peg-unplug-side-v3", "soccer-v3",
    "stick-push-v3", "stick-pull-v3", "push-v3", "push-wall-v3", "push-back-v3", "reach-v3", "reach-wall-v3",
    "shelf-place-v3", "sweep-into-v3", "sweep-v3", "window-open-v3", "window-close-v3",
)  # fmt: skip

#: Benchmark name → its tasks.
BENCHMARKS: dict[str, tuple[str, ...]] = {"MT10": MT10, "MT50": MT50}

#: Goals that Meta-World fixes for each task of a benchmark (`metaworld._N_GOALS`).
GOALS_PER_TASK = 50

#: Steps after which Meta-World truncates an episode (`SawyerXYZEnv.max_path_length`); it refuses to step any further.
MAX_HORIZON = 500


def checked_tasks(names: Sequence[str]) -> tuple[str, ...]:
    """`names` if they are v3 tasks. Errors: FieldError with the nearest known name."""
    for name in names:
        if name not in MT50:
            hint = did_you_mean(name, MT50, "task names end in -v3, such as 'reach-v3'")
            raise FieldError("env.unknown-task", task=name, hint=hint)
    return tuple(names)
