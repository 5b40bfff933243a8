"""The evaluation of a checkpoint, as it lies on the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.errors import ConfigError
from trainer.evaluation.playable import of_checkpoint
from trainer.evaluation.protocol import MIN_LANES, Evaluation, evaluate, unseen_seed
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
    threads: int | None = None,
    num_workers: int | None = None,
    goals_dir: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> EvaluatedCheckpoint:
    """Evaluate the newest good checkpoint at or below `path`, or its `best`, on `goals` fixed goals a task.

    `goal_seed` None: the goals it was trained on. `unseen_goals` a task are played, too, that those are not. `threads`
    (torch's) None: the training's. `num_workers` None: by the CPUs. The rest is for `evaluate`; `interrupted` may only
    look. Errors: ConfigError, NoGoodCheckpointError, EnvError.
    """
    if device not in {"auto", "cpu", "cuda", "mps"}:
        raise ConfigError(f"there is no device {device!r}; use auto, cpu, cuda or mps")
    policy = of_checkpoint(path, device, best=best, threads=threads)
    total = len(policy.tasks) * (goals + unseen_goals)

    def played(count: int, seed: int, before: int) -> Evaluation:
        result = evaluate(
            policy.act,
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
    found = played(goals, seed, 0)
    if unseen_goals:
        unseen = played(unseen_goals, unseen_seed(policy.goal_seed), total - len(policy.tasks) * unseen_goals)
        found = replace(found, unseen=unseen)
    return EvaluatedCheckpoint(Path(policy.name), policy.step, found, policy.notes)
