"""What to do next. Pure: (ledger, wish, limits, now) → actions.

Rules, in this order: never two live submissions for one slot on purpose; a blind slot is an occupied slot; never more
jobs than the limit, the user's other jobs counted; every unfinished slot has a job or a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.executors.base import JobState
from orchestrator.ledger import Control
from orchestrator.models import (
    Attempt,
    Ledger,
    Seen,
    Slot,
    SlotStatus,
    Submission,
    SubmissionState,
    make_token,
)

#: A cancel that had no effect is repeated; scancel of an ended job is harmless.
CANCEL_AGAIN_S = 60.0
#: Refused submissions that stay in the ledger, for each attempt.
REFUSALS_KEPT = 2


@dataclass(frozen=True)
class Submit:
    """Submit `attempt` of `slot` under `token`. `after`: the job to queue behind. `exclude`: nodes to avoid."""

    slot: int
    attempt: int
    token: str
    after: str | None = None
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class HandOver:
    """Ask a running job to save and exit."""

    slot: int
    attempt: int
    token: str
    job_id: str | None


@dataclass(frozen=True)
class Cancel:
    """End a job. `why` goes into the history."""

    slot: int
    attempt: int
    token: str
    job_id: str
    why: str


@dataclass(frozen=True)
class Release:
    """Let a job go that the scheduler itself held, because its launch failed."""

    slot: int
    attempt: int
    token: str
    job_id: str


@dataclass(frozen=True)
class Abort:
    """Make a program that reports nothing any more print its stacks and end."""

    slot: int
    attempt: int
    token: str
    why: str


Action = Submit | HandOver | Cancel | Release | Abort


@dataclass(frozen=True)
class Limits:
    """`slots`: how many to keep going. `max_jobs`: the user's limit, None: unknown. `others`: jobs of other runs.
    `grace_s`: how long a job beyond `slots` has to hand over.
    """

    slots: int
    max_jobs: int | None
    others: int
    grace_s: float = 180.0


def plan(
    ledger: Ledger,
    control: Control,
    limits: Limits,
    newest_folder: dict[int, int],
    now: float,
    random_hex: Callable[[], str],
) -> list[Action]:
    """The actions of this tick. `newest_folder`: by slot, the highest attempt that left a folder (-1: none)."""
    actions: list[Action] = []
    for slot in ledger.slots:
        wish = control.wish if slot.index < limits.slots else "stop"
        actions += _tidy(slot, now)
        if wish == "stop":
            grace_s = control.grace_s if control.wish == "stop" else limits.grace_s
            actions += _hand_over(slot, grace_s, now)
        elif wish == "stop-now":
            actions += _cancel_all(slot, now)
    if control.wish != "run":
        return actions
    room = _room(ledger, limits)
    for slot in ledger.slots[: limits.slots]:
        if room <= 0:
            break
        number = next_attempt(slot, newest_folder.get(slot.index, -1))
        if number is not None and now >= slot.not_before:
            actions.append(Submit(slot.index, number, make_token(slot.index, number, random_hex())))
            room -= 1
    return actions


def next_attempt(slot: Slot, newest_folder: int) -> int | None:
    """The attempt to submit now; None where the slot has a job, may have one, or needs none."""
    if slot.status is not SlotStatus.ACTIVE or any(attempt.live for attempt in slot.attempts):
        return None
    current = slot.current
    if current is None:
        return newest_folder + 1
    if current.verdict is None:
        # A claimed attempt is never submitted again: whoever has it will be adopted.
        return current.number if current.claimed_by is None else None
    return max(current.number, newest_folder) + 1


def _room(ledger: Ledger, limits: Limits) -> float:
    if limits.max_jobs is None:
        return float("inf")
    ours = sum(len(attempt.live) for slot in ledger.slots for attempt in slot.attempts)
    return limits.max_jobs - limits.others - ours


def _tidy(slot: Slot, now: float) -> list[Action]:
    """End jobs that can only lose: of attempts that were overtaken, or waiting for an attempt that is taken."""
    actions: list[Action] = []
    for attempt in slot.attempts:
        overtaken = attempt is not slot.current
        for submission in attempt.live:
            other = attempt.claimed_by is not None and submission.token != attempt.claimed_by
            useless = is_pending(submission) and (other or attempt.verdict is not None)
            if submission.job_id and _may_cancel(submission, now) and (overtaken or useless):
                why = "another job runs this attempt" if other else "its attempt is over"
                actions.append(Cancel(slot.index, attempt.number, submission.token, submission.job_id, why))
    return actions


def _may_cancel(submission: Submission, now: float) -> bool:
    return submission.cancelled_at is None or now - submission.cancelled_at >= CANCEL_AGAIN_S


def is_pending(submission: Submission) -> bool:
    """Whether it was last seen waiting."""
    return isinstance(submission.sighting, Seen) and submission.sighting.state is JobState.PENDING


def _hand_over(slot: Slot, grace_s: float, now: float) -> list[Action]:
    attempt = slot.current
    if attempt is None:
        return []
    actions: list[Action] = []
    for submission in attempt.live:
        where = (slot.index, attempt.number, submission.token)
        if is_pending(submission) and attempt.claimed_by is None:
            if submission.job_id and _may_cancel(submission, now):
                actions.append(Cancel(*where, submission.job_id, "stopped before it began"))
        elif attempt.asked_to_hand_over_at is None:
            actions.append(HandOver(*where, submission.job_id))
        elif now - attempt.asked_to_hand_over_at > grace_s and submission.job_id and _may_cancel(submission, now):
            actions.append(Cancel(*where, submission.job_id, f"no hand-over within {grace_s:.0f} s"))
    return actions


def _cancel_all(slot: Slot, now: float) -> list[Action]:
    return [
        Cancel(slot.index, attempt.number, submission.token, submission.job_id, "stopped at once")
        for attempt in slot.attempts
        for submission in attempt.live
        if submission.job_id and _may_cancel(submission, now)
    ]


def with_room_words(
    ledger: Ledger,
    submits: list[Submit],
    control: Control,
    limits: Limits,
    newest_folder: dict[int, int],
    now: float,
) -> Ledger:
    """`ledger` with the reason written to each slot that could be submitted but for the limit."""
    begun = {action.slot for action in submits}
    slots = list(ledger.slots)
    for slot in slots[: limits.slots] if control.wish == "run" else ():
        wanted = next_attempt(slot, newest_folder.get(slot.index, -1)) is not None
        if wanted and slot.index not in begun and now >= slot.not_before:
            why = f"waits for room: slurm.max_jobs is {limits.max_jobs}, and you have {limits.others} other jobs"
            slots[slot.index] = slot.model_copy(update={"why": why})
    return ledger.model_copy(update={"slots": tuple(slots)})


def is_over(ledger: Ledger, control: Control, limits: Limits) -> bool:
    """Whether nothing is left to do: no job may be live, and the wish is to stop or no slot wants one."""
    if any(attempt.live for slot in ledger.slots for attempt in slot.attempts):
        return False
    wanted = [slot for slot in ledger.slots[: limits.slots] if slot.status is SlotStatus.ACTIVE]
    return control.wish != "run" or not wanted


def replace_attempt(ledger: Ledger, slot: int, number: int, **update: Any) -> Ledger:
    """`ledger` with one attempt changed (made, where it is new)."""
    slots = list(ledger.slots)
    attempts = {attempt.number: attempt for attempt in slots[slot].attempts}
    attempts[number] = attempts.get(number, Attempt(number=number)).model_copy(update=update)
    ordered = tuple(attempts[n] for n in sorted(attempts))
    slots[slot] = slots[slot].model_copy(update={"attempts": ordered})
    return ledger.model_copy(update={"slots": tuple(slots)})


def replace_submission(ledger: Ledger, slot: int, number: int, token: str, **update: Any) -> Ledger:
    """`ledger` with one submission changed."""
    attempt = next(a for a in ledger.slots[slot].attempts if a.number == number)
    changed = tuple(s.model_copy(update=update) if s.token == token else s for s in attempt.submissions)
    return replace_attempt(ledger, slot, number, submissions=changed)


def with_intents(ledger: Ledger, submits: list[Submit], now: float) -> Ledger:
    """`ledger` with the intents written in, before any of them is submitted."""
    for action in submits:
        attempts = {attempt.number: attempt for attempt in ledger.slots[action.slot].attempts}
        before = attempts.get(action.attempt, Attempt(number=action.attempt)).submissions
        refused = [s for s in before if s.state is SubmissionState.NOT_SUBMITTED]
        # A weekend of full quota is thousands of refusals; the last ones say it all.
        before = tuple(s for s in before if s not in refused[:-REFUSALS_KEPT])
        intent = Submission(token=action.token, intent_at=now, state=SubmissionState.INTENT)
        ledger = replace_attempt(ledger, action.slot, action.attempt, submissions=(*before, intent))
    return ledger
