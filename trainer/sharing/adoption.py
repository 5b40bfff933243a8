"""When a slot takes another's learner over, whose, and how that learner is read.

Population-based training has laggards take better weights (Jaderberg et al. 2017, arXiv 1711.09846); too often is
greedy. So the lead must be large and seen twice, the first slot of a run never follows, and each does so once in a
tenth of its training at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from anchorleg.job import attempt_numbers, candidates_before
from trainer.checkpoints.checkpoint import read_contents, read_manifest
from trainer.checkpoints.resume import training_of
from trainer.config.tasknames import GOALS_PER_TASK
from trainer.config.training import Training, group_identity
from trainer.errors import DamagedCheckpointError
from trainer.history.read import score_of, tells_success

#: Of success: two evaluations of 200 episodes differ so much by chance in 2 of 100 cases, twice in a row in 5 of 10,000
#: at most.
LEAD = 0.10
#: Evaluations of fewer episodes say too little, unless there are no more goals.
LEAST_EPISODES = 200
#: At most once in this part of `total_steps`.
PART_OF_BUDGET = 0.10
#: The slot that never takes another's learner: one line of a run goes on undisturbed.
NEVER = 0
#: Evaluations in a row at which the other must have led.
_TWICE = 2

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Leader:
    """The slot to follow, and how far it led at the last of the two evaluations."""

    slot: int
    lead: float


@dataclass(frozen=True)
class OtherLearner:
    """What a slot has learned, out of a checkpoint after so many `updates`: `data` holds tensors, as safetensors."""

    slot: int
    attempt: int
    step: int
    updates: int
    data: bytes


def is_allowed(slot: int, step: int, total_steps: int, last: int | None) -> bool:
    """Whether `slot` may take a learner over at `step`; `last`: the step at which it did so before. Pure."""
    return slot != NEVER and (last is None or step - last >= PART_OF_BUDGET * total_steps)


def whom_to_follow(own: Rows, others: Mapping[int, Rows]) -> list[Leader]:
    """The slots that were better than this one by more than `LEAD` at the last two evaluations of each, furthest first.
    Rows as of `evaluations.jsonl`, oldest first. Pure.
    """
    leads = {slot: _lead(own, rows) for slot, rows in others.items()}
    return furthest_first(Leader(slot, lead) for slot, lead in leads.items() if lead is not None)


def furthest_first(leaders: Iterable[Leader]) -> list[Leader]:
    """In the order in which they are followed."""
    return sorted(leaders, key=lambda one: (-one.lead, one.slot))


def _lead(own: Rows, other: Rows) -> float | None:
    pairs = list(zip(own[-_TWICE:], other[-_TWICE:], strict=False))
    if len(pairs) < _TWICE or len(own) < _TWICE or len(other) < _TWICE:
        return None
    if not all(_says_enough(one) and is_comparable(one, its) for one, its in pairs):
        return None
    if not all(0 <= score_of(row) <= 1 for pair in pairs for row in pair):  # which NaN is not, either
        return None
    leads = [score_of(its) - score_of(one) for one, its in pairs]
    return leads[-1] if min(leads) > LEAD else None


def _says_enough(row: Mapping[str, Any]) -> bool:
    goals = int(row["goals_per_task"])
    return tells_success(row) and (goals >= GOALS_PER_TASK or goals * len(row["success"]) >= LEAST_EPISODES)


def is_comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both evaluations tell success, and were made alike."""
    return (
        tells_success(one)
        and tells_success(other)
        and one["goals_per_task"] == other["goals_per_task"]
        and one.get("horizon") == other.get("horizon")
        and set(one["success"]) == set(other["success"])
    )


def find_learner(
    slot_dir: Path,
    slot: int,
    training: Training,
    wanted: Callable[[str], bool] = lambda _: True,
    known: tuple[int, int] | None = None,
) -> OtherLearner | None:
    """The learner of the slot's newest good checkpoint, its tensors whose names are `wanted`; None: there is none, it
    is that of attempt and step `known`, or it trains something else.

    Errors: OSError, ValueError.
    """
    for ref in candidates_before(slot_dir, max(attempt_numbers(slot_dir), default=-1) + 1):
        if (ref.attempt, ref.step) == known:
            return None
        try:
            manifest = read_manifest(ref.path)
            if manifest.kind != "exact":
                continue
            if group_identity(training_of(manifest)) != group_identity(training):
                return None
            parts = read_contents(ref.path, manifest).parts
            tensors = {name: tensor for name, tensor in parts["algorithm"].tensors.items() if wanted(name)}
        except DamagedCheckpointError:
            continue  # or cleared away meanwhile
        if is_finite(tensors):
            updates = int(parts["run"].numbers["updates"])
            return OtherLearner(slot, ref.attempt, ref.step, updates, safetensors.torch.save(tensors))
    return None


def tensors_in(data: bytes) -> dict[str, Tensor]:
    """Of `OtherLearner.data`. Errors: ValueError."""
    try:
        found: dict[str, Tensor] = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None
    return found


def is_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all numbers of it are."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values() if tensor.is_floating_point())
