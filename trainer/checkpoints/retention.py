"""What is kept of the checkpoints: the newest ones whole; as nets a few older ones, the best, and those still to
be evaluated; nothing else.

Only the highest attempt deletes, and it looks before every single deletion. It does so after each checkpoint, and where
one finds the disk full: then it is tried once more. A deletion that fails is tried again after the next checkpoint; it
never stops the training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from anchorleg.files import remove_folder
from anchorleg.job import CheckpointRef, Job, candidates_before, passed_over
from trainer.checkpoints.checkpoint import CheckpointManifest, downgrade, read_manifest
from trainer.errors import DamagedCheckpointError


@dataclass(frozen=True)
class Kept:
    """One checkpoint of the slot. `manifest` None: damaged. `in_line`: one that a successor may start from.
    `is_passed_over`: it could, but for a decision to go back that can still be taken back. `unread`: why it cannot be
    read now (a network folder, too many open files): nothing is known of it.
    """

    ref: CheckpointRef
    manifest: CheckpointManifest | None
    in_line: bool
    is_passed_over: bool = False
    unread: str = ""


@dataclass(frozen=True)
class Decision:
    """What to do: keep `exact` whole, cut `policies` down to their nets, delete the rest."""

    exact: tuple[Kept, ...]
    policies: tuple[Kept, ...]
    deleted: tuple[Kept, ...]


def decide(found: Sequence[Kept], *, keep_exact: int, keep_milestones: int, needed: AbstractSet[int]) -> Decision:
    """Pure. The newest `keep_exact` good ones of the line stay whole; of its older ones those of the `needed` steps
    and at most `keep_milestones`, spread evenly, keep their nets. Of what is passed over the newest `keep_exact` stay
    whole, and the `needed` and those that are nets already as nets.

    While fewer than `keep_exact` good ones exist, damaged ones stay too: they are evidence, and cost nothing yet. What
    cannot be read now stays: it may be the newest.
    """
    newest_first = sorted((k for k in found if k.manifest), key=lambda k: k.ref.step, reverse=True)
    good = [k for k in newest_first if k.in_line]
    exact = _whole(good)[:keep_exact]
    passed = [k for k in newest_first if k.is_passed_over]
    aside = _whole(passed)[:keep_exact]
    older = [k for k in good if k not in exact]
    steps = {*thin(sorted(k.ref.step for k in older), keep_milestones), *needed}
    policies = [k for k in older if k.ref.step in steps]
    policies += [k for k in passed if k not in aside and (k.ref.step in needed or k not in _whole(passed))]
    deleted = [k for k in found if k not in exact and k not in policies and k not in aside and not k.unread]
    if len(exact) < keep_exact:
        deleted = [k for k in deleted if k.manifest]
    return Decision((*exact, *aside), tuple(policies), tuple(deleted))


def _whole(found: Sequence[Kept]) -> list[Kept]:
    return [k for k in found if k.manifest and k.manifest.kind == "exact"]


def thin(steps: Sequence[int], keep: int) -> list[int]:
    """At most `keep` of the ascending `steps`, spread evenly: again and again the one whose neighbours are nearest to
    each other goes. The first and the last stay as long as there is room for two.
    """
    left = list(steps)
    while len(left) > keep:
        inner = range(1, len(left) - 1)
        left.pop(min(inner, key=lambda i: left[i + 1] - left[i - 1]) if inner else 0)
    return left


def tidy(job: Job, *, keep_exact: int, keep_milestones: int, needed: AbstractSet[int]) -> list[str]:
    """Carry `decide` out for the whole slot. Row files that no whole checkpoint lists go too. Returns what could not be
    deleted, one sentence each.
    """
    found = survey(job)
    decision = decide(found, keep_exact=keep_exact, keep_milestones=keep_milestones, needed=needed)
    troubles = [f"{kept.ref.path} cannot be read now, and stays: {kept.unread}" for kept in found if kept.unread]

    def attempt(action: Callable[[], None], path: Path) -> None:
        if job.superseded_by() is not None:
            return
        try:
            action()
        except OSError as error:
            troubles.append(f"could not remove {path}: {error.strerror}")

    for kept in decision.deleted:
        attempt(lambda kept=kept: remove_folder(kept.ref.path), kept.ref.path)  # type: ignore[misc]
    for kept in decision.policies:  # after these: it writes a manifest, and the disk may be full
        if kept.manifest:
            attempt(lambda kept=kept: downgrade(kept.ref.path, kept.manifest), kept.ref.path)  # type: ignore[misc]
    manifests = [kept.manifest for kept in decision.exact if kept.manifest]
    listed = {file.path for manifest in manifests for files in manifest.rows.values() for file in files}
    whole = [kept.ref.step for kept in decision.exact if kept.in_line]
    oldest = min(whole) if len(whole) >= keep_exact else -1
    stays = [kept for kept in found if kept.manifest is None and kept not in decision.deleted]
    if any(not kept.unread or kept.ref.step > oldest for kept in stays):
        return troubles  # what such a one listed is not known: its rows stay as long as it counts
    for path in leftovers(job, listed):
        attempt(lambda path=path: remove_folder(path) if path.is_dir() else path.unlink(), path)  # type: ignore[misc]
    return troubles


def survey(job: Job) -> list[Kept]:
    """All published checkpoints of this attempt and the older ones."""
    line = {ref.path for ref in candidates_before(job.slot_dir, job.attempt + 1)}  # what a successor could take
    passed = {ref.path for ref in passed_over(job.slot_dir, job.attempt)}
    found = []
    for attempt in _attempts_until(job):
        for path in _children(job.slot_dir / "attempts" / str(attempt) / "checkpoints"):
            if not path.name.isdigit():
                continue
            manifest, unread = None, ""
            try:
                manifest = read_manifest(path)
            except DamagedCheckpointError as error:
                if error.unread is not None:
                    unread = str(error)
            ref = CheckpointRef(attempt, int(path.name), path)
            found.append(Kept(ref, manifest, path in line, path in passed, unread))
    return found


def leftovers(job: Job, listed: set[str]) -> list[Path]:
    """Row files that nothing lists, and what unfinished publications and deletions left, up to this attempt."""
    paths: list[Path] = []
    for attempt in _attempts_until(job):
        folder = job.slot_dir / "attempts" / str(attempt)
        rows = _children(folder / "rows")
        paths += [path for path in rows if path.relative_to(job.slot_dir).as_posix() not in listed]
        paths += [path for path in _children(folder / "checkpoints") if not path.name.isdigit()]
    return paths


def _attempts_until(job: Job) -> list[int]:
    names = [path.name for path in _children(job.slot_dir / "attempts")]
    return sorted(int(name) for name in names if name.isdigit() and int(name) <= job.attempt)


def _children(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except OSError:
        return []
