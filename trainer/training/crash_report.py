"""What a training that has diverged leaves behind: `diverged.json` in its attempt's folder, for people to look into.

Plain JSON of bounded size (some kB a task and a layer, whatever the buffer and the widths). A number that is not finite
is its name, "nan", "inf" or "-inf". Nothing reads it again: not a resume, and not the other machines.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from anchorleg.files import write_json
from anchorleg.job import Job
from trainer.buffers.replay import Ring
from trainer.errors import NotFiniteError
from trainer.history.read import rows_of
from trainer.training.run import TrainingRun

FILE = "diverged.json"
#: Updates whose losses are kept, the first that is not finite among them: how it came.
_LAST_UPDATES = 20
#: Settings that an algorithm may have → what to do with them.
_GENTLER = {"learning_rate": "a smaller learning_rate", "grad_clip": "grad_clip 1.0"}


def write_crash_report(
    job: Job, state: TrainingRun, error: NotFiniteError, checkpoint_step: int | None
) -> NotFiniteError:
    """Write the file. Returns `error` with a sentence that also names the file, or why there is none, and what to do.

    `checkpoint_step`: the newest published checkpoint, which is from before; None: there is none.
    """
    path = job.attempt_dir / FILE
    value = {
        "what": error.what,
        "update": error.update,
        "attempt": job.attempt,
        "checkpoint_step": checkpoint_step,
        **describe(state, error.update),
    }
    try:
        last = deque(rows_of(job.slot_dir), maxlen=1)
        write_json(path, {**value, "last_row": last[0] if last else None})
        told = f"{path} tells more"
    except OSError as trouble:
        told = f"{path} could not be written ({trouble.strerror or trouble})"
    known = type(state.training.algorithm).model_fields.keys()
    gentler = " or ".join(words for name, words in _GENTLER.items() if name in known) or "smaller steps"
    about: dict[str, Any] = {"what": error.what, "update": error.update, "checkpoint_step": checkpoint_step}
    return NotFiniteError(
        "learning.diverged-unsaved" if checkpoint_step is None else "learning.diverged",
        why=error,
        told=told,
        gentler=gentler,
        **about,
    )


def describe(state: TrainingRun, update: int | None) -> dict[str, Any]:
    """The state of a run that goes on no more, JSON-able. `update`: the first whose loss was not finite.

    `losses`: of the last updates up to that one, as far as no row has summed them up. `tensors`: every number that is
    learned, with Adam's moments. `tasks`: what the replay holds of each.
    """
    tensors, measures = state.algorithm.state().tensors, state.algorithm.measures()
    first = state.updates - len(state.measured) + 1
    known = state.measured[: update - first + 1] if update is not None else state.measured
    numbers = range(first, first + len(known))
    return {
        "step": state.step,
        "updates": state.updates,
        "training": state.training.model_dump(mode="json"),
        "losses": [
            {
                "update": number,
                **{name: plain(v) for name, v in zip(state.algorithm.METRICS, values.tolist(), strict=True)},
            }
            for number, values in list(zip(numbers, known, strict=True))[-_LAST_UPDATES:]
        ],
        "tensors": {name: _of_tensor(tensor) for name, tensor in tensors.items() if tensor.is_floating_point()},
        "tasks": {
            task: {
                **{name: plain(values[k]) for name, values in measures.items()},
                **(_of_rows(state.experience.own, k) if state.experience else {}),
            }
            for k, task in enumerate(state.training.env.tasks)
        },
    }


def plain(value: float) -> float | str:
    """`value` as JSON can say it: six digits, or the name of what is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _of_tensor(tensor: Tensor) -> dict[str, Any]:
    is_finite = torch.isfinite(tensor)
    finite = torch.where(is_finite, tensor, 0).double()
    return {
        "shape": list(tensor.shape),
        "not_finite": int((~is_finite).sum()),
        "norm": plain(float(finite.norm())),
        "largest": plain(float(finite.abs().max())) if tensor.numel() else 0.0,
    }


def _of_rows(replay: Ring, k: int) -> dict[str, Any]:
    """What the ring holds of task `k`: how many rows, how many with a number that is not finite, and the ranges."""
    size = int(replay.sizes[k])
    fields: Mapping[str, npt.NDArray[Any]] = {
        name: array for name, array in replay.rows_of(k).items() if array.dtype == np.float32
    }
    broken = np.zeros(size, np.bool_)
    for values in fields.values():
        broken |= ~np.isfinite(values).reshape(size, -1).all(axis=1)
    value: dict[str, Any] = {"rows": size, "not_finite_rows": int(broken.sum())}
    if broken.all():
        return value
    for name, values in fields.items():
        whole = values[~broken]
        value[name] = {"least": plain(float(whole.min())), "largest": plain(float(whole.max()))}
    value["reward"]["mean"] = plain(float(fields["reward"][~broken].mean(dtype=np.float64)))
    return value
