"""Who is told how a training goes, and remembers it."""

from __future__ import annotations

from typing import Any

from trainer.training.features.progress import TrainingDisplay


class Listener(TrainingDisplay):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.reports: list[Any] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def progress(self, report: Any) -> None:
        self.reports.append(report)
