"""The fields of a row of experience, and batches of rows. Task and age are implied by where a row lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import F32, I64, Actions, Obs, Spaces

#: Field → (the shape of one row of it, its type).
Fields = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
Rows = Mapping[str, npt.NDArray[Any]]

OBS, NEXT_OBS = "obs.", "next_obs."
#: How many steps a row's reward sums up, where a row may be of more than one.
STEPS = "steps"


def fields_of(spaces: Spaces) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """What a transition has: `obs.<key>`, `action`, `reward`, `next_obs.<key>`, `terminated`."""
    fields = {f"{OBS}{key}": (spec.shape, np.dtype(spec.dtype)) for key, spec in spaces.obs.items()}
    fields["action"] = (spaces.action.shape, np.dtype(spaces.action.dtype))
    fields["reward"] = ((), np.dtype(np.float32))
    fields |= {f"{NEXT_OBS}{key}": (spec.shape, np.dtype(spec.dtype)) for key, spec in spaces.obs.items()}
    fields["terminated"] = ((), np.dtype(np.uint8))
    return fields


def with_steps(fields: Fields) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """`fields`, and how many steps each row is of: below 256."""
    return {**fields, STEPS: ((), np.dtype(np.uint8))}


def rows_of(obs: Obs, action: Actions, reward: F32, next_obs: Obs, terminated: npt.NDArray[Any]) -> dict[str, Any]:
    """Transitions as the rows of a buffer."""
    return {
        **{f"{OBS}{key}": array for key, array in obs.items()},
        "action": action,
        "reward": reward,
        **{f"{NEXT_OBS}{key}": array for key, array in next_obs.items()},
        "terminated": terminated,
    }


@dataclass(frozen=True)
class Batch:
    """B transitions, [B, …] each: `obs` and `next_obs` by key, `reward` and `terminated` float32.

    `steps` (float32): how many lie between `obs` and `next_obs`, whose discounted rewards `reward` sums up; None: one.
    """

    obs: Obs
    action: Actions
    reward: F32
    next_obs: Obs
    terminated: F32
    task: I64
    steps: F32 | None = None

    @classmethod
    def of(cls, rows: Rows, places: npt.NDArray[Any], task: I64) -> Batch:
        """The `places` of `rows`, which are of `task`."""
        return cls(
            obs={name.removeprefix(OBS): array.take(places, 0) for name, array in rows.items() if name.startswith(OBS)},
            action=rows["action"].take(places, 0),
            reward=rows["reward"].take(places, 0),
            next_obs={
                name.removeprefix(NEXT_OBS): array.take(places, 0)
                for name, array in rows.items()
                if name.startswith(NEXT_OBS)
            },
            terminated=rows["terminated"].take(places, 0).astype(np.float32),
            task=task,
            steps=rows[STEPS].take(places, 0).astype(np.float32) if STEPS in rows else None,
        )


def joined(one: Batch, other: Batch) -> Batch:
    """Both in one batch, `one` first; the fields of both are the same."""
    return Batch(
        obs={key: np.concatenate([array, other.obs[key]]) for key, array in one.obs.items()},
        action=np.concatenate([one.action, other.action]),
        reward=np.concatenate([one.reward, other.reward]),
        next_obs={key: np.concatenate([array, other.next_obs[key]]) for key, array in one.next_obs.items()},
        terminated=np.concatenate([one.terminated, other.terminated]),
        task=np.concatenate([one.task, other.task]),
        steps=None if one.steps is None or other.steps is None else np.concatenate([one.steps, other.steps]),
    )
