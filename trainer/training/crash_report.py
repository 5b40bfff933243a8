"""What a training that has diverged leaves behind: `diverged.json` in its attempt's folder, for people to look into.

Plain JSON of bounded size (some kB a task and a layer, whatever the buffer and the widths). A number that is not finite
is its name, "nan", "inf" or "-inf". Nothing reads it again: not a resume, and not the other machines.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import torch

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

    `losses`: of the last updates up to that one, as far as no row has summed them up. `tensors`, `tasks`: how many
    numbers of each that is learned, and how many rows of each task in the replay, are not finite.
    """
    first = state.updates - len(state.measured) + 1
    known = state.measured[: update - first + 1] if update is not None else state.measured
    losses = [
        {"update": number} | {name: plain(v) for name, v in zip(state.algorithm.METRICS, values.tolist(), strict=True)}
        for number, values in enumerate(known, first)
    ]
    tensors = {name: tensor for name, tensor in state.algorithm.state().tensors.items() if tensor.is_floating_point()}
    ring = state.experience.own if state.experience else None
    return {
        "step": state.step,
        "updates": state.updates,
        "training": state.training.model_dump(mode="json"),
        "losses": losses[-_LAST_UPDATES:],
        "tensors": {name: int((~torch.isfinite(tensor)).sum()) for name, tensor in tensors.items()},
        "tasks": {
            task: {
                **{name: plain(values[k]) for name, values in state.algorithm.measures().items()},
                **({"rows": int(ring.sizes[k]), "not_finite_rows": _not_finite(ring, k)} if ring else {}),
            }
            for k, task in enumerate(state.training.env.tasks)
        },
    }


def plain(value: float) -> float | str:
    """`value` as JSON can say it: six digits, or the name of what is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _not_finite(ring: Ring, k: int) -> int:
    broken = np.zeros(int(ring.sizes[k]), np.bool_)
    for values in ring.rows_of(k).values():
        if values.dtype == np.float32:
            broken |= ~np.isfinite(values).reshape(len(broken), -1).all(axis=1)
    return int(broken.sum())
