"""Going back to an older checkpoint of single slots, as a person asks for it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from anchorleg.job import CheckpointRef, attempt_numbers, candidates_before
from anchorleg.rollback import Rollback, can_go_on, roll_back
from orchestrator.decisions.models import SlotStatus
from orchestrator.errors import ConfigError, RunFolderError
from orchestrator.hosts.asking import slots_named
from orchestrator.run.ledger import load_ledger
from orchestrator.run.rundir import RunDir, load_run

#: So many of the steps that one could go back to are listed.
_LISTED = 8


def roll_back_slots(run_dir: RunDir, words: Sequence[str], step: int, *, why: str, without: str) -> str:
    """Have the slots that `words` name go on from their newest checkpoint at or before `step`; a sentence for each.

    The newest checkpoints stay until that next job begins. Errors: ConfigError where a slot has no such checkpoint, or
    no next job (nothing is changed then); UnknownRun; OSError; RunFolderError where what the attempts decided cannot be
    read.
    """
    run = load_run(run_dir)
    ledger = load_ledger(run_dir, run.run_id)
    name, slots = run.config.run_name, slots_named(run.config, words)
    for slot in slots:
        if ledger is not None and slot < len(ledger.slots) and ledger.slots[slot].status is SlotStatus.FINISHED:
            raise ConfigError(f"slot {slot} is finished, so no job follows; {_more(run.config.command is None, name)}.")
    try:
        found = [(slot, _newest(run_dir, slot, step)) for slot in slots]
        now_s = time.time()
        made = [
            (slot, newest, ref, roll_back(run_dir.slot(slot), Rollback(newest, ref.step, now_s, why, without)))
            for slot, (newest, ref) in found
        ]
    except ValueError as error:
        raise RunFolderError(f"{run_dir.path}: what attempts decided cannot be read ({error})") from None
    told = []
    for slot, newest, ref, decision in made:
        told.append(
            f"slot {slot}: the next job goes on from step {ref.step:,} of attempt {ref.attempt}. Until it begins, the "
            f"newest checkpoints stay: remove {decision} to take it back."
        )
        if (begun := attempt_numbers(run_dir.slot(slot))[-1]) > newest:
            told.append(
                f"slot {slot}: attempt {begun} has begun meanwhile. Where it went on from a later step than that, what "
                "it saves is passed over, too, by the job after it."
            )
    some = " ".join(str(slot) for slot in slots)
    now = f"`orchestrator pause {some} --run {name}` ends it now, and `orchestrator resume {some} --run {name}`"
    return "\n".join([*told, f"A job that runs goes on until its hand-over, and for nothing: {now} once it has ended."])


def _more(is_trainer: bool, name: str) -> str:
    what = "training.total_steps" if is_trainer else "params.NAME"
    return f"have one first: `orchestrator start {name} --set {what}=…`"


def _newest(run_dir: RunDir, slot: int, step: int) -> tuple[int, CheckpointRef]:
    """(the slot's newest attempt, its newest checkpoint at or before `step`)."""
    folder = run_dir.slot(slot)
    numbers = attempt_numbers(folder)
    line = candidates_before(folder, numbers[-1] + 1) if numbers else ()
    there = [ref for ref in line if can_go_on(ref.path)]
    for ref in there:
        if ref.step <= step:
            return numbers[-1], ref
    steps = ", ".join(f"{ref.step:,}" for ref in there[-_LISTED:])
    raise ConfigError(
        f"--to {step}: slot {slot} has no checkpoint at or before that step; there is {steps or 'none at all'}."
    )
