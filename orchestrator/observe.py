"""Observe: everything that one tick looks at, gathered from the disk and the scheduler."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from orchestrator.decisions.evidence import Claim, Evidence, Exit, Facts
from orchestrator.decisions.models import Ledger, SlotStatus, Submit
from orchestrator.decisions.plan import longest_waiting
from orchestrator.decisions.sightings import has_ended_by_its_word, missing_from
from orchestrator.decisions.verdicts import lacks_a_program
from orchestrator.disk import is_out_of_inodes, left_on_full_disk, read_json_or_none, read_record
from orchestrator.errors import AnchorlegError
from orchestrator.executors.base import Accounting, Executor, Poll
from orchestrator.run.evidence import newer_attempts, read_all, read_evidence
from orchestrator.run.ledger import load_ledger
from orchestrator.run.rundir import Run, RunDir, load_run, program_folder
from orchestrator.run.starting import commands_of, missing_script
from orchestrator.run.submission import places_of, request_of

#: sacct compares with the clock of another machine.
HISTORY_MARGIN_S = 60.0


def gather_facts(
    run: Run, run_dir: RunDir, executor: Executor, ledger: Ledger, poll: Poll, now: float
) -> tuple[Facts, dict[int, int]]:
    """The tick's facts; by slot, the highest folder that the ledger does not know (-1: none). Errors: OSError."""
    evidence = read_all(run_dir, ledger, poll)
    folders = {slot.index: newer_attempts(run_dir, slot) for slot in ledger.slots}
    facts = Facts(
        now=now,
        poll=poll,
        history=_history(run_dir, executor, ledger, poll, evidence),
        evidence=evidence,
        newest_claims=_newest_claims(run_dir, ledger, folders),
        jobs_dir=str(run_dir.jobs),
        forget_after_s=executor.forget_after_s(),
        submit_grace_s=executor.submit_grace_s,
        ahead=_queued_behind(run_dir, ledger, poll),
        since_last_look_s=now - ledger.written_at if ledger.written_at else 0.0,
        relay=run.config.relay,
        queue=run.config.queue,
        slurm=run.config.slurm,
        avoids_nodes=executor.avoids_nodes,
        trainer=run.config.trains,
        lacking=any(lacks_a_program(one) for one in evidence.values()) and _lacks_a_program(run, run_dir),
        disk_full=left_on_full_disk(run_dir.path) is not None,
        out_of_inodes=is_out_of_inodes(run_dir.path),
    )
    return facts, {slot: max(numbers, default=-1) for slot, numbers in folders.items()}


def _lacks_a_program(run: Run, run_dir: RunDir) -> bool:
    """Whether the jobs' interpreter, their program or its script is not to be found from here."""
    config, folder = run.config, program_folder(run, run_dir)
    programs = [run.python, *(command[0] for command in commands_of(config))]
    missing = [word for word in programs if shutil.which(folder / word if "/" in word else word) is None]
    return bool(missing) or any(missing_script(config, command, folder) for command in commands_of(config))


def to_be_moved(run: Run, run_dir: RunDir, executor: Executor, ledger: Ledger, now: float) -> str:
    """The token of a waiting job that would begin at once in another place; one at a time, as it takes that."""
    waiting = longest_waiting(ledger, now) if len(places_of(run.config.slurm)) > 1 else None
    if waiting is None:
        return ""
    slot, attempt, one = waiting
    submit = Submit(slot.index, attempt.number, one.token, exclude=one.exclude, raised=slot.raised)
    return one.token if executor.is_free(request_of(run, run_dir, submit), one.place) else ""


def waits_for_run(run: Run, ledger: Ledger) -> str:
    """What must happen to another run before the first job of this one (`after`); empty: nothing."""
    if not run.after or ledger.had_jobs:
        return ""
    other = RunDir(Path(run.after))
    try:
        there = load_run(other)
        known = load_ledger(other, there.run_id)
    except (AnchorlegError, OSError) as error:
        return f"waits for the run in {run.after}: {error}"
    slots, wanted = known.slots if known is not None else (), there.config.slots
    over = {SlotStatus.FINISHED, SlotStatus.DROPPED, SlotStatus.BEHIND}
    done = sum(slot.status in over for slot in slots[:wanted])
    return "" if done == wanted else f"waits for {there.config.run_name}: {done} of {wanted} slots are finished"


def _history(
    run_dir: RunDir, executor: Executor, ledger: Ledger, poll: Poll, evidence: dict[tuple[int, int], Evidence]
) -> Accounting | None:
    """Ask the history only when a job left the queue without having said (all about) how it ended."""
    lost = []
    jobs = str(run_dir.jobs)
    for slot in ledger.slots:
        for attempt in slot.attempts:
            for submission in attempt.live:
                folder = f"{jobs}/{submission.token}"
                row = poll.of(folder)
                # Only the history can say whose a cancel is that is not ours (`CANCELLED by 33`).
                somebodys = row is not None and row.raw_state == "CANCELLED" and submission.cancelled_at is None
                if not somebodys and not missing_from(poll, submission, folder):
                    continue
                if not has_ended_by_its_word(submission, evidence.get((slot.index, attempt.number), Evidence())):
                    lost.append(submission.intent_at)
    return executor.accounting(min(lost) - HISTORY_MARGIN_S) if lost else None


def _newest_claims(run_dir: RunDir, ledger: Ledger, folders: dict[int, list[int]]) -> dict[int, tuple[int, Evidence]]:
    """By slot, the highest claimed attempt that is newer than anything that the ledger knows."""
    found = {}
    for slot in ledger.slots:
        for number in folders[slot.index]:
            evidence = read_evidence(run_dir, slot.index, number)
            if evidence.claim is not None:
                found[slot.index] = (number, evidence)
                break
    return found


def _queued_behind(run_dir: RunDir, ledger: Ledger, poll: Poll) -> frozenset[str]:
    """Of the jobs in the queue that the ledger does not know, those that were queued behind another one."""
    known = {s.token for slot in ledger.slots for attempt in slot.attempts for s in attempt.submissions}
    found = set()
    for token in poll.alive.keys() - known:
        if poll.alive[token].work_dir.rstrip("/") == str(run_dir.job(token)):
            spec = read_json_or_none(run_dir.disk, run_dir.job(token) / "job.json")
            if isinstance(spec, dict) and spec.get("ahead"):
                found.add(token)
    return frozenset(found)


def newly_told(run_dir: RunDir, ledger: Ledger, noticed: Collection[Path]) -> set[Path]:
    """Records by which live jobs say that they began or ended, newer than `ledger` and not `noticed`: a cheap look."""
    found: set[Path] = set()
    for slot in ledger.slots:
        for attempt in slot.attempts:
            tokens = {s.token for s in attempt.live} if attempt.verdict is None else set()
            name, kind = ("claim", Claim) if attempt.claimed_by is None else ("exit.json", Exit)
            path = run_dir.attempt(slot.index, attempt.number) / name
            if tokens and path not in noticed and run_dir.disk.exists(path):
                record = read_record(kind, path, run_dir.disk)
                if record is not None and record.token in tokens:
                    found.add(path)
    return found
