"""Take what was seen into the ledger. Pure: (ledger, facts) → (ledger, events)."""

from __future__ import annotations

from typing import Any

from orchestrator.decisions import adoption, ends, nodes, sightings
from orchestrator.decisions.edits import AGAIN_S, AHEAD_WAIT_S, after_refusal, with_clock_set_back
from orchestrator.decisions.escalation import raised_after, raised_words
from orchestrator.decisions.evidence import Event, Evidence, Facts, Progress, event
from orchestrator.decisions.models import (
    Attempt,
    BadNode,
    Blind,
    Death,
    Gone,
    Ledger,
    Seen,
    Slot,
    SlotStatus,
    Submission,
    SubmissionState,
    Verdict,
)
from orchestrator.decisions.plan import MOVED
from orchestrator.decisions.reasons import reason_of
from orchestrator.decisions.sightings import is_stuck, missing_from, never_accepted, sight
from orchestrator.decisions.turns import with_metric_of, with_rungs
from orchestrator.decisions.verdicts import NO_INODES, NO_SPACE, NOTHING_SAVED, follows_the_job, judge
from orchestrator.executors.base import JobState
from orchestrator.sections import QueueSection

#: Ended attempts that stay in the ledger for `status`; all of them stay in the event log.
ATTEMPTS_KEPT = 3
#: Ends that accuse a node, if they come early and without a new checkpoint.
_ACCUSING = frozenset({Verdict.CRASHED, Verdict.NO_ROOM, Verdict.STALLED, Verdict.NODE_FAILED})


def fold(ledger: Ledger, facts: Facts) -> tuple[Ledger, list[Event]]:
    """The ledger after this look, and what happened in it."""
    events: list[Event] = []
    ledger = with_clock_set_back(ledger, facts.now, max(AGAIN_S, *facts.relay.retry_delays_seconds))
    ledger = with_metric_of(ledger, facts.queue)
    memory = nodes.decayed(ledger.nodes, facts.now)
    slots = []
    for before in ledger.slots:
        slot, memory = _fold_slot(before, memory, facts, events, had_jobs=ledger.had_jobs)
        slots.append(slot)
    update: dict[str, Any] = {"slots": tuple(slots), "nodes": memory}
    error = facts.poll.error
    update |= {"blind_since": (ledger.blind_since or facts.poll.at) if error else None, "blind_error": error or ""}
    if error and ledger.blind_since is None:
        events.append({"kind": "blind", "error": error})
    if not error and ledger.blind_since is not None:
        blind_s = round(max(0.0, facts.poll.at - ledger.blind_since), 1)
        events.append({"kind": "sighted", "since": ledger.blind_since, "blind_s": blind_s})
    return with_rungs(ledger.model_copy(update=update), facts.queue), events


def _fold_slot(
    slot: Slot, memory: tuple[BadNode, ...], facts: Facts, events: list[Event], *, had_jobs: bool
) -> tuple[Slot, tuple[BadNode, ...]]:
    heard = slot.index in facts.rows_of_slot or slot.index in facts.newest_claims
    if slot.is_quiet and not heard and len(slot.attempts) <= ATTEMPTS_KEPT:
        return slot, memory  # of hundreds of experiments most wait for their turn, and nobody speaks of them
    looked_at = slot
    slot = adoption.adopt(slot, facts, events)
    for before in slot.attempts:
        if before.verdict is not None and not before.live:
            continue
        evidence = facts.evidence.get((slot.index, before.number))
        if evidence is None and slot.index in facts.newest_claims:
            number, newest = facts.newest_claims[slot.index]
            evidence = newest if number == before.number else None
        if evidence is None:
            continue
        after = _fold_attempt(before, evidence, facts)
        unclear = {s.token for s in before.live}
        refused = [s for s in after.submissions if s.state is SubmissionState.NOT_SUBMITTED and s.token in unclear]
        slot = _with_attempt(slot, before, after, evidence, facts, was_refused=bool(refused))
        events += [event("not accepted", slot, after, why=one.note) for one in refused]
        if before.started_at is None and after.started_at is not None:
            claim = {"job_id": _job_id(after), "node": after.node, "claimed_at": after.started_at}
            events.append(event("started", slot, after, **claim, start_step=after.start_step))
        if before.verdict is None and after.verdict is not None:
            events.append(_ended(slot, after, evidence))
            progressed = evidence.made_progress
            if not progressed:
                memory = _accuse(slot, after, evidence, memory, facts, events)
            slot = ends.after_end(slot, after, evidence, facts.relay, facts.now, progressed=progressed)
            raised = slot.raised if progressed else raised_after(slot, after, facts.slurm, facts.relay.escalate)
            if raised != slot.raised:
                slot = slot.model_copy(update={"raised": raised})
                events.append(event("raised", slot, after, why=raised_words(facts.slurm, raised)))
            ended: dict[str, Any] = {"worked_s": round(slot.worked_s + _worked_s(after, evidence), 1)}
            if after.ahead:
                ended["ahead_not_before"] = facts.now + AHEAD_WAIT_S
            slot = slot.model_copy(update=ended)
    slot = adoption.with_leftovers(ends.promoted(slot, facts.now), facts)
    slot, memory = _give_up_waiting(slot, memory, facts.now, events, had_jobs=had_jobs)
    return _with_newest_attempts(slot, looked_at, facts), memory


def _with_newest_attempts(slot: Slot, before: Slot, facts: Facts) -> Slot:
    """Without the attempts that nothing needs any more. Every end stands in a ledger once (`before`: the last look's
    slot), and those whose jobs the scheduler still has would be taken for new ones.
    """
    if len(slot.attempts) <= ATTEMPTS_KEPT:
        return slot
    were_live = {attempt.number for attempt in before.attempts if attempt.live}
    older, newest = slot.attempts[:-ATTEMPTS_KEPT], slot.attempts[-ATTEMPTS_KEPT:]
    there = {token for _, token, row in facts.rows_of_slot.get(slot.index, ()) if row.state is not JobState.ENDED}
    needed = [
        attempt
        for attempt in older
        if attempt.live
        or attempt.number in were_live
        or attempt is slot.current
        or attempt.is_left
        or any(submission.token in there for submission in attempt.submissions)
    ]
    return slot.model_copy(update={"attempts": (*needed, *newest)}) if len(needed) < len(older) else slot


def _with_attempt(
    slot: Slot, before: Attempt, after: Attempt, evidence: Evidence, facts: Facts, *, was_refused: bool
) -> Slot:
    """`slot` with `after` in the place of `before`, and with what the attempt tells of the whole slot."""
    update: dict[str, Any] = {}
    if after is not before:
        update["attempts"] = tuple(after if attempt is before else attempt for attempt in slot.attempts)
    if before.started_at is None and after.started_at is not None:
        update["jobs"] = slot.jobs + 1
        update["why"] = slot.why if slot.status is not SlotStatus.ACTIVE else ""  # why the one before it failed
        update["put_off_since"] = None
    if after is not before and _is_uncertain(before) and not _is_uncertain(after):
        update["why"] = ""
        if was_refused:
            update |= _after_refused(slot, after, facts)
    if after.progress_mark != before.progress_mark:
        stall_s = facts.relay.stall_seconds
        update["usual_s"] = sightings.usual_after(slot, before, after, facts.since_last_look_s, stall_s)
    step, total = slot.step, slot.total
    if evidence.progress is not None:
        step, total = evidence.progress.step, evidence.progress.total
    elif evidence.newest_checkpoint is not None:
        step = evidence.newest_checkpoint
    if (step, total) != (slot.step, slot.total):
        update |= {"step": step, "total": total}
    if facts.queue.metric is not None and evidence.progress is not None:
        update |= _with_metric(slot, evidence.progress, facts.queue)
    return slot.model_copy(update=update) if update else slot


def _with_metric(slot: Slot, progress: Progress, queue: QueueSection) -> dict[str, Any]:
    value = progress.metric(queue.metric or "")
    if value is None and (progress.model_extra or {}).get(queue.metric or "") is not None:
        return {"metric": None}  # it diverged: what it was before tells nothing of what it is
    if value is None or value == slot.metric:
        return {}
    is_best = slot.best is None or (value < slot.best if queue.goal == "min" else value > slot.best)
    return {"metric": value} | ({"best": value, "best_step": progress.step} if is_best else {})


def _after_refused(slot: Slot, attempt: Attempt, facts: Facts) -> dict[str, Any]:
    """Wait as after a failure: a site that refuses in words that nobody understands would be asked for ever."""
    refused = [s for s in attempt.submissions if s.state is SubmissionState.NOT_SUBMITTED]
    not_before = facts.now + ends.delay_after(len(refused), facts.relay)
    if attempt.ahead:
        return {"ahead_not_before": max(slot.ahead_not_before, not_before)}
    return {"why": f"its last submission was not accepted: {refused[-1].note}", "not_before": not_before}


def _is_uncertain(attempt: Attempt) -> bool:
    return SubmissionState.UNCERTAIN in [submission.state for submission in attempt.submissions]


def _ended(slot: Slot, attempt: Attempt, evidence: Evidence) -> Event:
    saved = evidence.saved_step
    if saved is None and evidence.progress is not None:
        saved = evidence.start_step  # which the next job goes on from
    told = {name: getattr(attempt, name) for name in ("node", "ended_at", "verdict", "cause")}
    step = evidence.progress.step if evidence.progress else None
    return event("ended", slot, attempt, job_id=_job_id(attempt), **told, step=step, checkpoint_step=saved)


def _worked_s(attempt: Attempt, evidence: Evidence) -> float:
    """For how long its job worked: by its own record, else the scheduler's, else to its last report."""
    if attempt.started_at is None:
        return 0.0
    gone = attempt.decisive[-1].sighting if attempt.decisive else None
    if evidence.exit is not None:
        return max(0.0, evidence.exit.at - attempt.started_at)
    if isinstance(gone, Gone) and gone.ran_s is not None:
        return max(0.0, gone.ran_s)
    return max(0.0, evidence.progress.at - attempt.started_at) if evidence.progress is not None else 0.0


def _job_id(attempt: Attempt) -> str | None:
    return next((s.job_id for s in attempt.submissions if s.token == attempt.claimed_by), None)


def _accuse(
    slot: Slot, attempt: Attempt, evidence: Evidence, memory: tuple[BadNode, ...], facts: Facts, events: list[Event]
) -> tuple[BadNode, ...]:
    """Remember the node of an early death; say so where it is left out from now on."""
    submission = attempt.decisive[-1] if attempt.decisive else None
    node = attempt.node or (submission.node if submission is not None else "")
    lived_s = (attempt.ended_at or facts.now) - attempt.started_at if attempt.started_at is not None else 0.0
    gone = submission.sighting if submission is not None else None
    # A job that slurmctld lost with its own memory, or that ended well by its word: nobody knows what its node did.
    unknown = isinstance(gone, Gone) and not gone.by_job and gone.raw_state in {"", "COMPLETED"}
    early = attempt.verdict in _ACCUSING and lived_s <= nodes.EARLY_S
    if not early or unknown or not node or not facts.avoids_nodes:
        return memory
    by_cause = attempt.verdict in {Verdict.CRASHED, Verdict.NO_ROOM}  # on two nodes it is no node's fault
    told = by_cause and (attempt.exit_code is not None or evidence.log_tail.strip())
    cause = attempt.cause.replace(f" on {node}", "") if told else ""
    if follows_the_job(evidence, trainer=facts.trainer, lacking=facts.lacking):
        return nodes.without(memory, cause)
    elsewhere = slot.good_node not in {"", node}
    death = Death(slot=slot.index, at=facts.now, cause=cause, served_elsewhere=elsewhere)
    memory, begins = nodes.with_death(memory, node, death)
    if begins:
        until = facts.now + nodes.EXCLUDED_S
        events.append({"kind": "node excluded", "node": node, "until": until, "slot": slot.index})
    return memory


def _give_up_waiting(
    slot: Slot, memory: tuple[BadNode, ...], now: float, events: list[Event], *, had_jobs: bool
) -> tuple[Slot, tuple[BadNode, ...]]:
    """A waiting job that can never run is as one that was refused; or it ends the exclusions that made it so."""
    current = slot.current
    for submission in current.live if current is not None and slot.status is SlotStatus.ACTIVE else ():
        seen = submission.sighting
        if not isinstance(seen, Seen) or not is_stuck(submission):
            continue
        if submission.exclude:
            events.append({"kind": "nodes forgiven", "slot": slot.index, "why": f"Slurm says {seen.reason}"})
            return slot, ()  # the cluster cannot do without them
        if slot.raised is not None:
            why = f"the next job gets what the config says again: Slurm says {seen.reason}"
            events.append({"kind": "raised", "slot": slot.index, "why": why})
            return slot.model_copy(update={"raised": None}), memory
        why = f"its job {reason_of(seen.reason, seen.partition).words} (Slurm says {seen.reason})"
        after = after_refusal(why, now, had_jobs=had_jobs, since=slot.put_off_since)
        if after["why"] != slot.why:  # until the queue shows our cancel
            kind = "put off" if had_jobs else "given up"
            events.append({"kind": kind, "slot": slot.index, "job_id": submission.job_id, "why": why})
            slot = slot.model_copy(update=after)
        return slot, memory
    return slot, memory


def _fold_attempt(attempt: Attempt, evidence: Evidence, facts: Facts) -> Attempt:
    update: dict[str, Any] = {}
    if evidence.beat != attempt.heartbeat:
        update |= {"heartbeat": evidence.beat, "heartbeat_changed_at": facts.now}
    claim = evidence.claim
    if claim is not None:
        news = {
            "claimed_by": claim.token,
            "started_at": claim.at,
            "node": claim.host,
            "ahead": False,
            "start_step": evidence.start_step,
            "checkpoint_step": evidence.saved_step,
        }
        update |= {name: value for name, value in news.items() if getattr(attempt, name) != value}
        if attempt.claim_seen_at is None:
            update["claim_seen_at"] = max(facts.now, facts.poll.at)  # a tick is dated by its begin
    if update:
        attempt = attempt.model_copy(update=update)
    update = sightings.watched(attempt, evidence, facts.since_last_look_s, facts.relay.stall_seconds, facts.now)
    folded = [_fold_submission(s, attempt, evidence, facts) for s in attempt.submissions]
    if any([new is not old for new, old in zip(folded, attempt.submissions, strict=True)]):  # noqa: C419
        update["submissions"] = tuple(folded)
    if update:
        attempt = attempt.model_copy(update=update)
    return attempt if attempt.verdict is not None else _judged(attempt, evidence, facts)


def _judged(attempt: Attempt, evidence: Evidence, facts: Facts) -> Attempt:
    """With its verdict, where its claimant is over, or all that might have claimed it are."""
    own = [s for s in attempt.submissions if attempt.claimed_by in {None, s.token}]
    over = [s for s in own if s.state is SubmissionState.ENDED]
    if not over or (attempt.claimed_by is None and attempt.live):
        return attempt
    gone = over[-1].sighting
    if not isinstance(gone, Gone):
        gone = Gone(proof="it ended", at=facts.now)
    stalled_s = attempt.quiet_s if attempt.aborted_at is not None else None
    verdict, cause = judge(evidence, gone, over[-1], stalled_s=stalled_s, disk_full=facts.disk_full)
    if verdict is Verdict.NO_ROOM and facts.out_of_inodes:
        cause = cause.replace(NO_SPACE, NO_INODES)
    if verdict is Verdict.FINISHED and not facts.trainer and ends.is_early(evidence) and not evidence.made_progress:
        cause = NOTHING_SAVED
    if attempt.ahead and over[-1].cancelled_at is not None:
        verdict, cause = Verdict.NOT_NEEDED, over[-1].cancelled_for
    update = {"verdict": verdict, "cause": cause, "ended_at": gone.at, "node": attempt.node or gone.node}
    if evidence.exit is not None:
        update |= {"exit_code": evidence.exit.code, "asked": evidence.exit.asked or ""}
        update |= {"terminated": evidence.exit.terminated, "given": evidence.exit.given}
    return attempt.model_copy(update=update)


def _fold_submission(submission: Submission, attempt: Attempt, evidence: Evidence, facts: Facts) -> Submission:
    if submission.state is SubmissionState.ENDED or submission.state is SubmissionState.NOT_SUBMITTED:
        return submission
    if submission.intent_at > facts.now:  # our clock was set back; a poll must be able to be later than it
        submission = submission.model_copy(update={"intent_at": facts.now - 1.0})
    if submission.state is not SubmissionState.SUBMITTED and never_accepted(submission, evidence, facts):
        return submission.model_copy(update={"state": SubmissionState.NOT_SUBMITTED, "sighting": None})
    sighting = sight(submission, attempt, evidence, facts)
    if sighting is None:
        return submission
    job_dir = facts.job_dir(submission.token)
    known = facts.poll.of(job_dir) or (facts.history.of(job_dir) if facts.history is not None else None)
    news: dict[str, Any] = {"sighting": sighting, "absent_since": None}
    if isinstance(sighting, Gone):
        news["state"] = SubmissionState.ENDED
    elif missing_from(facts.poll, submission, job_dir):
        news["absent_since"] = submission.absent_since or facts.poll.at
    elif isinstance(sighting, Blind):
        news["absent_since"] = submission.absent_since
    if isinstance(sighting, Seen):
        waits = sighting.state is JobState.PENDING
        hopeless = waits and reason_of(sighting.reason, sighting.partition).kind == "for ever"
        news["stuck_since"] = (submission.stuck_since or sighting.at) if hopeless else None
        news["node"] = sighting.node or submission.node
    if submission.cancelled_for == MOVED and attempt.claimed_by == submission.token:
        news |= {"cancelled_at": None, "cancelled_for": ""}  # it began before our cancel, which was for waiting jobs
    if known is not None and not isinstance(sighting, Gone):
        news |= {"state": SubmissionState.SUBMITTED, "job_id": submission.job_id or known.job_id, "note": ""}
    # Most looks differ by their time alone, and to compare the rest of two thousand takes a tenth of a tick.
    before = submission.sighting
    is_later = isinstance(before, Seen) and isinstance(sighting, Seen) and before.at != sighting.at
    if not is_later and before == sighting:
        del news["sighting"]
    changed = {name: value for name, value in news.items() if name == "sighting" or getattr(submission, name) != value}
    return submission.model_copy(update=changed) if changed else submission
