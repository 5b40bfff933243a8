"""Which checkpoint a user means by a path, for its policy: the newest good one there, or the one evaluated best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anchorleg.job import CheckpointRef, attempt_numbers, candidates_before
from trainer.checkpoints.checkpoint import CheckpointManifest, read_manifest, read_nets
from trainer.checkpoints.resume import walked_back
from trainer.errors import ConfigError, DamagedCheckpointError, NoGoodCheckpointError
from trainer.history.read import best_left, read_evaluations, score_of
from trainer.history.slots import told_where


def find_policy(
    path: Path, *, best: bool = False
) -> tuple[CheckpointRef, CheckpointManifest, dict[str, Any], tuple[str, ...]]:
    """The nets of `path`: a checkpoint, or the newest good one of an attempt, a slot or a run folder.

    `best`: the one of a slot or run folder that was evaluated best. Errors: ConfigError where there is none;
    NoGoodCheckpointError where all are damaged.
    """
    damaged: list[str] = []
    with told_where(path):
        refs = [best_candidate(path)] if best else list(policy_candidates(path))
    for ref in refs:
        try:
            manifest = read_manifest(ref.path)
            nets = read_nets(ref.path, manifest)
        except DamagedCheckpointError as error:
            damaged.append(f"step {ref.step} of attempt {ref.attempt} ({error})")
            continue
        return ref, manifest, nets, walked_back(damaged, ref)
    if damaged:
        raise NoGoodCheckpointError("checkpoint.all-damaged", path=path, damaged="; ".join(damaged))
    raise ConfigError("checkpoint.none", path=path)


def best_candidate(path: Path) -> CheckpointRef:
    """The published checkpoint with the highest evaluation at or below a slot or run folder; retention keeps it. What
    a decision to go back passes over does not count.

    Errors: ConfigError where nothing was evaluated yet, or its checkpoint is gone.
    """
    path = path.resolve()
    slots = [path] if (path / "attempts").is_dir() else _numbered(path / "slots") if (path / "slots").is_dir() else []
    bests = [(found, slot) for slot in slots if (found := best_left(slot, read_evaluations(slot))) is not None]
    if not bests:
        raise ConfigError("checkpoint.never-evaluated", path=path)
    row, slot = max(bests, key=lambda pair: (score_of(pair[0]), pair[0]["step"]))
    for ref in policy_candidates(slot):
        if ref.step == row["step"]:
            return ref
    raise ConfigError("checkpoint.best-gone", slot=slot, step=row["step"])


def policy_candidates(path: Path) -> Iterator[CheckpointRef]:
    """Published checkpoints at or below `path`, best first; of several slots the one that is furthest."""
    path = path.resolve()
    if (path / "manifest.json").exists() and path.name.isdigit():
        attempt = path.parent.parent.name
        yield CheckpointRef(int(attempt) if attempt.isdigit() else 0, int(path.name), path)
    elif (path / "checkpoints").is_dir():
        found = [CheckpointRef(int(path.name), int(p.name), p) for p in _numbered(path / "checkpoints")]
        yield from sorted(found, key=lambda ref: ref.step, reverse=True)
    elif (path / "attempts").is_dir():
        yield from candidates_before(path, max(attempt_numbers(path), default=-1) + 1)
    elif (path / "slots").is_dir():
        lines = [list(policy_candidates(slot)) for slot in _numbered(path / "slots")]
        for line in sorted(lines, key=lambda refs: refs[0].step if refs else -1, reverse=True)[:1]:
            yield from line


def _numbered(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.isdigit()]
