"""The facts of a slot's jobs, from the files that jobs leave: graceful, killed, forgotten, damaged."""

import json
import os

import pytest

from orchestrator.decisions.models import Attempt, Slot, Submission, SubmissionState
from orchestrator.run.rundir import RunDir
from orchestrator.screens.goodput import account
from orchestrator.screens.jobtimes import slot_facts

NOW = 10_000.0


def put(path, **value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


class Folder:
    """A slot's attempts in the making."""

    def __init__(self, path):
        self.run_dir = RunDir(path)
        self.events = []

    def event(self, kind, at, attempt, **more):
        self.events.append({"kind": kind, "at": at, "attempt": attempt, "slot": 0, **more})

    def attempt(self, number, *, claimed, parent=None, progress=None, saved=(), beat=None, ended=None):
        where = self.run_dir.attempt(0, number)
        who = {"token": f"t{number}", "job_id": str(number), "host": "n1", "pid": 1}
        put(where / "claim", **who, at=claimed)
        before, step = parent or (None, 0)
        put(where / "parent.json", attempt=before, step=step, checkpoint=str(step))
        if progress is not None:
            at, step, checkpoint = progress
            put(where / "progress.json", step=step, total=1000, checkpoint_step=checkpoint, at=at)
        for step in saved:
            (where / "checkpoints" / str(step)).mkdir(parents=True)
        if beat is not None:
            put(where / "heartbeat.json", **who, beat=3, **beat)
        if ended is not None:
            put(where / "exit.json", **who, **{"code": 75, "asked": "deadline", **ended})

    def facts(self, slot=None, now=NOW, *, over=False):
        return slot_facts(self.run_dir, slot or Slot(index=0), self.events, now, over=over)

    def times(self, **more):
        return account(self.facts(**more), NOW).times


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_steps_beyond_what_the_successor_began_with_are_lost(folder):
    folder.event("submission", 90, 0, token="t0", job_id="1", outcome=None)
    folder.event("submission", 350, 1, token="t1", job_id="2", outcome=None)
    times = {"started_at": 100, "first_progress_at": 110, "asked_at": None}
    folder.attempt(0, claimed=101, progress=(309, 200, 150), saved=(100, 150), ended={"at": 310, **times, "code": 1})
    folder.attempt(1, claimed=400, parent=(0, 100), progress=(990, 500, 500), ended={"at": 1000, "code": 0})
    first, second = folder.facts(over=True).jobs
    assert (first.started_at, first.first_step_at, first.done, first.kept) == (100, 110, 200, 100)
    assert (second.done, second.kept, second.submitted_at) == (400, 400, 350)
    seen = folder.times(over=True)
    assert (seen.start_up_s, seen.lost_s) == (10, 100)
    assert (seen.queue_s, seen.waiting_s) == (60, 40)


def test_a_killed_job_speaks_by_its_last_heartbeat(folder):
    folder.event("ended", 700, 0)
    beat = {"at": 480, "started_at": 99, "first_progress_at": 120, "asked_at": 470}
    folder.attempt(0, claimed=100, progress=(500, 50, 0), beat=beat)
    folder.attempt(1, claimed=800, progress=(9_990, 5, 0), beat={"at": 9_980})
    killed, running = folder.facts().jobs
    assert (killed.started_at, killed.first_step_at, killed.asked_at) == (99, 120, 470)
    assert (killed.ended_at, killed.seen_at, killed.proven_at, killed.kept, killed.open) == (None, 500, 700, 0, False)
    assert running.open
    assert account(folder.facts(), NOW).times.blind_s == 700 - 530


@pytest.mark.parametrize(
    ("code", "saved_at", "answered_at"),
    [(75, None, 950), (0, None, 950), (-9, None, None), (1, 700, None), (-9, 920, 920), (None, None, None)],
)
def test_only_a_save_or_an_orderly_end_answers_a_request(folder, code, saved_at, answered_at):
    beat = {"at": 940, "started_at": 99, "asked_at": 900}
    ended = None if code is None else {"at": 950, "asked_at": 900, "code": code}
    folder.attempt(0, claimed=100, saved=() if saved_at is None else (50,), beat=beat, ended=ended)
    if saved_at is not None:
        os.utime(folder.run_dir.attempt(0, 0) / "checkpoints" / "50", (saved_at, saved_at))
    (job,) = folder.facts().jobs
    assert (job.asked_at, job.answered_at) == (900, answered_at)


def test_an_attempt_outside_the_history_kept_nothing_whatever_it_saved_later(folder):
    folder.attempt(0, claimed=0, progress=(90, 100, 100), saved=(100,), ended={"at": 95})
    folder.attempt(1, claimed=100, parent=(0, 100), progress=(190, 150, 150), saved=(150,), ended={"at": 195})
    folder.attempt(2, claimed=150, parent=(0, 100), progress=(290, 180, 180), saved=(180,), ended={"at": 300})
    assert [job.kept for job in folder.facts().jobs] == [100, 0, 80]


@pytest.mark.parametrize(
    ("ended", "kept"),
    [
        ({"newest": None}, 0),  # none of them is where a next job looks
        ({"newest": 60}, 60),
        ({}, 100),  # its node could not look
        ({"newest": None, "code": 0}, 0),
    ],
)
def test_what_a_job_reports_as_saved_and_no_successor_finds_is_not_kept(folder, ended, kept):
    folder.attempt(0, claimed=0, progress=(90, 100, 100), ended={"at": 95, **ended})
    assert [job.kept for job in folder.facts(over=True).jobs] == [kept]


def test_a_job_whose_heart_a_controller_has_just_seen_runs_whatever_its_nodes_clock_says(folder):
    beat = {"at": NOW - 150, "first_progress_at": 700}
    folder.attempt(0, claimed=600, progress=(NOW - 160, 50, 0), beat=beat)
    job = Submission(token="t0", intent_at=500, state=SubmissionState.SUBMITTED, job_id="7")
    watched = {"number": 0, "claimed_by": "t0", "submissions": (job,)}
    slot = Slot(index=0, attempts=(Attempt(**watched, heartbeat_changed_at=NOW - 10),))
    times = folder.times(slot=slot)
    assert (times.blind_s, times.lost_s) == (0, 0)
    assert not folder.facts(Slot(index=0, attempts=(Attempt(**watched, heartbeat_changed_at=NOW - 130),))).jobs[0].open


def test_a_program_that_reports_nothing_counts_by_its_checkpoints_and_its_exit(folder):
    folder.attempt(0, claimed=0, saved=(100,), ended={"at": 95})
    folder.attempt(1, claimed=100, parent=(0, 100), ended={"at": 195, "code": 1})
    folder.attempt(2, claimed=200, parent=(0, 100), ended={"at": 295, "code": 0})
    assert [(job.done, job.kept > 0) for job in folder.facts().jobs] == [(None, True), (None, False), (None, True)]


def test_what_is_in_the_queue_now_and_what_was_refused(folder):
    folder.event("submission", 500, 0, token="t0", job_id=None, outcome="not submitted: no such partition")
    folder.event("submission", 600, 0, token="t1", job_id="7", outcome=None)
    waiting = Submission(token="t1", intent_at=599, state=SubmissionState.SUBMITTED, job_id="7")
    slot = Slot(index=0, attempts=(Attempt(number=0, submissions=(waiting,)),))
    facts = folder.facts(slot, over=True)
    assert (facts.begun_at, facts.queued_at, facts.over) == (500, 600, False)
    assert account(facts, 700).times.waiting_s == 100
