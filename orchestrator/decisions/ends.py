"""What the end of an attempt means for its slot (the table of docs/architecture.md), and queued successors. Pure."""

from __future__ import annotations

import math
from typing import Any

from anchorleg.job import HANDED_OVER
from orchestrator.decisions.evidence import Evidence
from orchestrator.decisions.models import Attempt, Slot, SlotStatus, Verdict
from orchestrator.decisions.verdicts import GPU_FULL
from orchestrator.executors.base import JobState
from orchestrator.notation import format_duration
from orchestrator.sections import RelaySection

#: Of so many jobs in a row that end long before their time, by their own will, the next one has to wait.
EARLY_ENDS = 3


def wants_successor(slot: Slot, newest_folder: int, now: float) -> tuple[int, str] | None:
    """(attempt to queue, job to queue it behind); None where none is wanted now."""
    current, successor = slot.current, slot.successor
    if slot.status is not SlotStatus.ACTIVE or current is None or now < slot.ahead_not_before:
        return None
    if slot.early_ends >= EARLY_ENDS:
        return None  # it would begin without the wait
    settled = current.verdict is None and current.asked_to_hand_over_at is None and current.aborted_at is None
    claimant = next((s for s in current.live if s.token == current.claimed_by and s.was_seen(JobState.RUNNING)), None)
    if not settled or claimant is None or not claimant.job_id:
        return None
    if any(s is not claimant for attempt in slot.attempts for s in attempt.live):
        return None
    later = [attempt for attempt in slot.attempts if attempt.number > current.number]
    if any(attempt.verdict is Verdict.CANCELLED for attempt in later):
        return None  # a person took it out of the queue; the ordinary way remains
    if successor is not None:
        return successor.number, claimant.job_id
    highest = max(attempt.number for attempt in slot.attempts)
    return max(highest, newest_folder) + 1, claimant.job_id


def began_behind(later: Attempt | None, attempt: Attempt) -> bool:
    """Whether `later` has begun as the queued successor of `attempt`: so the job of that one is over for Slurm."""
    behind = {s.after for s in later.submissions if s.token == later.claimed_by} if later is not None else set()
    return any(s.job_id is not None and s.job_id in behind for s in attempt.submissions)


def promoted(slot: Slot, now: float) -> Slot:
    """`slot` with its successor as current attempt, where the one before it has ended and it may follow. Its own shim
    decides by the same facts (`Shim.declines`): after a crash, or a SIGTERM of somebody, it declines.
    """
    current, successor = slot.current, slot.successor
    if successor is None or slot.status is not SlotStatus.ACTIVE or (current is not None and current.verdict is None):
        return slot
    has_word = current is not None and current.exit_code is not None
    declines = current is not None and has_word and (current.exit_code != HANDED_OVER or current.terminated)
    if successor.live and (declines or slot.not_before > now):
        return slot
    first = successor.model_copy(update={"ahead": False})
    attempts = tuple(first if attempt is successor else attempt for attempt in slot.attempts)
    return slot.model_copy(update={"attempts": attempts, "why": "" if successor.live else slot.why})


#: What is no failure of the program.
NOT_ITS_FAULT = frozenset({Verdict.NODE_FAILED, Verdict.NO_ROOM})
#: Ends that a job may come to while it waits in the queue.
_PROVES_NOTHING = frozenset({Verdict.CANCELLED, Verdict.NOT_NEEDED, Verdict.SUPERSEDED})
#: After more of them in a row than a program may have failures so long at least is waited, whatever the config says.
PATIENT_S = 60.0
#: A program that stalls twice from the same checkpoint stalls there for ever.
STALLS = 2
#: Hand-overs whose length is remembered: a day of 4 h jobs, and some.
HAND_OVERS_KEPT = 10
#: The lead should be so many times the longest hand-over: less leaves too little for a slow day of the shared folder.
LEAD_TIMES = 2.0


def after_end(
    slot: Slot, attempt: Attempt, evidence: Evidence, relay: RelaySection, now: float, *, progressed: bool
) -> Slot:
    """`slot` after the end of `attempt` (judged already)."""
    verdict = attempt.verdict
    update: dict[str, Any] = {}
    if progressed or verdict is Verdict.HANDED_OVER:
        update["early_ends"] = slot.early_ends + 1 if is_early(evidence) else 0
    if progressed:
        update |= {"failures": 0, "node_failures": 0, "stalls": 0, "good_node": attempt.node or slot.good_node}
    if verdict is Verdict.HANDED_OVER:
        update |= {"hand_overs": slot.hand_overs + 1, "failures": 0, "node_failures": 0, "stalls": 0}
        ended = evidence.exit
        if ended is not None and ended.asked_at is not None:
            took_s = round(max(0.0, ended.at - ended.asked_at), 1)
            update["hand_over_s"] = (*slot.hand_over_s, took_s)[-HAND_OVERS_KEPT:]
    elif verdict is Verdict.FINISHED:
        update |= {"status": SlotStatus.FINISHED, "why": attempt.cause, "on_request": False}
        update |= {"failures": 0, "node_failures": 0, "stalls": 0}
    elif verdict is Verdict.DO_NOT_REQUEUE:
        update |= {"status": SlotStatus.FAILED, "why": attempt.cause, "on_request": False}
    is_settled = verdict is Verdict.FINISHED or verdict is Verdict.DO_NOT_REQUEUE
    # Whether nothing has begun after it but what was queued behind it, maybe before anybody saw its end.
    current = slot.current
    is_last = current is not None and (attempt.number == current.number or began_behind(current, attempt))
    if slot.status is SlotStatus.ACTIVE and not is_settled and is_last:
        if verdict is Verdict.CANCELLED and all(s.cancelled_at is None for s in attempt.decisive):
            update |= {"status": SlotStatus.PAUSED, "why": f"its job was {attempt.cause}"}
        elif not progressed and verdict is not Verdict.HANDED_OVER:
            update |= _after_failure(slot, attempt, relay, now)
            # Its end shows that Slurm took its job and began it, claimed or not: nothing refuses it any more.
            if verdict not in _PROVES_NOTHING and not any(s.stuck_since is not None for s in attempt.decisive[-1:]):
                update["put_off_since"] = None
        elif (early_ends := update["early_ends"]) >= EARLY_ENDS:
            ended_so = f"without a request (exit code {attempt.exit_code})"
            update["why"] = f"its last {early_ends} jobs each ended within a tenth of their time, {ended_so}"
            delay_s = max(PATIENT_S, delay_after(early_ends - EARLY_ENDS + 1, relay))
            update["not_before"] = now + delay_s
    return slot.model_copy(update=update) if update else slot


def is_early(evidence: Evidence) -> bool:
    """Whether its program ended of itself, unasked, in the first tenth of its job's time."""
    ended = evidence.exit
    if ended is None or ended.code < 0 or ended.asked is not None or ended.terminated:
        return False
    return ended.time_used is not None and ended.time_used < 0.1


def _after_failure(slot: Slot, attempt: Attempt, relay: RelaySection, now: float) -> dict[str, Any]:
    failures, node_failures, stalls = slot.failures, slot.node_failures, slot.stalls
    if attempt.verdict in NOT_ITS_FAULT:
        node_failures += 1
        counted = ""
    elif attempt.verdict in {Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.NO_PROGRESS, Verdict.STALLED}:
        failures += 1
        stalls += attempt.verdict is Verdict.STALLED
        counted = f" (failure {failures} of {relay.failure_budget})"
    else:
        return {}
    update: dict[str, Any] = {"failures": failures, "node_failures": node_failures, "stalls": stalls}
    if stalls >= STALLS and attempt.verdict is Verdict.STALLED:
        why = f"{stalls} jobs stalled without a new checkpoint between them; the last one: {attempt.cause}"
        return update | {"status": SlotStatus.FAILED, "why": why}
    before = next((one for one in reversed(slot.attempts) if one.number < attempt.number), None)
    if before is not None and all(one.cause.startswith(GPU_FULL) for one in (before, attempt)):
        # One may have been another process's fault on that node; a smaller batch would be another training.
        why = f"{GPU_FULL} twice in a row: use a smaller batch, or a GPU with more memory (slurm.gpu_type)"
        return update | {"status": SlotStatus.FAILED, "why": why}
    if failures >= relay.failure_budget and attempt.verdict not in NOT_ITS_FAULT:
        why = f"{failures} jobs in a row ended without a new checkpoint; the last one: {attempt.cause}"
        return update | {"status": SlotStatus.FAILED, "why": why}
    delay_s = delay_after(failures + node_failures, relay)
    if node_failures > relay.failure_budget and attempt.verdict in NOT_ITS_FAULT:
        delay_s = max(delay_s, PATIENT_S)  # nothing else would ever slow these down
    why = f"its last job failed: {attempt.cause}{counted}"
    return update | {"why": why, "not_before": now + delay_s if delay_s else 0.0}


def delay_after(failures: int, relay: RelaySection) -> float:
    """How long to wait after so many failures in a row (from 1)."""
    delays = relay.retry_delays_seconds
    return delays[min(failures, len(delays)) - 1]


def lead_warning(slot: Slot, lead_s: float, limit_s: float) -> str:
    """A sentence where hand-overs came near the lead; empty where they did not. `limit_s`: the walltime."""
    longest_s = max(slot.hand_over_s, default=0.0)
    if LEAD_TIMES * longest_s <= lead_s:
        return ""
    better_s = math.ceil(LEAD_TIMES * longest_s / 10.0) * 10
    longer = f", and slurm.time_limit to {format_duration(3 * better_s)}" if 2 * better_s > limit_s else ""
    return f"a hand-over took {longest_s:.0f} s, and lead_seconds is {lead_s:.0f}: set it to {better_s}{longer}"
