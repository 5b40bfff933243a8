"""What an attempt starts from: the newest checkpoint of its line that is whole, and what was wrong with newer ones; and
which checkpoint a user means by a path, for its policy.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from pydantic import ValidationError

from anchorleg.files import read_json_or_none
from anchorleg.job import CheckpointRef, Job, attempt_numbers, candidates_before
from anchorleg.rollback import read_parent, rollbacks
from trainer.buffers.experience import CPU, Experience
from trainer.checkpoints.checkpoint import (
    CheckpointManifest,
    Contents,
    read_contents,
    read_manifest,
    read_nets,
    versions,
)
from trainer.checkpoints.rows import read_into, rings_of
from trainer.config.section import trained
from trainer.config.training import Training, differences, identity
from trainer.envs.spaces import Spaces
from trainer.envs.suite import spaces_of
from trainer.errors import (
    ConfigError,
    DamagedCheckpointError,
    NoGoodCheckpointError,
    OtherIdentityError,
    UnreadCheckpointError,
)
from trainer.history.read import best_left, read_evaluations, score_of
from trainer.history.slots import told_where
from trainer.nets.encoders.base import kept_spaces
from trainer.nets.policy import PolicySpec

#: What cannot be read for a moment is read again after so many seconds each.
PAUSES_S = (1.0, 2.0, 4.0)
#: Where these stay, a checkpoint counts as damaged: a bad block of a disk is no reason to stop a slot for ever.
_STAYS = (errno.EIO, errno.EACCES)
#: A checkpoint that can be resumed.
_Loaded = tuple[CheckpointManifest, Contents, Experience | None]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Start:
    """A checkpoint, read and verified. `notes`: what to tell the user about it."""

    ref: CheckpointRef
    manifest: CheckpointManifest
    contents: Contents
    experience: Experience | None
    notes: tuple[str, ...]


def find_start(
    job: Job, training: Training, device: torch.device = CPU, pause: Callable[[float], None] = time.sleep
) -> Start | None:
    """The newest good exact checkpoint of the job's line; None where none was ever published. `device`: the learner's,
    where `training` may have its replay.

    It writes nothing. Errors: OtherIdentityError; NoGoodCheckpointError where there are some and none is good;
    UnreadCheckpointError where one cannot be read now: to pass it over would be to lose it.
    """
    _check_parents(job.slot_dir)
    damaged: list[str] = []
    for ref in job.candidates():
        try:
            loaded = patiently(ref, partial(_load, ref, job.slot_dir, training, device), pause)
        except DamagedCheckpointError as error:
            damaged.append(f"step {ref.step} of attempt {ref.attempt} ({error})")
            continue
        if loaded is None:
            continue
        manifest, contents, experience = loaded
        return Start(ref, manifest, contents, experience, (*walked_back(damaged, ref), *_changed(manifest)))
    if damaged:
        raise NoGoodCheckpointError("checkpoint.none-good", folder=job.slot_dir, damaged="; ".join(damaged))
    if lost := _lost_step(job.slot_dir, job.attempt):
        raise NoGoodCheckpointError("checkpoint.lost", step=lost, folder=job.slot_dir)
    return None


def patiently(ref: CheckpointRef, load: Callable[[], _T], pause: Callable[[float], None] = time.sleep) -> _T:
    """`load()`, which reads the checkpoint `ref`; some times more where that cannot be read for a moment.

    Errors: those of `load`; UnreadCheckpointError where it cannot be read now: to pass it over would be to lose it.
    """
    for seconds in PAUSES_S:
        try:
            return load()
        except DamagedCheckpointError as error:
            if error.unread is None:
                raise
        pause(seconds)
    try:
        return load()
    except DamagedCheckpointError as error:
        if error.unread is None or error.unread in _STAYS:
            raise
        raise UnreadCheckpointError("checkpoint.unread", step=ref.step, path=ref.path, why=error) from error


def begun_with(job: Job, setting: str, pause: Callable[[float], None] = time.sleep) -> Any:
    """What `setting`, such as `algorithm.demos_sha256`, was to the training that made the newest checkpoint of the
    job's line; None where there is none, or no such setting. Errors: as `find_start`, but of the identity.
    """
    _check_parents(job.slot_dir)
    for ref in job.candidates():
        try:
            value: Any = patiently(ref, partial(read_manifest, ref.path), pause).training
        except DamagedCheckpointError:
            continue
        for name in setting.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value
    return None


def _load(ref: CheckpointRef, slot_dir: Path, training: Training, device: torch.device) -> _Loaded | None:
    """One candidate; None: its nets alone are left. Errors: as `find_start`; DamagedCheckpointError."""
    manifest = read_manifest(ref.path)
    if manifest.kind == "policy":
        return None
    if manifest.identity != identity(training):
        raise OtherIdentityError(
            "checkpoint.other-training",
            step=ref.step,
            path=ref.path,
            what=", ".join(differences(manifest.training, training)) or "another version of the algorithm",
        )
    check = partial(_check_spaces, ref, training.env.name, spaces_of(training))
    return manifest, *load_exact(ref.path, slot_dir, manifest, training.replay_on, device, check)


def _check_spaces(ref: CheckpointRef, suite: str, spaces: Spaces, contents: Contents) -> None:
    """Whether nets and rows fit the environment, whose code is not in the config; what critics alone see, too, where
    the checkpoint is of a version that says it. Errors: OtherIdentityError.
    """
    then = contents.parts["run"].numbers.get("spaces")
    now = spaces.words if then else spaces.of_policy.words
    then = then or Spaces.from_json(contents.policy["spaces"]).of_policy.words
    if then != now:
        raise OtherIdentityError(
            "checkpoint.other-spaces", step=ref.step, path=ref.path, suite=suite, then=then, now=now
        )


def _check_parents(slot_dir: Path) -> None:
    """Whether every decision can be read, also those to go back. To guess at one could follow a ghost. Errors: as
    `find_start`.
    """
    try:
        for attempt in attempt_numbers(slot_dir):
            read_parent(slot_dir, attempt)
        rollbacks(slot_dir)  # after those: it reads some of them
    except ValueError as error:
        raise NoGoodCheckpointError("checkpoint.parents-unreadable", why=str(error)) from error


def _lost_step(slot_dir: Path, attempt: int) -> int:
    """The furthest step that the attempts of this line said they had saved; 0: they never got that far.

    An attempt that decided to start from scratch ends the line: what its elders published later is a ghost's.
    """
    furthest, at = 0, attempt - 1
    while at >= 0:
        folder = slot_dir / "attempts" / str(at)
        progress: dict[str, Any] = read_json_or_none(folder / "progress.json") or {}
        furthest = max(furthest, int(progress.get("checkpoint_step", 0)))
        parent = read_parent(slot_dir, at)
        if parent is None:
            at -= 1
        elif parent.attempt is None:
            break
        else:
            at = parent.attempt
    return furthest


def load_exact(
    folder: Path,
    slot_dir: Path,
    manifest: CheckpointManifest,
    replay_on: Literal["host", "device"] = "host",
    device: torch.device = CPU,
    check: Callable[[Contents], None] = lambda _: None,
) -> tuple[Contents, Experience | None]:
    """Contents and rows of an exact checkpoint, every byte verified; the rows wherever they are wanted now. `check` is
    called before a row is read. Errors: DamagedCheckpointError; those of `check`.
    """
    contents = read_contents(folder, manifest)
    check(contents)
    training = training_of(manifest).model_copy(update={"replay_on": replay_on})
    if (saved := contents.parts.get("experience")) is None:
        return contents, None
    experience = Experience(training, kept_spaces(spaces_of(training), training.network), device)
    experience.load(saved)
    for kind, (ring, _) in rings_of(experience).items():
        read_into(ring, slot_dir, manifest.rows[kind])
    return contents, experience


def training_of(manifest: CheckpointManifest) -> Training:
    """The training that made a checkpoint. Errors: DamagedCheckpointError where another version wrote it otherwise."""
    try:
        return trained(manifest.training)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise DamagedCheckpointError("damaged.other-training", field=field, why=first["msg"]) from error


def spec_of(manifest: CheckpointManifest) -> PolicySpec:
    """What the policy of a checkpoint is built from. Errors: DamagedCheckpointError, as `training_of`."""
    try:
        return PolicySpec.from_json(manifest.policy)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpointError("damaged.other-policy", why=error) from error


def walked_back(damaged: list[str], taken: CheckpointRef) -> tuple[str, ...]:
    """What to tell the user where newer checkpoints than `taken` were `damaged`."""
    if not damaged:
        return ()
    return (f"damaged and not used: {'; '.join(damaged)}; resuming from step {taken.step} of attempt {taken.attempt}",)


def _changed(manifest: CheckpointManifest) -> tuple[str, ...]:
    now = versions()
    changed = [
        f"{name} {then} → {now.get(name, 'absent')}"
        for name, then in manifest.versions.items()
        if now.get(name) != then
    ]
    if not changed:
        return ()
    return (f"written with other versions ({', '.join(changed)}): bits may differ from here on",)


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
