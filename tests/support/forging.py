"""A slot that lies to its group: what it gave, and what it has learned, are forgeries of the right form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from trainer.checkpoints.checkpoint import LEARNER, MANIFEST, FileRecord, read_manifest
from trainer.envs.spaces import Spaces
from trainer.sharing.segment import Segment, decode, encode, name_of

#: The reason that a judge has → an episode made so.
ROWS: dict[str, Callable[[Segment], Segment]] = {
    "reward_range": lambda it: replace(it, reward=np.full_like(it.reward, 1e6)),
    "not_finite": lambda it: replace(it, reward=np.full_like(it.reward, np.nan)),
    "other_run": lambda it: replace(it, slot=it.slot + 1),
    "discontinuous": lambda it: replace(it, obs=it.obs[::-1].copy()),
    "version_unknown": lambda it: replace(it, version=np.full_like(it.version, 999)),
}


def forge_rows(slot: Path, spaces: Spaces) -> set[str]:
    """Every episode that the slot gives is one of `ROWS` now, or has another's name. Returns all their names."""
    names = set()
    for path, how in zip(sorted(slot.glob("attempts/*/episodes-*/*")), cycle((None, *ROWS.values()))):
        honest = path.read_bytes()
        path.unlink()
        forged = encode(how(decode(honest, spaces))) if how else honest + b"\0"
        name = name_of(forged) if how else name_of(honest)[::-1]
        path.with_name(f"{path.name.partition('-')[0]}-{name}").write_bytes(forged)
        names.add(name)
    return names


def forge_learners(slot: Path) -> None:
    """No checkpoint of the slot holds what it learned: by turns a number differs, and all are nan under true sums."""
    for folder, is_sealed in zip(sorted(slot.glob("attempts/*/checkpoints/[0-9]*")), cycle((False, True))):
        manifest = read_manifest(folder)
        if manifest.kind != "exact":
            continue
        learned = safetensors.torch.load((folder / LEARNER).read_bytes())
        told = {
            name: torch.full_like(it, float("nan")) if it.is_floating_point() else it for name, it in learned.items()
        }
        if not is_sealed:
            told = {name: it + 1 if it.is_floating_point() else it for name, it in learned.items()}
        data = safetensors.torch.save(told)
        (folder / LEARNER).write_bytes(data)
        if is_sealed:
            record = FileRecord(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
            sealed = manifest.model_copy(update={"files": {**manifest.files, LEARNER: record}}).sealed()
            (folder / MANIFEST).write_bytes(sealed.model_dump_json(indent=1).encode())
