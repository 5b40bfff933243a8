"""Who is told how a training goes, and remembers it."""

from __future__ import annotations

from trainer.training.features.progress import TrainingProgress


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.reports: list[TrainingProgress] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def progress(self, progress: TrainingProgress) -> None:
        self.reports.append(progress)
