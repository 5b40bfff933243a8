"""Builders for tests that publish checkpoints in this process: a run on point masses, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from point_mass import PointMasses
from suites import points
from train_point_mass import section

from anchorleg.job import Job
from trainer.checkpoints.checkpoint import Contents
from trainer.checkpoints.resume import find_start
from trainer.checkpoints.saver import Saver, Unsaved
from trainer.config.training import Training
from trainer.training.run import TrainingRun, advance, capture, fresh, resumed

CPU = torch.device("cpu")


def envs_of(training: Training) -> PointMasses:
    return PointMasses(points(training))


class PointRun:
    """One attempt, driven by hand."""

    def __init__(self, run_dir: Path, **fields: Any) -> None:
        torch.set_num_threads(1)
        self.training = section(**fields)
        self.job = Job.standalone(run_dir)
        self.start = find_start(self.job, self.training)
        self.job.start_from(self.start.ref if self.start else None)
        envs = envs_of(self.training)
        self.state: TrainingRun
        if self.start:
            start = self.start
            self.state = resumed(self.training, CPU, envs, start.contents, start.experience)
        else:
            self.state = fresh(self.training, CPU, envs)
        self.saver = Saver.after(self.job, self.training, self.start)

    def steps(self, vector_steps: int = 25) -> PointRun:
        for _ in range(vector_steps):
            advance(self.state)
        return self

    def captured(self) -> tuple[Contents, dict[str, Unsaved]]:
        return capture(self.state, {"threads": 1}), self.saver.unsaved(self.state.experience)

    def publish(self) -> Path:
        """Publish where it stands; the checkpoint's folder. Errors: SaveError, SupersededError."""
        self.saver.start(*self.captured())
        self.saver.finish(print)
        return self.job.attempt_dir / "checkpoints" / f"{self.state.step:012d}"

    def checkpoints(self, count: int) -> list[Path]:
        """`count` of them, 25 vector steps apart."""
        return [self.steps().publish() for _ in range(count)]
