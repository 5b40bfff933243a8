"""What to do next. Pure: (ledger, wish, limits, now) → actions.

Rules, in this order: never two live submissions for one slot on purpose, but for a queued successor behind a job that
runs; a blind slot is an occupied slot, and while the queue is unseen nothing is submitted; never more jobs than the
limit, the user's other jobs counted; every unfinished slot has a job or a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anchorleg.words import counted, roughly
from orchestrator.decisions import adoption
from orchestrator.decisions.edits import full_words, with_words
from orchestrator.decisions.ends import began_behind, wants_successor
from orchestrator.decisions.models import (
    Abort,
    Action,
    Attempt,
    Cancel,
    HandOver,
    Ledger,
    Seen,
    Slot,
    SlotStatus,
    Submission,
    Submit,
    make_token,
)
from orchestrator.decisions.nodes import excluded
from orchestrator.decisions.reasons import LAUNCH_FAILED_HELD
from orchestrator.decisions.requests import Control
from orchestrator.decisions.sightings import ABORT_WAIT_S, is_stalled, is_stuck, never_begins
from orchestrator.decisions.turns import Turns, in_turn, is_at_rung, may_pass
from orchestrator.decisions.verdicts import LAUNCH_FAILED, NEVER_BEGAN
from orchestrator.executors.base import JobState

#: A cancel that had no effect is repeated; scancel of an ended job is harmless.
CANCEL_AGAIN_S = 60.0
#: What one tick hands to sbatch, some 50 ms each: the queue must be looked at in between.
SUBMITS_A_TICK = 100
#: So many steps show that a program works (`queue.probe_first`).
PROBE_STEPS = 20
#: Why a waiting job is cancelled that would begin at once in another place (`slurm.alternatives`).
MOVED = "it can begin at once in another place"
#: A job waits so long before another place is looked for. After each move twice as long: what sbatch --test-only
#: expects need not come true, and a new job begins to wait anew.
MOVE_AFTER_S = 300.0


@dataclass(frozen=True)
class Limits:
    """`slots`: how many to keep going. `max_jobs`: the user's limit, None: unknown. `others`: jobs of other runs.
    `grace_s`: how long a job beyond `slots` has to hand over. `stall_s`, `queue_ahead`: see `RelaySection`. `moving`:
    the token of a waiting job that would begin at once in another place. `before`: what must happen before the run's
    first job. `turns`: which slot gets a place first.
    """

    slots: int
    max_jobs: int | None
    others: int
    grace_s: float = 180.0
    stall_s: float = 600.0
    queue_ahead: bool = False
    moving: str = ""
    before: str = ""
    turns: Turns = field(default_factory=Turns)


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
        if ledger.blind_since is None:
            actions += _take_out_leftovers(slot, now)
        if not slot.occupied:
            continue
        is_wanted = slot.index < limits.slots and not _is_to_rest(slot, limits)
        wish = control.wish if is_wanted or control.wish == "stop-now" else "stop"
        actions += _tidy(slot, now)
        if wish == "stop":
            grace_s = control.grace_s if control.wish == "stop" else limits.grace_s
            actions += _hand_over(slot, grace_s, now)
        elif wish == "stop-now":
            for attempt in reversed(slot.attempts):
                for submission in attempt.live:
                    actions += _cancel(slot, attempt, submission, "stopped at once", now)
        else:
            actions += _look_after(slot, limits, now)
    if control.wish == "run" and ledger.blind_since is None:
        leaving = {action.slot for action in actions if isinstance(action, HandOver | Abort)}
        submits = _submits(ledger, limits, newest_folder, now, random_hex)
        behind = [one for one in submits if isinstance(one, Submit) and one.after is not None and one.slot in leaving]
        actions += [one for one in submits if one not in behind]
    # One cancel a job is enough, whatever the reasons.
    first = {one.token: at for at, one in reversed([*enumerate(actions)]) if isinstance(one, Cancel)}
    return [one for at, one in enumerate(actions) if not isinstance(one, Cancel) or first[one.token] == at]


def _submits(
    ledger: Ledger, limits: Limits, newest_folder: dict[int, int], now: float, random_hex: Callable[[], str]
) -> list[Action]:
    avoid = excluded(ledger.nodes, now)
    room = min(_room(ledger, limits, now), SUBMITS_A_TICK)
    chosen: list[Action] = []
    idle = crowded = 0
    for slot in candidates(ledger, limits, newest_folder):
        number = next_attempt(slot, newest_folder.get(slot.index, -1))
        if number is not None and room > 0 and now >= slot.not_before:
            token = make_token(slot.index, number, random_hex())
            level = slot.level + 1 if is_at_rung(slot, limits.turns.queue) else None
            chosen.append(Submit(slot.index, number, token, exclude=avoid, level=level, raised=slot.raised))
            room -= 1
        else:
            idle += 1
            crowded += now >= slot.not_before
    if crowded:
        return chosen + _make_room(ledger, crowded, now)
    # While a slot is without a job, the place is its own: a queued successor must never take it. And one a tick: it has
    # hours to wait, and a limit that nobody told us refuses one and not one for each slot.
    for slot in ledger.slots[: limits.slots] if limits.queue_ahead and not idle and room > 0 else ():
        wanted = wants_successor(slot, newest_folder.get(slot.index, -1), now)
        if wanted is not None and slot.current is not None:
            number, after = wanted
            token = make_token(slot.index, number, random_hex())
            where = (slot.index, number, token, after, slot.current.number)
            return [*chosen, Submit(*where, exclude=avoid, raised=slot.raised)]
    return chosen


def candidates(ledger: Ledger, limits: Limits, newest_folder: dict[int, int]) -> list[Slot]:
    """The slots that are to get a job as soon as there is room, the next one first: one that works above the highest
    rung then. Of equals those that have passed it already, whose turn it is; then those that may pass it now, the best
    first. Who waits at a rung is none.
    """
    queue = limits.turns.queue
    wanted = _let_in(ledger, limits)
    waiting = [slot for slot in wanted if next_attempt(slot, newest_folder.get(slot.index, -1)) is not None]
    if queue.halving is None:
        return in_turn(waiting, limits.turns)
    free = {slot.index for slot in waiting}
    passing = [slot for slot in may_pass(wanted, queue) if slot.index in free]
    on_the_way = in_turn([slot for slot in waiting if not is_at_rung(slot, queue)], limits.turns)
    # Who has passed a rung keeps his place before those below until the next one, however many jobs that takes.
    return sorted([*on_the_way, *passing], key=lambda slot: -(slot.level + is_at_rung(slot, queue)))


def _let_in(ledger: Ledger, limits: Limits) -> tuple[Slot, ...]:
    """The slots that may have jobs by now: none before another run has finished, one until it is seen to work."""
    wanted = ledger.slots[: limits.slots]
    if limits.before and not ledger.had_jobs:
        return ()
    if not limits.turns.queue.probe_first:
        return wanted
    works = [slot.step >= PROBE_STEPS or slot.hand_overs > 0 or slot.status is SlotStatus.FINISHED for slot in wanted]
    return wanted if any(works) else wanted[:1]


def _is_to_rest(slot: Slot, limits: Limits) -> bool:
    """Whether its job is to save and end although the run goes on. A queued successor may have begun before anybody saw
    that the end of the job before it pauses or ends the slot.
    """
    over = slot.status in {SlotStatus.PAUSED, SlotStatus.FAILED}
    runs = any(s.token == attempt.claimed_by for attempt in slot.attempts for s in attempt.live)
    return slot.put_aside or (over and runs) or is_at_rung(slot, limits.turns.queue)


def _make_room(ledger: Ledger, wanted: int, now: float) -> list[Action]:
    """Take queued successors back for slots that have no job at all."""
    found: list[Action] = []
    for slot in reversed(ledger.slots):
        if (successor := slot.successor) is not None:
            for submission in successor.live:
                if submission.was_seen(JobState.PENDING):
                    found += _cancel(slot, successor, submission, "a slot without a job needs its place", now)
    return found[:wanted]


def next_attempt(slot: Slot, newest_folder: int) -> int | None:
    """The attempt to submit now; None where the slot has a job, may have one, or needs none."""
    if slot.status is not SlotStatus.ACTIVE or slot.occupied:
        return None
    current = slot.current
    if current is not None and current.verdict is None:
        # A claimed attempt is never submitted again: the job that has it will be adopted.
        return current.number if current.claimed_by is None else None
    return max([newest_folder, *(attempt.number for attempt in slot.attempts)]) + 1


def _room(ledger: Ledger, limits: Limits, now: float) -> float:
    """For how many further jobs: by the config, and by what the scheduler last refused; after a while, one more."""
    jobs = jobs_of(ledger) + limits.others
    room = float("inf") if limits.max_jobs is None else float(limits.max_jobs - jobs)
    if ledger.full_at is not None:
        room = min(room, max(0, ledger.full_at - jobs) + (now >= ledger.full_until))
    return room


def jobs_of(ledger: Ledger) -> int:
    """How many jobs the run has, or may have."""
    return sum(len(attempt.live) for slot in ledger.slots for attempt in slot.attempts)


def _tidy(slot: Slot, now: float) -> list[Action]:
    """End jobs that can only lose: of attempts that were overtaken, waiting for an attempt that is taken or over,
    queued behind a job after which something else comes, or waiting for what never comes.
    """
    actions: list[Action] = []
    current = slot.current
    for attempt in slot.attempts:
        overtaken = current is not None and attempt.number < current.number
        is_over = current is None or current.verdict is not None
        unneeded = attempt.ahead and (slot.status is not SlotStatus.ACTIVE or is_over)
        for submission in attempt.live:
            if overtaken and began_behind(current, attempt) and not _was_seen_since(submission, current):
                continue  # the queue has ended it, and will say how: a person's cancel must not look like ours
            other = attempt.claimed_by is not None and submission.token != attempt.claimed_by
            unclaimed = attempt.claimed_by is None and submission.was_seen(JobState.PENDING)
            useless = submission.was_seen(JobState.PENDING) and (other or attempt.verdict is not None)
            why = None
            if overtaken or useless:
                why = "another job runs this attempt" if other else "its attempt is over"
            elif unneeded and unclaimed:
                why = "its slot no longer needs it"
            elif slot.status is not SlotStatus.ACTIVE and unclaimed:
                why = "its slot needs no job now"
            elif is_stuck(submission):
                why = "it can never run"
            if why is not None:
                actions += _cancel(slot, attempt, submission, why, now)
    return actions


def _was_seen_since(submission: Submission, current: Attempt | None) -> bool:
    """Whether a look at the queue that is later than the claim of `current` has shown it."""
    seen, since = submission.sighting, current.claim_seen_at if current is not None else None
    return isinstance(seen, Seen) and since is not None and seen.at > since


def _look_after(slot: Slot, limits: Limits, now: float) -> list[Action]:
    """Jobs that need help: held after a failed launch, or running without doing anything."""
    attempt = slot.current
    if attempt is None or slot.status is not SlotStatus.ACTIVE:
        return []
    actions: list[Action] = []
    for submission in attempt.live:
        seen, waits = submission.sighting, submission.was_seen(JobState.PENDING)
        if waits and isinstance(seen, Seen) and LAUNCH_FAILED_HELD in seen.reason.replace("_", " ").lower():
            actions += _cancel(slot, attempt, submission, LAUNCH_FAILED, now)
        elif waits and submission.token == limits.moving:
            actions += _cancel(slot, attempt, submission, MOVED, now)
        elif never_begins(attempt, submission, limits.stall_s):
            actions += _cancel(slot, attempt, submission, NEVER_BEGAN, now)
        elif attempt.aborted_at is not None and submission.token == attempt.claimed_by:
            if now - attempt.aborted_at >= ABORT_WAIT_S:
                actions += _cancel(slot, attempt, submission, "it did not end after printing its stacks", now)
        elif is_stalled(slot, attempt, submission, limits.stall_s, now):
            why = f"no progress for {roughly(attempt.quiet_s)}"
            actions.append(Abort(slot.index, attempt.number, submission.token, why))
    return actions


def _cancel(slot: Slot, attempt: Attempt, submission: Submission, why: str, now: float) -> list[Cancel]:
    """One cancel; none where its id is not known, or it was cancelled a moment ago."""
    at, job_id = submission.cancelled_at, _named_id(submission)
    if job_id is None or (at is not None and abs(now - at) < CANCEL_AGAIN_S):
        return []
    return [Cancel(slot.index, attempt.number, submission.token, job_id, why)]


def _named_id(submission: Submission) -> str | None:
    """Its id, where the queue has it: slurmctld may have begun to count anew, and given it to another job by now."""
    return submission.job_id if submission.absent_since is None else None


def _hand_over(slot: Slot, grace_s: float, now: float) -> list[Action]:
    """The successor first: it must not begin when the job before it has handed over."""
    actions: list[Action] = []
    for attempt in [one for one in (slot.successor, slot.current) if one is not None]:
        for submission in attempt.live:
            asked_at = attempt.asked_to_hand_over_at
            if (submission.was_seen(JobState.PENDING) or attempt.ahead) and attempt.claimed_by is None:
                actions += _cancel(slot, attempt, submission, "stopped before it began", now)
            elif asked_at is None:
                actions.append(HandOver(slot.index, attempt.number, submission.token, _named_id(submission)))
            elif now - asked_at > grace_s:
                actions += _cancel(slot, attempt, submission, f"no hand-over within {grace_s:.0f} s", now)
    return actions


def _take_out_leftovers(slot: Slot, now: float) -> list[Action]:
    actions: list[Action] = []
    for attempt in slot.attempts:
        for submission in attempt.submissions:
            if submission.left_since is not None and now - submission.left_since >= adoption.LEFT_S:
                actions += _cancel(slot, attempt, submission, adoption.LEFT_WHY, now)
    return actions


def longest_waiting(ledger: Ledger, now: float) -> tuple[Slot, Attempt, Submission] | None:
    """The waiting job for which another place is to be looked for next; None: none has waited long enough."""
    found: list[tuple[float, Slot, Attempt, Submission]] = []
    for slot in ledger.slots:
        attempt = slot.current
        if attempt is None or attempt.claimed_by is not None:
            continue
        ended = [one.cause == MOVED for one in slot.attempts if one.verdict is not None]
        moves = next((count for count, moved in enumerate(reversed(ended)) if not moved), len(ended))
        for submission in attempt.live:
            waits = submission.was_seen(JobState.PENDING) and submission.cancelled_at is None
            if waits and now - submission.intent_at >= MOVE_AFTER_S * 2**moves:
                found.append((submission.intent_at, slot, attempt, submission))
    return min(found, key=lambda one: one[0])[1:] if found else None


def with_room_words(
    ledger: Ledger, control: Control, limits: Limits, newest_folder: dict[int, int], now: float
) -> Ledger:
    """`ledger`, with the intents of this tick in it, with the reason written to each slot that waits for room only."""
    if control.wish != "run" or ledger.blind_since is not None:
        return ledger
    waiting = [slot for slot in candidates(ledger, limits, newest_folder) if now >= slot.not_before]
    why = _room_words(ledger, limits) if waiting else ""
    let_in = _let_in(ledger, limits)
    before = f"waits until slot {let_in[0].index} has done {PROBE_STEPS} steps" if let_in else limits.before
    kept_out = [slot for slot in ledger.slots[len(let_in) : limits.slots] if next_attempt(slot, -1) is not None]
    return with_words(ledger, {slot.index: why for slot in waiting} | {slot.index: before for slot in kept_out})


def _room_words(ledger: Ledger, limits: Limits) -> str:
    jobs = jobs_of(ledger) + limits.others
    if limits.max_jobs is None or (jobs < limits.max_jobs and ledger.full_at is not None):
        return full_words(ledger.full_words) if ledger.full_at is not None else "it is submitted at the next check"
    others = f" and {counted(limits.others, 'other job')} of yours" if limits.others else ""
    who = counted(sum(slot.occupied for slot in ledger.slots), "slot") + others
    return f"waits for a free job: {jobs} of {limits.max_jobs} (slurm.max_jobs) are taken by {who}"


def is_held(slot: Slot, control: Control, limits: Limits, now: float) -> str:
    """Why a queued successor of this slot must not begin, for the file that its shim looks for; empty: it may."""
    if control.wish != "run":
        return "the run is being stopped"
    if slot.index >= limits.slots:
        return "the run has fewer slots now"
    if slot.status is not SlotStatus.ACTIVE:
        return f"the slot is {slot.status}"
    return "the slot waits after a failure" if now < slot.not_before else ""


def is_over(ledger: Ledger, control: Control, limits: Limits) -> bool:
    """Whether nothing is left to do: no job may be live, and the wish is to stop or no slot wants one."""
    if any(slot.occupied for slot in ledger.slots):
        return False
    let_in = _let_in(ledger, limits) or ledger.slots[: limits.slots]
    wanted = [slot for slot in let_in if slot.status is SlotStatus.ACTIVE]
    return control.wish != "run" or not wanted
