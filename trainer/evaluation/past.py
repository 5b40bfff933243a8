"""What became of a slot's evaluations, from its files, so that every attempt comes to the same answer.

A run's state names the steps whose evaluation is wanted (they depend on the step count alone). Made is what
`evaluations.jsonl` has; `evaluating.jsonl`, beside it in each attempt's folder, says what was begun and what was given
up. Whatever is wanted and neither made nor given up is pending, and the slot's next attempt makes it. What an attempt
did with checkpoints that no longer count, because the slot went back before them, says nothing of those that do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.history.journal import EVALUATIONS
from trainer.history.read import evaluators, lines, read_evaluations

#: Rows `{"step", "begun": true}` and `{"step", "left_out": why}` of one attempt.
EVALUATING = "evaluating.jsonl"


@dataclass(frozen=True)
class Past:
    """What a slot's files say. `unfinished`: step → how many attempts began its evaluation and did not end it."""

    evaluations: tuple[Mapping[str, Any], ...]
    left_out: frozenset[int]
    unfinished: Mapping[int, int]

    def pending(self, wanted: Iterable[int]) -> tuple[int, ...]:
        """Those of the `wanted` steps whose evaluation is still to be made, in their order."""
        made = {row["step"] for row in self.evaluations}
        return tuple(step for step in wanted if step not in made and step not in self.left_out)


def read_past(slot_dir: Path) -> Past:
    """All attempts that count, together. Errors: OSError, ValueError where one's beginning cannot be read."""
    unfinished: Counter[int] = Counter()
    left_out: set[int] = set()
    for attempt, until in evaluators(slot_dir):
        folder = slot_dir / "attempts" / str(attempt)
        rows = [row for row in lines(folder / EVALUATING) if until is None or row["step"] <= until]
        if not rows:
            continue
        ended = {row["step"] for row in lines(folder / EVALUATIONS)}
        unfinished.update({row["step"] for row in rows if "begun" in row} - ended)
        left_out |= {row["step"] for row in rows if "left_out" in row}
    return Past(tuple(read_evaluations(slot_dir)), frozenset(left_out), unfinished)
