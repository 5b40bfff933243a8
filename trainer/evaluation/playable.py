"""Policies that can be watched or evaluated: a checkpoint of a run folder, or what a run published, from a mirror or
`$SHARED`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from anchorleg.job import CheckpointRef
from anchorleg.places import user_path
from anchorleg.words import did_you_mean
from syncd import store
from trainer.checkpoints.checkpoint import POLICY, CheckpointManifest, read_averaged
from trainer.checkpoints.resume import find_policy, policy_candidates, spec_of, training_of
from trainer.config.settings import EnvSettings
from trainer.envs.suite import SuiteRef
from trainer.errors import ConfigError, DamagedCheckpointError, NoGoodCheckpointError
from trainer.evaluation.protocol import MIN_LANES, Act, Evaluation, evaluate, unseen_seed
from trainer.history.slots import told_where
from trainer.machine import device as machine
from trainer.nets.policy import frozen_tensors
from trainer.nets.weights import WEIGHTS
from trainer.sharing.policies import Policy, UnusablePolicyError, differences, floats_of, load, suite_of_manifest
from trainer.sharing.selection import DEFAULT_SHARED_DIR, Choice, pick

_DEVICES = ("auto", "cpu", "cuda", "mps")
#: Where a command's device is named.
_ASKED_BY = "--device"


@dataclass(frozen=True)
class Playable:
    """A deterministic policy and what it was trained on. `name` says where it is from; `notes` are for the user."""

    name: str
    step: int
    env: EnvSettings
    goal_seed: int
    act: Act
    notes: tuple[str, ...]

    def suite(self, seed: int, cache: Path | None = None) -> SuiteRef:
        """Where it plays, at the goals of `seed`."""
        return SuiteRef(self.env, seed, cache)

    @property
    def tasks(self) -> tuple[str, ...]:
        """In the order of their numbers."""
        return self.env.tasks

    def task_index(self, task: str | None) -> int:
        """Its number of `task`; None names the only one. Errors: ConfigError."""
        if task is None and len(self.tasks) == 1:
            return 0
        if task is None:
            raise ConfigError("play.task-missing", tasks=", ".join(self.tasks))
        if task not in self.tasks:
            raise ConfigError("play.unknown-task", task=task, hint=did_you_mean(task, self.tasks))
        return self.tasks.index(task)


class Checkpoint(NamedTuple):
    """Where a policy was read, and what is written of it there."""

    ref: CheckpointRef
    manifest: CheckpointManifest


@dataclass(frozen=True)
class Found(Playable):
    """A `Playable` with its weights and with what is known of their origin: a checkpoint, or a publication.

    `averaged`: it is the moving average of what was trained.
    """

    policy: Policy
    record: Checkpoint | store.Manifest
    averaged: bool = False


def find_playable(
    text: str,
    shared_dir: Path | None,
    device: str,
    *,
    best: bool = False,
    averaged: bool = False,
    slot: int | None = None,
) -> Found:
    """The policy that a user means by `text`: a folder with checkpoints; a mirror or `$SHARED`; or `latest`, `best`,
    `RUN`, `RUN/SLOT` in `shared_dir`.

    `best`: not the newest checkpoint of the folder but the one that was evaluated best. `averaged`: the moving average
    of what was trained. `slot`: of several that of this number. Errors: ConfigError, NoGoodCheckpointError.
    """
    if device not in _DEVICES:
        raise ConfigError("cli.unknown-device", device=device)
    path = user_path(text)
    has_slots = slot is not None and (path / "slots").is_dir()
    place = path / "slots" / str(slot) if has_slots else path
    with told_where(place):
        has_checkpoints = place.is_dir() and any(True for _ in policy_candidates(place))
    if slot is not None and not has_slots and (has_checkpoints or path.is_file()):
        raise ConfigError("play.slot-of-no-run", path=text)
    if has_checkpoints:
        return of_checkpoint(place, device, best=best, averaged=averaged)
    if best:
        raise ConfigError("play.best-of-no-run", path=text)
    if path.is_dir() and (found := _shared(path)):
        return _of_slots(_numbered(found.slots(), slot), Choice("latest"), path, device, averaged=averaged)
    folder = user_path(shared_dir or DEFAULT_SHARED_DIR)
    here = _shared(folder)
    run, slash, number = text.rpartition("/")
    is_path = bool(slash) and ("/" in run or not number.isdigit())  # not RUN/SLOT
    if is_path or (here is None and (path.exists() or slash or shared_dir is None)):
        raise ConfigError("play.no-policy", path=text, folder=folder)
    if here is None:
        raise ConfigError("shared.no-mirror", folder=folder)
    return _of_slots(_numbered(here.slots(), slot), Choice.parse(text), folder, device, averaged=averaged)


def of_checkpoint(
    path: Path, device: str, *, best: bool = False, averaged: bool = False, threads: int | None = None
) -> Found:
    """The newest good checkpoint at or below `path`, or the one that was evaluated `best`; `averaged`: its moving
    average.

    `threads`: torch's; None: the training's. Errors: ConfigError, also where it has no moving average, or where there
    is no such device; NoGoodCheckpointError.
    """
    chosen = machine.choose_device(device, asked_by=_ASKED_BY)
    ref, manifest, nets, notes = find_policy(path, best=best)
    try:
        training, spec = training_of(manifest), spec_of(manifest)
        machine.set_deterministic(threads or training.threads)
        tensors = {name.removeprefix(POLICY): tensor.numpy() for name, tensor in nets.items()}
        average = read_averaged(ref.path, manifest) if averaged else {}
        tensors |= floats_of(average or {})
        above = ref.path.absolute().parents  # checkpoints, <attempt>, attempts, <slot>; a copy may lie anywhere
        tensors |= floats_of(frozen_tensors(spec, above[min(3, len(above) - 1)] / WEIGHTS))
        policy = Policy(spec, tensors, chosen)
    except (ConfigError, DamagedCheckpointError, UnusablePolicyError) as error:
        raise NoGoodCheckpointError("checkpoint.not-played", path=ref.path, why=error) from None
    if average is None:
        raise ConfigError("play.checkpoint-not-averaged", folder=ref.path)
    return Found(
        name=f"{ref.path}{', averaged' * averaged}",
        step=ref.step,
        env=training.env,
        goal_seed=training.seed,
        act=policy.act_deterministic,
        notes=notes,
        policy=policy,
        record=Checkpoint(ref, manifest),
        averaged=averaged,
    )


def averaged_beside(policy: Found, device: str, *, threads: int | None = None) -> Found | None:
    """The moving average of the very checkpoint that `policy` was read from; None where it has none. Errors: as
    `of_checkpoint`.
    """
    assert isinstance(policy.record, Checkpoint)  # noqa: S101 - publications have theirs in another place
    if read_averaged(policy.record.ref.path, policy.record.manifest) is None:
        return None
    return of_checkpoint(policy.record.ref.path, device, averaged=True, threads=threads)


def of_publication(place: store.SlotPlace, manifest: store.Manifest, device: str) -> Found:
    """A published policy, verified to its golden actions. Errors: ConfigError where there is no such device,
    UnusablePolicyError, DamagedPolicyError, OSError.
    """
    machine.set_deterministic(1)
    policy = load(place, manifest, machine.choose_device(device, asked_by=_ASKED_BY))
    note, suite = differences(manifest.suite), suite_of_manifest(manifest)
    return Found(
        name=f"{manifest.run_id}/{manifest.slot} version {manifest.version}{', averaged' * place.is_averaged}",
        step=manifest.step,
        env=suite.settings,
        goal_seed=suite.seed,
        act=policy.act_deterministic,
        notes=(note,) if note else (),
        policy=policy,
        record=manifest,
        averaged=place.is_averaged,
    )


def _shared(path: Path) -> store.Shared | None:
    """`path` as a shared folder: itself, or the `shared/` of a run folder."""
    for folder in (path, path / "shared"):
        if (folder / "v1" / "runs").is_dir():
            return store.Shared(folder)
    return None


def _numbered(slots: Sequence[store.SlotPlace], slot: int | None) -> Sequence[store.SlotPlace]:
    """Those of number `slot`; None: all. Errors: ConfigError where there are others only."""
    chosen = [place for place in slots if slot in {None, place.slot}]
    if slots and not chosen:
        raise ConfigError("play.unknown-slot", slot=slot, slots=", ".join(f"{p.run_id}/{p.slot}" for p in slots))
    return chosen


def _of_slots(slots: Sequence[store.SlotPlace], choice: Choice, folder: Path, device: str, *, averaged: bool) -> Found:
    asked = [place.averaged if averaged else place for place in slots if choice.takes(place)]
    newest = [(manifest, place) for place in asked if (manifest := store.newest(place))]
    chosen = pick([manifest for manifest, _ in newest], choice, None)
    if chosen is None and averaged and any(store.versions(place.slot_itself) for place in asked):
        raise ConfigError("play.none-averaged", folder=folder, choice=choice)
    if chosen is None:
        there = ", ".join(f"{place.run_id}/{place.slot}" for place in slots) or "nothing yet"
        raise ConfigError("play.none-published", folder=folder, choice=choice, there=there)
    place = next(place for manifest, place in newest if manifest is chosen)
    name = f"{chosen.run_id}/{chosen.slot}"
    try:
        return of_publication(place, chosen, device)
    except (UnusablePolicyError, store.DamagedPolicyError) as error:
        raise NoGoodCheckpointError("policy.not-played", policy=name, why=error) from None
    except OSError as error:
        raise NoGoodCheckpointError("policy.unread", policy=name, why=error.strerror or error) from None


@dataclass(frozen=True)
class EvaluatedCheckpoint:
    """An evaluated checkpoint."""

    path: Path
    step: int
    evaluation: Evaluation
    notes: tuple[str, ...]


def evaluate_checkpoint(
    path: Path,
    *,
    goals: int,
    goal_seed: int | None,
    device: str,
    unseen_goals: int = 0,
    best: bool = False,
    averaged: bool = False,
    beside: bool = False,
    threads: int | None = None,
    num_workers: int | None = None,
    goals_dir: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> EvaluatedCheckpoint:
    """Evaluate the newest good checkpoint at or below `path`, or its `best`, on `goals` fixed goals a task.

    `averaged`: its moving average in its place; `beside`: that too, on the same goals, where there is one.
    `goal_seed` None: the goals it was trained on. `unseen_goals` a task are played, too, that those are not. `threads`
    (torch's) None: the training's. `num_workers` None: by the CPUs. The rest is for `evaluate`; `interrupted` may only
    look. Errors: ConfigError, NoGoodCheckpointError, EnvError.
    """
    if device not in _DEVICES:
        raise ConfigError("cli.unknown-device", device=device)
    policy = of_checkpoint(path, device, best=best, averaged=averaged, threads=threads)
    average = averaged_beside(policy, device, threads=threads) if beside else None
    total = len(policy.tasks) * (goals * (1 + (average is not None)) + unseen_goals)

    def played(act: Act, count: int, seed: int, before: int) -> Evaluation:
        result = evaluate(
            act,
            policy.suite(seed, goals_dir),
            count,
            machine.default_workers(num_workers, max(len(policy.tasks), MIN_LANES)),
            progress=progress and (lambda done, _: progress(before + done, total)),
            interrupted=interrupted,
        )
        if result is None:
            raise AssertionError("nobody interrupts this evaluation")
        return result

    seed = policy.goal_seed if goal_seed is None else goal_seed
    found = played(policy.act, goals, seed, 0)
    done = len(policy.tasks) * goals
    if unseen_goals:
        unseen = played(policy.act, unseen_goals, unseen_seed(policy.goal_seed), done)
        found, done = replace(found, unseen=unseen), done + len(policy.tasks) * unseen_goals
    if average is not None:
        found = replace(found, averaged=played(average.act, goals, seed, done))
    assert isinstance(policy.record, Checkpoint)  # noqa: S101 - it was read from one
    return EvaluatedCheckpoint(policy.record.ref.path, policy.step, found, policy.notes)
