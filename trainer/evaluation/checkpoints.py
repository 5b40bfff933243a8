"""The evaluation of a checkpoint, as it lies on the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.errors import ConfigError
from trainer.evaluation.playable import Checkpoint, averaged_beside, of_checkpoint
from trainer.evaluation.protocol import MIN_LANES, Act, Evaluation, evaluate, unseen_seed
from trainer.machine import device as machine


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
    if device not in {"auto", "cpu", "cuda", "mps"}:
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
