"""What a slot's training has come to: sha256 of all that its newest checkpoint holds, and its rows of metrics."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anchorleg.job import attempt_numbers, candidates_before
from trainer.checkpoints.checkpoint import Contents, read_manifest
from trainer.checkpoints.resume import load_exact
from trainer.history.read import read, read_evaluations

#: Set where trainings are to use a GPU.
ON_GPU = "ANCHORLEG_TEST_ON_GPU"


def newest(slot: Path) -> Path:
    return next(iter(candidates_before(slot, max(attempt_numbers(slot)) + 1))).path


def digest_of(arrays: Mapping[str, Any]) -> str:
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return sha.hexdigest()


def parts_of(contents: Contents) -> dict[str, Any]:
    """By part: the digest of its tensors, and its numbers."""
    return {name: (digest_of(part.tensors), dict(part.numbers)) for name, part in contents.parts.items()}


def slot_digest(slot: Path) -> dict[str, Any]:
    """Equal for two slots if and only if they trained the same, bit by bit. `make test-gpu` sets `ON_GPU`: then it is
    an error if that was not on a GPU.
    """
    folder = newest(slot)
    manifest = read_manifest(folder)
    contents, experience = load_exact(folder, slot, manifest)
    assert ON_GPU not in os.environ or contents.numeric["device"].startswith("cuda"), "torch uses no NVIDIA GPU here"
    return {
        "step": contents.step,
        "parts": parts_of(contents),
        "replay": digest_of(experience.own.arrays()) if experience else None,
        "contributed": digest_of(experience.others.ring.arrays()) if experience and experience.others else None,
        "peers": digest_of(experience.peers.ring.arrays()) if experience and experience.peers else None,
        "metrics": [without_clock(row) for row in read(slot)],
        "evaluations": [without_clock(row) for row in read_evaluations(slot)],
    }


def without_clock(row: Mapping[str, Any]) -> dict[str, Any]:
    timeless = {name: value for name, value in row.items() if name not in {"at", "wall_s"}}
    return timeless | {name: without_clock(timeless[name]) for name in ("unseen", "averaged") if name in timeless}


def gaps(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Where the rows do not follow each other, from step 0 on: (end of one, beginning of the next)."""
    ends = [0, *(row["to"] for row in rows)]
    return [(end, row["from"]) for end, row in zip(ends, rows, strict=False) if end != row["from"]]
