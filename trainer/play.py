"""Checkpoints as policies: load the nets, evaluate them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer import device as machine
from trainer.agents import mtsac
from trainer.config import Training
from trainer.envs.spec import F32, I32
from trainer.errors import ConfigError
from trainer.evaluate import MIN_LANES, Evaluation, evaluate
from trainer.resume import find_policy


@dataclass(frozen=True)
class Played:
    """An evaluated checkpoint."""

    path: Path
    step: int
    evaluation: Evaluation
    notes: tuple[str, ...]


def evaluate_checkpoint(path: Path, *, goals: int, goal_seed: int | None, device: str) -> Played:
    """Evaluate the newest good checkpoint at or below `path` on `goals` fixed goals a task.

    `goal_seed` None: the goals it was trained on. Errors: ConfigError, NoGoodCheckpointError, EnvError.
    """
    if device not in {"auto", "cpu", "cuda", "mps"}:
        raise ConfigError(f"there is no device {device!r}; use auto, cpu, cuda or mps")
    ref, manifest, nets, notes = find_policy(path)
    training = Training.model_validate(manifest.training)
    machine.settle(training.threads)
    learner = mtsac.create(training, machine.choose(device))
    mtsac.load_nets(learner, nets)

    def act(obs: F32, task: I32) -> F32:
        return mtsac.act_greedily(learner, obs, task)

    result = evaluate(
        act,
        training.tasks,
        goals,
        training.horizon,
        training.seed if goal_seed is None else goal_seed,
        machine.workers(None, max(len(training.tasks), MIN_LANES)),
    )
    if result is None:
        raise AssertionError("nobody interrupts this evaluation")
    return Played(ref.path, ref.step, result, notes)
