"""Builders for tests that publish checkpoints in this process: a run on point masses, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from point_mass import PointMasses
from train_point_mass import section

from anchorleg.job import Job
from trainer.buffers.replay import Block
from trainer.checkpoints.checkpoint import Contents
from trainer.checkpoints.resume import find_start
from trainer.checkpoints.rows import saved_until
from trainer.checkpoints.saver import Saver
from trainer.config import Training
from trainer.envs.step import VectorSpec
from trainer.training.run import RunState, advance, capture, fresh, resumed

CPU = torch.device("cpu")


def envs_of(training: Training) -> PointMasses:
    return PointMasses(VectorSpec(training.tasks, (), training.num_envs, training.seed, 20))


class PointRun:
    """One attempt, driven by hand."""

    def __init__(self, run_dir: Path, **fields: Any) -> None:
        torch.set_num_threads(1)
        self.training = section(**fields)
        self.job = Job.standalone(run_dir)
        self.start = find_start(self.job, self.training)
        self.job.start_from(self.start.ref if self.start else None)
        envs = envs_of(self.training)
        self.state: RunState
        if self.start:
            start = self.start
            self.state = resumed(self.training, CPU, envs, start.contents, start.replay, start.contributed)
        else:
            self.state = fresh(self.training, CPU, envs)
        self.saver = Saver.after(self.job, self.training, self.start)

    def steps(self, vector_steps: int = 25) -> PointRun:
        for _ in range(vector_steps):
            advance(self.state)
        return self

    def captured(self) -> tuple[Contents, Block]:
        since = saved_until(self.saver.segments, len(self.training.tasks))
        return capture(self.state, {"threads": 1}), self.state.replay.block_since(since)

    def publish(self) -> Path:
        """Publish where it stands; the checkpoint's folder. Errors: SaveError, SupersededError."""
        self.saver.start(*self.captured(), self.saver.unsaved(self.state.contributed))
        self.saver.settle(print)
        return self.job.attempt_dir / "checkpoints" / f"{self.state.step:012d}"

    def checkpoints(self, count: int) -> list[Path]:
        """`count` of them, 25 vector steps apart."""
        return [self.steps().publish() for _ in range(count)]
