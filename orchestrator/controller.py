"""One tick: observe, fold, plan, act. And the loop that repeats it.

The tick is one-shot and idempotent: killed at any instruction and run again, it continues. The order of its writes is
what makes that true: the intent is on the disk before the scheduler hears of a job, and the outcome after; what falls
between is found again in the queue by the job's work folder.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from orchestrator.evidence import Evidence, Exit, highest_attempt_folder, read_all, read_evidence, read_record
from orchestrator.executors.base import Accounting, Executor, Poll, Refused, SubmitOutcome, Submitted, Uncertain
from orchestrator.fold import Facts, fold
from orchestrator.lease import Lease
from orchestrator.ledger import append_event, drop_old_epochs, load_ledger, read_control, save_ledger
from orchestrator.models import Ledger, Slot, SlotStatus, SubmissionState
from orchestrator.plan import (
    Cancel,
    HandOver,
    Limits,
    Submit,
    is_over,
    plan,
    replace_attempt,
    replace_submission,
    with_intents,
    with_room_words,
)
from orchestrator.rundir import Run, RunDir
from orchestrator.sightings import missing_from
from orchestrator.submission import drop_old_job_folders, make_job_folder

#: The user's job limit is reached: somebody's job must end first, which takes minutes.
QUOTA_WAIT_S = 60.0
#: The scheduler could not be reached, or the like.
TEMPORARY_WAIT_S = 15.0
#: A full disk or a stale network folder does not mend within a second.
STORAGE_WAIT_S = 2.0
#: How soon a control file or a job's exit record is noticed between polls: both are cheap file looks.
LOOK_S = 0.25
#: One early look after a submission, so that a person soon sees why the job waits.
FIRST_LOOK_S = 3.0
#: Beyond the lead, for the job's own end after its hand-over.
HAND_OVER_MARGIN_S = 60.0
#: sacct compares with the clock of another machine.
HISTORY_MARGIN_S = 60.0
#: A beat at least this often, whatever the poll interval, so that nobody takes us for dead (lease.TTL_S / 3).
BEAT_S = 60.0


class Controller:
    """The owner of a run. `say`: receives one plain line per event."""

    def __init__(
        self,
        run: Run,
        run_dir: RunDir,
        lease: Lease,
        executor: Executor,
        *,
        poll_s: float,
        say: Callable[[str], None] = lambda _line: None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random_hex: Callable[[], str] = lambda: secrets.token_hex(4),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.run = run
        self.run_dir = run_dir
        self.lease = lease
        self.executor = executor
        self.control = read_control(run_dir)
        self.ledger = self._inherit()
        drop_old_epochs(run_dir)
        self._poll_s = poll_s
        self._say = say
        self._now = now
        self._monotonic = monotonic
        self._sleep = sleep
        self._random_hex = random_hex
        self._jitter = jitter
        self._untold: list[dict[str, Any]] = []
        self._poll: Poll | None = None
        self._poll_due_at = float("-inf")

    def _inherit(self) -> Ledger:
        before = load_ledger(self.run_dir, self.run.run_id)
        ledger = before or Ledger(run_id=self.run.run_id, epoch=self.lease.epoch)
        slots = list(ledger.slots)
        slots += [Slot(index=index) for index in range(len(slots), self.run.config.slots)]
        return ledger.model_copy(update={"epoch": self.lease.epoch, "slots": tuple(slots)})

    @property
    def limits(self) -> Limits:
        """What the plan may use."""
        others = self._poll.others if self._poll is not None else 0
        config = self.run.config
        grace_s = float(config.lead_seconds) + HAND_OVER_MARGIN_S
        return Limits(slots=config.slots, max_jobs=config.slurm.max_jobs, others=others, grace_s=grace_s)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return is_over(self.ledger, self.control, self.limits)

    def reactivate(self) -> None:
        """`start` was typed again: slots that we gave up get another chance, and so do finished ones whose
        total was raised.
        """
        slots = []
        for slot in self.ledger.slots:
            total = None if self.run.config.command else self.run.config.training_of(slot.index).total_steps
            raised = slot.status is SlotStatus.FINISHED and total is not None and slot.total is not None
            again = slot.status is SlotStatus.FAILED or (raised and total is not None and total > (slot.total or 0))
            update = {"status": SlotStatus.ACTIVE, "why": "", "failures": 0, "not_before": 0.0}
            slots.append(slot.model_copy(update=update) if again else slot)
        self.ledger = self.ledger.model_copy(update={"slots": tuple(slots)})

    def tick(self) -> None:
        """Observe, fold, plan, act. At most three writes of the ledger. Errors: LeaseLost, RunFolderError, OSError."""
        now = self._now()
        self.control = read_control(self.run_dir)
        poll = self._observe()
        evidence = read_all(self.run_dir, self.ledger)
        facts = Facts(
            now=now,
            poll=poll,
            history=self._history(poll, evidence),
            evidence=evidence,
            newest_claims=self._newest_claims(),
            jobs_dir=str(self.run_dir.jobs),
            forget_after_s=self.executor.forget_after_s(),
            submit_grace_s=self.executor.submit_grace_s,
        )
        self.ledger, events = fold(self.ledger, facts)
        self.ledger = self.ledger.model_copy(update={"control": self.control.number})
        for event in events:
            self._event(**event)
        folders = {slot.index: highest_attempt_folder(self.run_dir, slot.index) for slot in self.ledger.slots}
        actions = plan(self.ledger, self.control, self.limits, folders, now, self._random_hex)
        submits = [action for action in actions if isinstance(action, Submit)]
        self.ledger = with_room_words(self.ledger, submits, self.control, self.limits, folders, now)
        requests = {action.token: make_job_folder(self.run, self.run_dir, action) for action in submits}
        # Not `now`: the intent is younger than the poll, which may serve the next ticks too and cannot have the job.
        self.ledger = with_intents(self.ledger, submits, self._now())
        self._save()
        for action in submits:
            self.lease.check()
            self._record(action, self.executor.submit(requests[action.token]))
            self._poll_due_at = min(self._poll_due_at, self._monotonic() + FIRST_LOOK_S)
        for wanted in actions:
            if isinstance(wanted, HandOver):
                self._hand_over(wanted)
            elif isinstance(wanted, Cancel):
                self._cancel(wanted)
        if actions:
            self._save()
        if any(event["kind"] == "ended" for event in events):
            drop_old_job_folders(self.run_dir, self.ledger)

    def loop(self, *, interrupted: Callable[[], bool], shown: Callable[[], None]) -> None:
        """Tick until nothing is left to do. `shown` is called often, to redraw. `interrupted` ends the loop."""
        while not interrupted():
            try:
                self.tick()
                shown()
                if self.over:
                    return
                self._wait(interrupted, shown)
            except OSError as error:
                self._say(f"a file could not be used ({error.strerror or error}: {error.filename}); trying again")
                self._sleep(STORAGE_WAIT_S)

    def _wait(self, interrupted: Callable[[], bool], shown: Callable[[], None]) -> None:
        wake_at = min(self._poll_due_at, self._monotonic() + BEAT_S)
        waiting = [slot.not_before - self._now() for slot in self.ledger.slots if slot.not_before > self._now()]
        if waiting:
            wake_at = min(wake_at, self._monotonic() + min(waiting))
        while self._monotonic() < wake_at and not interrupted():
            if self._something_happened():
                return
            shown()
            self._sleep(min(LOOK_S, max(0.01, wake_at - self._monotonic())))

    def _something_happened(self) -> bool:
        if read_control(self.run_dir).number != self.control.number:
            return True
        for slot in self.ledger.slots:
            for attempt in slot.attempts:
                if attempt.verdict is None and attempt.live:
                    path = self.run_dir.attempt(slot.index, attempt.number) / "exit.json"
                    ended = read_record(Exit, path, self.run_dir.disk)
                    if ended is not None and any(s.token == ended.token for s in attempt.live):
                        return True
        return False

    def _observe(self) -> Poll:
        if self._poll is None or self._monotonic() >= self._poll_due_at:
            self._poll = self.executor.poll()
            # A fifth of jitter keeps many controllers of one login node from asking in step.
            self._poll_due_at = self._monotonic() + self._poll_s * (0.9 + 0.2 * self._jitter())
        return self._poll

    def _history(self, poll: Poll, evidence: dict[tuple[int, int], Evidence]) -> Accounting | None:
        """Ask the history only when a job left the queue without having said how it ended."""
        lost = []
        for slot in self.ledger.slots:
            for attempt in slot.attempts:
                seen = evidence.get((slot.index, attempt.number), Evidence())
                for submission in attempt.live:
                    said = seen.exit is not None and seen.exit.token == submission.token
                    if not said and missing_from(poll, submission, str(self.run_dir.job(submission.token))):
                        lost.append(submission.intent_at)
        return self.executor.accounting(min(lost) - HISTORY_MARGIN_S) if lost else None

    def _newest_claims(self) -> dict[int, tuple[int, Evidence]]:
        """Claimed attempts that are newer than anything that the ledger knows."""
        found = {}
        for slot in self.ledger.slots:
            highest = highest_attempt_folder(self.run_dir, slot.index)
            known = slot.current.number if slot.current is not None else -1
            if highest > known:
                evidence = read_evidence(self.run_dir, slot.index, highest)
                if evidence.claim is not None:
                    found[slot.index] = (highest, evidence)
        return found

    def _record(self, action: Submit, outcome: SubmitOutcome) -> None:
        now = self._now()
        if isinstance(outcome, Submitted):
            update: dict[str, Any] = {"state": SubmissionState.SUBMITTED, "job_id": outcome.job_id}
            slot_update: dict[str, Any] = {"why": "", "not_before": 0.0}
        elif isinstance(outcome, Uncertain):
            update = {"state": SubmissionState.UNCERTAIN, "note": outcome.why}
            slot_update = {"why": f"it is not clear whether the last submission was accepted: {outcome.why}"}
        else:
            update = {"state": SubmissionState.NOT_SUBMITTED, "note": outcome.words}
            slot_update = self._refusal(outcome, now)
            self.run_dir.disk.remove_tree(self.run_dir.job(action.token))  # nothing ran in it
        self.ledger = replace_submission(self.ledger, action.slot, action.attempt, action.token, **update)
        slots = list(self.ledger.slots)
        slots[action.slot] = slots[action.slot].model_copy(update=slot_update)
        self.ledger = self.ledger.model_copy(update={"slots": tuple(slots)})
        outcome_words = f"{update['state']}: {update['note']}" if update.get("note") else None
        where = {"slot": action.slot, "attempt": action.attempt, "token": action.token}
        self._event("submission", **where, job_id=update.get("job_id"), outcome=outcome_words)

    @staticmethod
    def _refusal(refused: Refused, now: float) -> dict[str, Any]:
        if refused.kind == "permanent":
            return {"status": SlotStatus.FAILED, "why": refused.words}
        wait_s = QUOTA_WAIT_S if refused.kind == "quota" else TEMPORARY_WAIT_S
        return {"why": refused.words, "not_before": now + wait_s}

    def _hand_over(self, action: HandOver) -> None:
        self.lease.check()
        self.run_dir.disk.touch(self.run_dir.job(action.token) / "hand-over")
        if action.job_id:
            self.executor.wake([action.job_id])
        now = self._now()
        self.ledger = replace_attempt(self.ledger, action.slot, action.attempt, asked_to_hand_over_at=now)
        self._event("asked to hand over", slot=action.slot, attempt=action.attempt, job_id=action.job_id)

    def _cancel(self, action: Cancel) -> None:
        self.lease.check()
        complaint = self.executor.cancel([action.job_id])
        self.ledger = replace_submission(
            self.ledger, action.slot, action.attempt, action.token, cancelled_at=self._now()
        )
        self._event(
            "cancelled",
            slot=action.slot,
            attempt=action.attempt,
            job_id=action.job_id,
            why=action.why,
            complaint=complaint,
        )

    def _save(self) -> None:
        self.lease.check()
        self._tell()  # never after the ledger: what it knows stands in the history
        self.ledger = save_ledger(self.run_dir, self.ledger, self._now())

    def _event(self, kind: str, **facts: Any) -> None:
        self._untold.append({"kind": kind, "now": self._now(), **facts})
        more = "  ".join(f"{key}={value}" for key, value in facts.items() if value not in {None, ""} and key != "token")
        self._say(f"{kind}  {more}")
        with suppress(OSError):  # a full disk: the next save tells it, or says that it cannot
            self._tell()

    def _tell(self) -> None:
        while self._untold:
            append_event(self.run_dir, self.lease.epoch, **self._untold[0])
            del self._untold[0]
