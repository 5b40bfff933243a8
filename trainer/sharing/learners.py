"""What other slots of a group have learned: how it is found, and whether their evaluations can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from trainer.config.training import Training, group_identity
from trainer.errors import DamagedCheckpointError
from trainer.history.read import tells_success


@dataclass(frozen=True)
class OtherLearner:
    """What a slot has learned, out of a checkpoint after so many `updates`: `data` holds tensors, as safetensors."""

    slot: int
    attempt: int
    step: int
    updates: int
    data: bytes

    @property
    def version(self) -> tuple[int, int]:
        """Attempt and step of its checkpoint."""
        return self.attempt, self.step


def is_comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both evaluations (rows of `evaluations.jsonl`) tell success, and were made alike."""
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
