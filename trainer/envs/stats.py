"""What is counted of an episode while it lasts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EpisodeStats:
    """Where an episode stands: steps, their rewards' sum, whether it is solved, if it ended here."""

    length: int = 0
    total: float = 0.0
    solved: bool = False
