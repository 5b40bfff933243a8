"""The fields of a row of experience, and batches of rows. Task and age are implied by where a row lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from anchorleg.errors import NamedError
from trainer.envs.spaces import F32, I64, Actions, Obs, Spaces
from trainer.machine.device import on_device

#: Field → (the shape of one row of it, its type).
Fields = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
Rows = Mapping[str, npt.NDArray[Any]]
Numbers = npt.NDArray[Any] | Tensor

OBS, NEXT_OBS = "obs.", "next_obs."
#: How many steps a row's reward sums up, where a row may be of more than one.
STEPS = "steps"


class BadRowsError(NamedError, ValueError):
    """Rows of a file that do not fit their ring."""


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
    Where the replay lies on a device all but `task` are tensors there, else arrays.
    """

    obs: Mapping[str, Numbers]
    action: Numbers
    reward: Numbers
    next_obs: Mapping[str, Numbers]
    terminated: Numbers
    task: I64
    steps: Numbers | None = None

    @classmethod
    def of(cls, rows: Mapping[str, Numbers], task: I64) -> Batch:
        """`rows` [B, …] of each field of a replay, or what `arrays` gave, which are of `task`."""
        return cls(
            obs={name.removeprefix(OBS): numbers for name, numbers in rows.items() if name.startswith(OBS)},
            action=rows["action"],
            reward=rows["reward"],
            next_obs={name.removeprefix(NEXT_OBS): row for name, row in rows.items() if name.startswith(NEXT_OBS)},
            terminated=_as_float(rows["terminated"]),
            task=task,
            steps=_as_float(rows[STEPS]) if STEPS in rows else None,
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it, on the host, by the names of rows' fields, and `task`."""
        obs, next_obs = ({key: _on_host(x) for key, x in seen.items()} for seen in (self.obs, self.next_obs))
        rows = rows_of(obs, _on_host(self.action), _on_host(self.reward), next_obs, _on_host(self.terminated))
        return {**rows, "task": self.task, **({} if self.steps is None else {STEPS: _on_host(self.steps)})}


def joined(one: Batch, other: Batch) -> Batch:
    """Both in one batch, `one` first, and where its numbers lie; the fields of both are the same."""
    return Batch(
        obs={key: _after(numbers, other.obs[key]) for key, numbers in one.obs.items()},
        action=_after(one.action, other.action),
        reward=_after(one.reward, other.reward),
        next_obs={key: _after(numbers, other.next_obs[key]) for key, numbers in one.next_obs.items()},
        terminated=_after(one.terminated, other.terminated),
        task=np.concatenate([one.task, other.task]),
        steps=None if one.steps is None or other.steps is None else _after(one.steps, other.steps),
    )


def _after(one: Numbers, other: Numbers) -> Numbers:
    if isinstance(one, Tensor):
        return torch.cat([one, on_device(other, one.device)])
    return np.concatenate([one, other])


def _on_host(numbers: Numbers) -> npt.NDArray[Any]:
    return numbers.cpu().numpy() if isinstance(numbers, Tensor) else numbers


def _as_float(numbers: Numbers) -> Numbers:
    return numbers.float() if isinstance(numbers, Tensor) else numbers.astype(np.float32)
