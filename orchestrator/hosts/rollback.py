"""Going back to an older checkpoint of single slots, as a person asks for it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from anchorleg.job import CheckpointRef, attempt_numbers, candidates_before
from anchorleg.rollback import Rollback, roll_back
from orchestrator.errors import ConfigError
from orchestrator.hosts.asking import slots_named
from orchestrator.run.rundir import RunDir, load_run

#: So many of the steps that one could go back to are listed.
_LISTED = 8


def roll_back_slots(run_dir: RunDir, words: Sequence[str], step: int, *, why: str, without: str) -> str:
    """Have the slots that `words` name go on from their newest checkpoint at or before `step`; a sentence for each.

    Nothing is deleted. Errors: ConfigError where a slot has no such checkpoint (nothing is changed then); UnknownRun;
    OSError, ValueError where what the attempts decided cannot be read.
    """
    run = load_run(run_dir)
    found = [(slot, _newest(run_dir, slot, step)) for slot in slots_named(run.config, words)]
    for slot, (newest, ref) in found:
        folder = run_dir.slot(slot)
        roll_back(folder, Rollback(newest, ref.step, time.time(), why, without))
    told = [
        f"slot {slot}: the next job goes on from step {ref.step:,} of attempt {ref.attempt}."
        for slot, (_, ref) in found
    ]
    some = " ".join(str(slot) for slot, _ in found)
    now = f"`orchestrator pause {some}` and `orchestrator resume {some}` end it now"
    return "\n".join([*told, f"A job that runs goes on until its hand-over, and for nothing: {now}."])


def _newest(run_dir: RunDir, slot: int, step: int) -> tuple[int, CheckpointRef]:
    """(the slot's newest attempt, its newest checkpoint at or before `step`)."""
    folder = run_dir.slot(slot)
    numbers = attempt_numbers(folder)
    there = list(candidates_before(folder, numbers[-1] + 1)) if numbers else []
    for ref in there:
        if ref.step <= step:
            return numbers[-1], ref
    steps = ", ".join(f"{ref.step:,}" for ref in there[-_LISTED:])
    raise ConfigError(
        f"--to {step}: slot {slot} has no checkpoint at or before that step; there is {steps or 'none at all'}."
    )
