"""One tick: observe, fold, plan, act. And the loop that repeats it.

Killed at any instruction and run again, a tick continues, by the order of its writes: the intent is on the disk before
the scheduler hears of a job, and the outcome after; what falls between is found again by the job's work folder.
"""

from __future__ import annotations

import gc
import random
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.decisions import edits
from orchestrator.decisions.fold import fold
from orchestrator.decisions.models import Abort, Action, Cancel, HandOver, Ledger, Submit
from orchestrator.decisions.plan import MOVED, Limits, is_held, is_over, plan, with_room_words
from orchestrator.decisions.requests import Control, events_of, news_of, news_of_slots, with_request, with_slots
from orchestrator.decisions.turns import turns_of
from orchestrator.errors import ConfigError
from orchestrator.executors.base import Executor, JobRequest, Poll, SubmitOutcome, SubmitRefused, Submitted
from orchestrator.observe import gather_facts, newly_told, to_be_moved, waits_for_run
from orchestrator.run import ledger as ledgers
from orchestrator.run.lease import Lease
from orchestrator.run.ledger import control_at, load_ledger, read_control, save_ledger
from orchestrator.run.rundir import Run, RunDir, load_run, newest_request, requests_after
from orchestrator.run.submission import drop_old_job_folders, made_again, make_job_folders
from orchestrator.screens.timeline import sentence

#: A full disk or a stale network folder does not mend within a second.
STORAGE_WAIT_S = 2.0
#: How soon a control file or a job's exit record is noticed between polls: both are cheap file looks.
LOOK_S = 0.25
#: One early look after a submission, so that a person soon sees why the job waits.
FIRST_LOOK_S = 3.0
#: An unseen queue is looked at again this soon at the latest.
BLIND_LOOK_S = 10.0
#: After so many polls it is looked whether a waiting job would begin at once elsewhere.
PLACES_POLLS = 10
#: While a run is being stopped somebody waits, and it is soon over.
STOP_LOOK_S = 3.0
#: Beyond the lead, for the job's own end after its hand-over.
HAND_OVER_MARGIN_S = 60.0
#: A beat at least this often, whatever the poll interval, so that nobody takes us for dead (lease.TTL_S / 3).
BEAT_S = 60.0


class Controller:
    """The owner of a run. `say`: receives one plain line per event. `on_event`: hears of what people want to be told
    (kind, facts; see `decisions.requests`), once, after it is in the ledger. `on_tick`: called behind each tick.
    Neither may raise.
    """

    def __init__(
        self,
        run: Run,
        run_dir: RunDir,
        lease: Lease,
        executor: Executor,
        *,
        poll_s: float,
        say: Callable[[str], None] = lambda _line: None,
        on_event: Callable[[str, dict[str, Any]], None] = lambda _kind, _facts: None,
        on_tick: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random_hex: Callable[[], str] = lambda: secrets.token_hex(4),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.run, self.run_dir, self.lease, self.executor = run, run_dir, lease, executor
        self.control = read_control(run_dir)
        self.ledger = self._inherit()
        self._poll_s = poll_s
        self._say = say
        self._on_event, self._on_tick = on_event, on_tick
        self._now, self._monotonic, self._sleep = now, monotonic, sleep
        self._random_hex, self._jitter = random_hex, jitter
        self._untold: list[dict[str, Any]] = []
        self._news: list[tuple[str, dict[str, Any]]] = []
        self._poll: Poll | None = None
        self._poll_due_at = self._places_due_at = float("-inf")
        self._saved_at = monotonic()
        self._is_new = True
        self._noticed: set[Path] = set()
        self._held: dict[int, bool] = {}
        self._turns = turns_of(self.run.config)

    def _inherit(self) -> Ledger:
        before = load_ledger(self.run_dir, self.run.run_id)
        ledger = before or Ledger(run_id=self.run.run_id, epoch=self.lease.epoch)
        if self.run.config.experiments is not None and len(ledger.slots) > self.run.config.slots:
            self.run = load_run(self.run_dir)  # some were added between our look at the run and our lease
        return with_slots(ledger, self.run.config.slots).model_copy(update={"epoch": self.lease.epoch})

    @property
    def limits(self) -> Limits:
        """What the plan may use."""
        config, is_slurm = self.run.config, self.executor.name == "slurm"
        return Limits(
            slots=config.slots,
            max_jobs=config.slurm.max_jobs and config.slurm.max_jobs * (config.slurm.slots_per_job if is_slurm else 1),
            others=self._poll.others if self._poll is not None else 0,
            grace_s=float(config.lead_seconds) + HAND_OVER_MARGIN_S,
            stall_s=config.relay.stall_seconds,
            queue_ahead=config.relay.queue_ahead and self.executor.queues_behind,
            before=waits_for_run(self.run, self.ledger),
            turns=self._turns,
        )

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return is_over(self.ledger, self.control, self.limits)

    def reactivate(self) -> None:
        """`start` was typed again (see `edits.started_again`)."""
        self.ledger = edits.started_again(self.ledger, self.run.config)

    def preview(self, wish: Control) -> list[Action]:
        """What a tick would do now with `wish` as the newest one; changes nothing. Errors: RunFolderError, OSError."""
        before, now = self.ledger, self._now()
        self._take_control(wish.due(now, self.limits.grace_s))
        self._take_requests()
        self._poll = self.executor.poll()
        facts, folders = gather_facts(self.run, self.run_dir, self.executor, self.ledger, self._poll, now)
        ledger, _ = fold(self.ledger, facts)
        self.ledger = before
        return plan(ledger, self.control, self.limits, folders, now, self._random_hex)

    def _take_control(self, newest: Control) -> None:
        self.control = newest
        if self.control.wish != "run":
            self._poll_due_at = min(self._poll_due_at, self._monotonic() + STOP_LOOK_S)
        elif self.control.number > self.ledger.control:
            self.reactivate()
        if self.control.number != self.ledger.control:
            self.ledger = self.ledger.model_copy(update={"control": self.control.number})

    def _take_requests(self) -> list[dict[str, Any]]:
        """Into the ledger; returns what the history says of them."""
        new = requests_after(self.run_dir.disk, self.run_dir.requests, self.ledger.requests)
        if any(request.kind == "add" for request in new):
            self.run = load_run(self.run_dir)
            self._turns = turns_of(self.run.config)
            self.ledger = with_slots(self.ledger, self.run.config.slots)
        for request in new:
            self.ledger = with_request(self.ledger, request)
        return [event for request in new for event in events_of(request)]

    def tick(self) -> None:
        """Observe, fold, plan, act. At most three writes of the ledger. Errors: LeaseLost, RunFolderError, OSError;
        ConfigError, when all else is done, where what is to be submitted is not installed here.
        """
        # A tick makes no unreachable cycles: to look for them was a sixth of its time with 2,000 slots (bench/tick.py).
        gc.disable()
        try:
            self._tick()
        finally:
            gc.enable()

    def _tick(self) -> None:
        if self._is_new:
            ledgers.drop_old_epochs(self.run_dir)
            ledgers.join_old(self.run_dir, self.lease.epoch)
            self._is_new = False
        now, before = self._now(), self.ledger
        self._take_control(control_at(self.run_dir, now, self.limits.grace_s))
        for event in self._take_requests():
            self._event(**event)
        self._news += news_of_slots(before, self.ledger, self.run.config.slots)  # a drop may be what ends the run
        before = self.ledger
        facts, folders = gather_facts(self.run, self.run_dir, self.executor, self.ledger, self._observe(), now)
        ledger, events = fold(self.ledger, facts)
        # A full disk may keep this look from being written: the next one counts from here all the same.
        self.ledger = ledger.model_copy(update={"written_at": now})
        for event in (*made_again(self.run, self.run_dir, self.ledger, now, self.lease.check), *events):
            self._event(**event)
        self._note_news(before)
        limits = replace(self.limits, moving=self._moving(now))
        actions = plan(self.ledger, self.control, limits, folders, now, self._random_hex)
        self._hold(limits, now)
        missing: ConfigError | None = None
        try:
            requests = make_job_folders(self.run, self.run_dir, [one for one in actions if isinstance(one, Submit)])
        except ConfigError as error:
            missing, requests, actions = error, {}, [one for one in actions if not isinstance(one, Submit)]
        # Not `now`: the intent is younger than the poll, which may serve the next ticks too and cannot have the job.
        self.ledger = edits.with_intents(self.ledger, actions, self._now())
        self.ledger = with_room_words(self.ledger, self.control, limits, folders, now)
        self._save()
        before = self.ledger
        self._act(actions, requests)
        if actions:
            self._note_news(before)
            self._save()
        while self._news:
            self._on_event(*self._news.pop(0))
        if ended := {event["slot"] for event in events if event["kind"] in {"ended", "not accepted"}}:
            drop_old_job_folders(self.run_dir, self.ledger, ended)
        self._on_tick()
        if missing is not None:
            raise missing

    def _note_news(self, before: Ledger) -> None:
        """Kept until they are told: a full disk may end this tick before its save, and the next one sees no change."""
        self.ledger, news = news_of(before, self.ledger, self.run.config.slots, self._now())
        self._news += news

    def loop(self, *, interrupted: Callable[[], bool], shown: Callable[[], None]) -> None:
        """Tick until nothing is left to do. `shown` is called often, to redraw. `interrupted` ends the loop."""
        while not interrupted():
            try:
                self.tick()
                shown()
                if self.over and not self.is_asked:
                    return
                self._wait(interrupted, shown)
            except OSError as error:
                self._say(f"a file could not be used ({error.strerror or error}: {error.filename}); trying again")
                with suppress(OSError):
                    shown()
                self._sleep(STORAGE_WAIT_S)

    def _wait(self, interrupted: Callable[[], bool], shown: Callable[[], None]) -> None:
        wake_at = min(self._poll_due_at, self._monotonic() + BEAT_S)
        now, due = self._now(), [*(slot.not_before for slot in self.ledger.slots), self.ledger.full_until]
        waits_s = [at - now for at in due if at > now]
        if self.control.until is not None:
            waits_s.append(max(0.0, self.control.until - now))
        wake_at = min([wake_at, *(self._monotonic() + wait_s for wait_s in waits_s)])
        while self._monotonic() < wake_at and not interrupted():
            if self.is_asked:
                return
            if told := newly_told(self.run_dir, self.ledger, self._noticed):
                self._noticed |= told  # once: what is unclear then stays so until the next poll
                self._poll_due_at = min(self._poll_due_at, self._monotonic() + FIRST_LOOK_S)
                return
            shown()
            self._sleep(min(LOOK_S, max(0.01, wake_at - self._monotonic())))

    @property
    def is_asked(self) -> bool:
        """Whether somebody wishes or asks what no tick has taken up yet. Errors: OSError."""
        asked = newest_request(self.run_dir.disk, self.run_dir.requests) > self.ledger.requests
        return asked or self._is_wished

    @property
    def _is_wished(self) -> bool:
        return read_control(self.run_dir).number != self.control.number

    def _observe(self) -> Poll:
        # An answer of a later time than now is from before the clock was set back: nothing could be dated by it.
        if self._poll is None or self._monotonic() >= self._poll_due_at or self._poll.at > self._now():
            self._poll = self.executor.poll()
            # A fifth of jitter keeps many controllers of one login node from asking in step.
            wait_s = self._poll_s if self._poll.error is None else min(self._poll_s, BLIND_LOOK_S)
            if self.control.wish != "run":
                wait_s = min(wait_s, STOP_LOOK_S)
            self._poll_due_at = self._monotonic() + wait_s * (0.9 + 0.2 * self._jitter())
        return self._poll

    def _moving(self, now: float) -> str:
        if self.control.wish != "run" or self._monotonic() < self._places_due_at:
            return ""
        self._places_due_at = self._monotonic() + PLACES_POLLS * self._poll_s
        return to_be_moved(self.run, self.run_dir, self.executor, self.ledger, now)

    def _hold(self, limits: Limits, now: float) -> None:
        """Tell queued successors, by a file that their shims look for, whether they may begin."""
        for slot in self.ledger.slots:
            if not limits.queue_ahead and slot.successor is None and slot.index not in self._held:
                continue
            why = is_held(slot, self.control, limits, now)
            if self._held.get(slot.index) == bool(why):
                continue
            self.lease.check()  # what a stale owner put there would stay: the new one knows what it wrote itself
            path = self.run_dir.slot(slot.index) / "hold"
            if why:
                self.run_dir.disk.make_folder(path.parent, exist_ok=True)
                self.run_dir.disk.write(path, f"{why}\n".encode())
            else:
                self.run_dir.disk.remove(path)
            self._held[slot.index] = bool(why)

    def _act(self, actions: Sequence[Action], requests: dict[str, JobRequest]) -> None:
        """Do what was planned: what ends jobs first, so that a queued successor is gone before its slot is free."""
        self._cancel([action for action in actions if isinstance(action, Cancel)])
        self._hand_over([action for action in actions if isinstance(action, HandOver)])
        last: SubmitOutcome | None = None
        for action in actions:
            if isinstance(action, Abort):
                self._abort(action)
            elif isinstance(action, Submit):
                put_off = edits.put_off_by(last, is_wished=last is not None and self._is_wished)
                if put_off is not None:
                    self._record(action, put_off, told=False)
                    continue
                if self._monotonic() - self._saved_at > BEAT_S:  # many submissions that each take long: still alive
                    self._save()
                self.lease.check()
                last = self.executor.submit(requests[action.token])
                place = last.place if isinstance(last, Submitted) and requests[action.token].places else None
                self._record(action, last, place=requests[action.token].places[place] if place is not None else ())
                if not isinstance(last, SubmitRefused):
                    self._poll_due_at = min(self._poll_due_at, self._monotonic() + FIRST_LOOK_S)

    def _record(self, action: Submit, outcome: SubmitOutcome, *, told: bool = True, place: Sequence[str] = ()) -> None:
        self.ledger = edits.with_outcome(self.ledger, action, outcome, self._now(), self.limits.others)
        if isinstance(outcome, SubmitRefused):
            self.run_dir.disk.remove_tree(self.run_dir.job(action.token))  # nothing ran in it
        if not told:
            return
        where = {"slot": action.slot, "attempt": action.attempt, "token": action.token}
        more = {"after": action.after, "exclude": ",".join(action.exclude) or None, "place": " ".join(place) or None}
        job_id = outcome.job_id if isinstance(outcome, Submitted) else None
        self._event("submission", **where, job_id=job_id, outcome=edits.words_of(outcome), **more)

    def _hand_over(self, actions: Sequence[HandOver]) -> None:
        if not actions:
            return
        self.lease.check()
        for action in actions:
            with suppress(FileNotFoundError):  # somebody removed the job's folder: the others must hear of it
                self.run_dir.disk.touch(self.run_dir.job(action.token) / "hand-over")
        if job_ids := [action.job_id for action in actions if action.job_id]:
            self.executor.wake(job_ids)
        now = self._now()
        for action in actions:
            self._mark(action, asked_to_hand_over_at=now)
            self._event("asked to hand over", slot=action.slot, attempt=action.attempt, job_id=action.job_id)

    def _abort(self, action: Abort) -> None:
        folder = self.run_dir.job(action.token)
        if self.run_dir.disk.exists(folder / "hand-over"):
            return  # a long save is silent, and must not be disturbed; the walltime ends it if nothing else does
        self.lease.check()
        with suppress(FileNotFoundError):
            self.run_dir.disk.touch(folder / "abort")
        self._mark(action, aborted_at=self._now())
        self._event("stalled", slot=action.slot, attempt=action.attempt, why=action.why)

    def _mark(self, action: HandOver | Abort, **update: Any) -> None:
        slot = edits.with_attempt(self.ledger.slots[action.slot], action.attempt, **update)
        self.ledger = edits.with_slot(self.ledger, action.slot, attempts=slot.attempts)

    def _cancel(self, actions: Sequence[Cancel]) -> None:
        if not actions:
            return
        self.lease.check()
        complaints = []
        for waiting in sorted({one.why == MOVED for one in actions}):
            job_ids = [one.job_id for one in actions if (one.why == MOVED) is waiting]
            complaints.append(self.executor.cancel(job_ids, waiting=waiting))
        complaint = "; ".join(filter(None, complaints)) or None
        for one in actions:
            where = {"slot": one.slot, "attempt": one.attempt, "job_id": one.job_id}
            self._event("cancelled", **where, why=one.why, complaint=complaint)

    def _save(self) -> None:
        self.lease.check()
        self._tell()  # never after the ledger: what it knows stands in the history
        self.ledger = save_ledger(self.run_dir, self.ledger, self._now())
        self._saved_at = self._monotonic()

    def _event(self, kind: str, **facts: Any) -> None:
        self._untold.append({"kind": kind, "now": self._now(), **facts})
        slot = f"slot {facts['slot']}: " if facts.get("slot") is not None else ""
        self._say(slot + sentence({"kind": kind, "at": self._now(), **facts}, self._now()))
        with suppress(OSError):  # a full disk: the next save tells it, or says that it cannot
            self._tell()

    def _tell(self) -> None:
        while self._untold:
            ledgers.append_event(self.run_dir, self.lease.epoch, **self._untold[0])
            del self._untold[0]
