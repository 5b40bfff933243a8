"""From answers to sightings: seen, gone (with the proof), or blind. Pure.

"Not in the answer" is never "finished": docs/architecture.md names the proofs of an end. Without a history it is
HEARTBEAT_SILENT_S of absence and of silence, the shortest that is safe. No MinJobAge would make it safer:

1. Slurm keeps an ended job in the queue for MinJobAge. So a job that is absent soon after it was seen did not end:
   slurmctld was killed before it had saved it. It never takes such a job up again, and has nodes kill what it does not
   know (slurmctld's "Orphan JobId reported on node").
2. Should its processes live nevertheless, its shim writes a heartbeat each 30 s, which a network folder shows within
   60 s. A look that comes 120 s after the last change and sees no other one has 30 s to spare.
3. A job that is cut off from the folder, or has not come to its claim within 120 s, writes below its own attempt only,
   and its shim ends it at the first heartbeat that finds the next attempt's claim. No step counts twice then.

A slurmctld that is killed before it has saved a start makes that start again, under the same id. What the queue, the
history and the second run itself then say is about the second run. The first one has the claim, and works on.

A program that lives and does nothing is seen by its reports, which stand still while its job's heart beats. Only time
that we watched counts, and what is usual is learnt from the slot's own reports.
"""

from __future__ import annotations

import re
from typing import Any

from anchorleg.job import DO_NOT_REQUEUE
from orchestrator.decisions.evidence import Evidence, Exit, Facts
from orchestrator.decisions.models import Attempt, Blind, Gone, Seen, Sighting, Slot, Submission
from orchestrator.executors.base import JobLook, JobRow, JobState, Poll

#: A heartbeat each 30 s (shim.HEARTBEAT_S), 60 s until a network folder shows it (RECORD_WAIT_S), 30 s for a slow node.
HEARTBEAT_SILENT_S = 120.0
#: A network folder shows a new file to other machines within its attribute cache's time, 60 s at most by default
#: (nfs(5), acdirmax). A scheduler closes the record of a job that has ended within as much.
RECORD_WAIT_S = 60.0
#: A controller that comes back from hanging may answer squeue before it has worked off the sbatch that it finds
#: waiting: within seconds, or more where many wait. A submission must be missing for so long, whatever its age.
SETTLE_S = 30.0
WORD_MISSING = "it got a SIGTERM; the queue has not said yet from whom"
#: A reason that no time will change must be seen for so long: administrators change limits and partitions, and for a
#: moment Slurm shows what it knew before.
FOR_EVER_S = 60.0
RAN_TWICE = "Slurm started this job twice; its first run left no record of its end"
#: A job claims its attempt seconds after its start. A start that comes later than the claim is another one, but for
#: what two clocks may differ by.
CLAIM_SLACK_S = 2.0
#: Slurm tells times in whole seconds.
WHOLE_SECONDS_S = 2.0
#: Where no history says whose cancel it was: measured are 0 s for a launch that failed; a person needs longer.
LAUNCH_S = 5.0
CANCELLED_BY = re.compile(r"by (\d+)")


def missing_from(poll: Poll, submission: Submission, job_dir: str) -> bool:
    """Whether a complete poll, taken after the submission, does not have it."""
    return poll.error is None and poll.at > submission.intent_at and poll.of(job_dir) is None


def is_stuck(submission: Submission) -> bool:
    """Whether it was seen for long enough to wait for something that will never come."""
    seen, since = submission.sighting, submission.stuck_since
    return isinstance(seen, Seen) and since is not None and seen.at - since >= FOR_EVER_S


def has_ended_by_its_word(submission: Submission, evidence: Evidence) -> bool:
    """Whether the job's own record is enough to call it over, and to say how."""
    ended = evidence.exit
    if ended is None or ended.token != submission.token:
        return _lost_the_claim(submission, evidence)
    return not _needs_the_schedulers_word(submission, evidence)


def _needs_the_schedulers_word(submission: Submission, evidence: Evidence) -> bool:
    """Only it knows who sent a SIGTERM: a person's cancel pauses the slot, a preemption does not."""
    ended = evidence.exit
    if ended is None or not ended.terminated or submission.cancelled_at is not None:
        return False
    return not evidence.is_complete and ended.code != DO_NOT_REQUEUE and ended.superseded_by is None


def sight(submission: Submission, attempt: Attempt, evidence: Evidence, facts: Facts) -> Sighting | None:
    """What can be said of one submission now; None: nothing yet."""
    poll, history, now = facts.poll, facts.history, facts.now
    if evidence.exit is not None and evidence.exit.token == submission.token:
        return _said(submission, evidence, evidence.exit, facts)
    if _lost_the_claim(submission, evidence):
        return Gone(proof="it found the attempt claimed and ended as a duplicate", at=now, by_job=True)
    if poll.error is not None:
        return _blind(submission, poll.at, poll.error)
    if poll.at <= submission.intent_at:
        return submission.sighting
    row = _last_word(submission, facts)
    if row is not None and row.state is JobState.ENDED:
        if _is_of_a_second_run(row, submission, evidence):
            return _of_the_first_run(submission, attempt, now)
        return _ended(row, "queue", submission, evidence, poll.at)
    if row is not None:
        return Seen(at=poll.at, **{name: getattr(row, name) for name in JobLook.model_fields})
    if history is None or history.status == "blind":
        error = (history.error if history else None) or "it left the queue; the history has not been read yet"
        return _blind(submission, poll.at, error)
    past = facts.past_of(submission.token)
    if past is not None and past.state is JobState.ENDED:
        if _is_of_a_second_run(past, submission, evidence):
            return _of_the_first_run(submission, attempt, now)
        return _ended(past, "history", submission, evidence, history.at)
    absent_since = submission.absent_since if submission.absent_since is not None else poll.at
    wait_s = facts.forget_after_s if history.status == "ok" else min(facts.forget_after_s, HEARTBEAT_SILENT_S)
    beat_at = attempt.heartbeat_changed_at
    silent_at = beat_at + HEARTBEAT_SILENT_S if beat_at is not None else absent_since
    absent_s = poll.at - absent_since
    if absent_s > wait_s and now > silent_at:
        # A row that the history never closed (sacctmgr calls it a runaway job) proves nothing against a queue
        # that has long forgotten the job and a heartbeat that stopped.
        known = "the history does not show its end" if history.status == "ok" else "there is no history"
        proof = f"absent from the queue for {absent_s:.0f} s, {known}, and no heartbeat"
        word = past.raw_state if past is not None and past.state is JobState.UNKNOWN else ""
        return Gone(proof=proof, at=poll.at, raw_state=word)
    left = _blind(submission, poll.at, "it left the queue without a record of its end")
    return left.model_copy(update={"proven_at": max(absent_since + wait_s, silent_at)})


def _said(submission: Submission, evidence: Evidence, ended: Exit, facts: Facts) -> Gone | Blind:
    """After a SIGTERM the scheduler's word is waited for a little: only it knows who sent it."""
    gone = Gone(proof="the job's own exit record", at=ended.at, by_job=True)
    if not _needs_the_schedulers_word(submission, evidence):
        return gone
    poll, history = facts.poll, facts.history
    if poll.error is not None:
        return _blind(submission, poll.at, poll.error)
    for row in (_last_word(submission, facts), facts.past_of(submission.token)):
        if row is not None and row.state is JobState.ENDED:
            if _is_of_a_second_run(row, submission, evidence) and was_not_launched(row.raw_state, _ran_s(row)):
                return gone  # its node runs it already: slurmd refuses the second start, and Slurm ends both
            return gone.model_copy(update={"raw_state": row.raw_state, "node": row.node})
    job_dir = facts.job_dir(submission.token)
    nobody_knows = history is not None and history.status == "disabled" and missing_from(poll, submission, job_dir)
    since = _waiting_since(submission, WORD_MISSING, facts.now)
    if nobody_knows or poll.at - since >= RECORD_WAIT_S:
        return gone
    return Blind(since=since, error=WORD_MISSING, proven_at=since + RECORD_WAIT_S)


def _claims(submission: Submission, evidence: Evidence) -> bool:
    return evidence.claim is not None and evidence.claim.token == submission.token


def _lost_the_claim(submission: Submission, evidence: Evidence) -> bool:
    """Whether its job said so. Of a job that has the claim, its second run said it, and the first one is at work."""
    return submission.token in evidence.duplicates and not _claims(submission, evidence)


def _is_of_a_second_run(row: JobRow, submission: Submission, evidence: Evidence) -> bool:
    """Whether a row tells of a start of this job that came after the claim."""
    claim = evidence.claim
    if claim is None or claim.token != submission.token:
        return False
    # By the scheduler's own clock where it told the job: the node's may be wrong.
    began_at = float(claim.start) if claim.start.isdigit() else claim.at
    later = row.started_at is not None and row.started_at > began_at + CLAIM_SLACK_S
    ran_s, own_s = _ran_s(row), evidence.exit.at - claim.at if evidence.exit is not None else 0.0
    shorter = ran_s is not None and ran_s + WHOLE_SECONDS_S < own_s  # Slurm counts from its last start
    return later or shorter or submission.token in evidence.duplicates


def _of_the_first_run(submission: Submission, attempt: Attempt, now: float) -> Gone | Blind:
    """It has ended when its heart is silent."""
    since = _waiting_since(submission, RAN_TWICE, now)
    beat_at = attempt.heartbeat_changed_at if attempt.heartbeat_changed_at is not None else since
    silent_at = max(beat_at, since) + HEARTBEAT_SILENT_S
    if now > silent_at:
        return Gone(proof=RAN_TWICE, at=now)
    return Blind(since=since, error=RAN_TWICE, proven_at=silent_at)


def was_not_launched(raw_state: str, ran_s: float | None) -> bool:
    """Whether a cancel was slurmd's own, which could not start the job. A person's has a name, or comes later."""
    who = CANCELLED_BY.search(raw_state)
    return who[1] == "0" if who else ran_s is not None and ran_s <= LAUNCH_S


def _ran_s(row: JobRow) -> float | None:
    return row.ends_at - row.started_at if row.ends_at is not None and row.started_at is not None else None


def _last_word(submission: Submission, facts: Facts) -> JobRow | None:
    """The queue's row; the history's, where both tell of one end and that one tells more."""
    row, past = facts.poll.of(facts.job_dir(submission.token)), facts.past_of(submission.token)
    if row is None or past is None or row.state is not JobState.ENDED or row.job_id != past.job_id:
        return row
    return past if past.raw_state.startswith(f"{row.raw_state} ") else row


def _waiting_since(submission: Submission, error: str, at: float) -> float:
    before = submission.sighting
    # A clock that was set back must not make the wait longer.
    return min(before.since, at) if isinstance(before, Blind) and before.error == error else at


def _ended(row: JobRow, source: str, submission: Submission, evidence: Evidence, at: float) -> Gone | Blind:
    """A terminal row. What the job must have left, and says more, is waited for a little: its record, or its output."""
    missing = ""
    if row.raw_state == "COMPLETED" and evidence.exit is None:  # its claim may be as late as its record
        missing = "it has ended, but its own record is not visible yet"
    elif row.raw_state == "FAILED" and evidence.left_nothing:
        missing = "it has failed, and none of its files is visible yet"
    if missing:
        since = _waiting_since(submission, missing, at)
        if at - since < RECORD_WAIT_S:
            return Blind(since=since, error=missing, proven_at=since + RECORD_WAIT_S)
    word = {"raw_state": row.raw_state, "node": row.node, "ran_s": _ran_s(row)}
    return Gone(proof=f"the {source} says {row.raw_state}", at=at, **word)


def _blind(submission: Submission, at: float, error: str) -> Blind:
    since = submission.sighting.since if isinstance(submission.sighting, Blind) else at
    return Blind(since=since, error=error)


def never_accepted(submission: Submission, evidence: Evidence, facts: Facts) -> bool:
    """Whether an intent or an unclear answer is proven to have come to nothing: queue and history are both complete,
    both later than the submission by a grace, and neither they nor a claim know it, nor did the queue a while ago.
    """
    poll, history, job_dir = facts.poll, facts.history, facts.job_dir(submission.token)
    if _claims(submission, evidence):
        return False
    if history is None or history.status == "blind" or not missing_from(poll, submission, job_dir):
        return False
    if submission.absent_since is None or poll.at - submission.absent_since < min(SETTLE_S, facts.submit_grace_s):
        return False
    late_enough = min(poll.at, history.at) > submission.intent_at + facts.submit_grace_s
    return late_enough and (history.status == "disabled" or history.of(job_dir) is None)


#: One look counts for a fraction of the limit at most, so that a stall is seen by several looks, never by one.
LOOKS = 4
#: A program may be silent for this many times its usual.
TIMES_USUAL = 5.0
#: The usual silence comes down slowly: an evaluation every half hour is usual, too.
FORGET = 0.02
#: A job claims its attempt within seconds, behind whatever slurm.setup does: what takes so many times as long as a
#: program may be silent will never begin.
BEGIN_STALLS = 3
#: Two heartbeats until the shim has seen the request, 30 s for the stacks, and the job's own end.
ABORT_WAIT_S = 150.0


def watched(
    attempt: Attempt, evidence: Evidence, since_last_look_s: float, stall_s: float, now: float
) -> dict[str, Any]:
    """What changes of `attempt`: its reports, and how long we watched it report nothing new, or run without a claim."""
    progress = evidence.progress
    if evidence.claim is None:
        if not any(submission.was_seen(JobState.RUNNING) for submission in attempt.live):
            return {}
    elif progress is None:
        return {}
    elif (mark := f"{progress.step} {progress.checkpoint_step} {progress.at}") != attempt.progress_mark:
        return {"progress_mark": mark, "quiet_s": 0.0}
    elif not _beats(attempt, now):  # suspended, or its node or folder hangs: its program cannot report
        return {}
    looked_s = min(max(since_last_look_s, 0.0), stall_s / LOOKS)
    return {"quiet_s": attempt.quiet_s + looked_s} if looked_s else {}


def usual_after(slot: Slot, before: Attempt, after: Attempt, since_last_look_s: float, stall_s: float) -> float:
    """The slot's usual silence, after one more report was seen (or none)."""
    if not before.progress_mark or after.progress_mark == before.progress_mark:
        return slot.usual_s
    silence_s = before.quiet_s + min(max(since_last_look_s, 0.0), stall_s / LOOKS)
    return max(silence_s, slot.usual_s + FORGET * (silence_s - slot.usual_s))


def limit_s(slot: Slot, stall_s: float) -> float:
    """How long this slot's program may report nothing new."""
    return max(stall_s, TIMES_USUAL * slot.usual_s)


def never_begins(attempt: Attempt, submission: Submission, stall_s: float) -> bool:
    """Whether its job has been watched to run for so long, and has not even claimed the attempt."""
    runs = attempt.claimed_by is None and submission.was_seen(JobState.RUNNING)
    return runs and attempt.quiet_s >= BEGIN_STALLS * stall_s


def is_stalled(slot: Slot, attempt: Attempt, submission: Submission, stall_s: float, now: float) -> bool:
    """Whether a running claimant has been silent for too long, and it is neither blindness nor its node's trouble."""
    runs = submission.token == attempt.claimed_by and submission.was_seen(JobState.RUNNING)
    asked = attempt.asked_to_hand_over_at is not None or attempt.aborted_at is not None
    reports = bool(attempt.progress_mark) and _beats(attempt, now)
    return runs and reports and not asked and attempt.quiet_s >= limit_s(slot, stall_s)


def _beats(attempt: Attempt, now: float) -> bool:
    beat_at = attempt.heartbeat_changed_at
    return beat_at is not None and abs(now - beat_at) <= HEARTBEAT_SILENT_S
