"""What a slot knows, and says, of those who give it experience."""

from __future__ import annotations

import pytest

from anchorleg.job import Job
from syncd import store
from trainer.sharing.takings import INTAKE, LATELY_S, SAY_EVERY_S, Takings, say_over

NOW = 1_760_086_400.0


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def job(tmp_path):
    return Job.standalone(tmp_path / "toy", accepts_contributions=True)


@pytest.fixture
def clock():
    return Clock()


def takings_of(job, clock):
    return Takings(job, clock=lambda: NOW, monotonic=clock)


def said(job):
    return store.read_metrics(store.Shared(job.shared_dir).slot(job.run_id, job.slot), INTAKE)


def test_what_older_attempts_noted_counts_on(job, clock):
    shared = store.Shared(job.shared_dir)
    store.Inbox.of(shared, "ann").note(job.run_id, job.slot, store.Counts(accepted=2, rows=20, last_at=NOW - 50))
    store.Inbox.of(shared, "ann").note(job.run_id, 1, store.Counts(accepted=9, rows=90, last_at=NOW))  # another slot's
    store.Inbox.of(shared, "eve").note(job.run_id, job.slot, store.Counts(refused={"lag": 3}, last_at=NOW))
    found = takings_of(job, clock)
    found.look()
    found.add("ann", accepted=1, rows=10)
    found.add("bob", accepted=1, rows=500)
    assert found.by_contributor == {
        "bob": {"segments": 1, "transitions": 500, "last_at": NOW},
        "ann": {"segments": 3, "transitions": 30, "last_at": NOW},
    }


def test_the_row_says_what_came_in_the_last_ten_minutes_and_is_written_now_and_then(job, clock):
    found = takings_of(job, clock)
    found.say(1000, takes=True)
    assert said(job) == [{"at": NOW, "takes": True, "over": False, "step": 1000, "steps": 0, "rows": 0, "slots": 1}]
    found.add("ann", accepted=1, rows=40)
    clock.now = SAY_EVERY_S / 2
    found.say(1100, takes=True)
    assert said(job)[-1]["step"] == 1000
    clock.now = SAY_EVERY_S
    found.say(1200, takes=True)
    assert said(job) == [{"at": NOW, "takes": True, "over": False, "step": 1200, "steps": 200, "rows": 40, "slots": 1}]
    clock.now = SAY_EVERY_S + LATELY_S
    found.say(1700, takes=True)
    assert (said(job)[-1]["steps"], said(job)[-1]["rows"]) == (500, 0)


def test_a_training_that_takes_nothing_says_nothing_at_its_end(tmp_path):
    job = Job.standalone(tmp_path / "toy")
    say_over(job, 5, print)
    assert said(job) == []


def test_a_folder_that_cannot_be_used_at_the_end_is_told_and_no_failure(job):
    job.shared_dir.parent.mkdir(exist_ok=True)
    job.shared_dir.write_text("")
    told = []
    say_over(job, 5, told.append)
    assert len(told) == 1
    assert f"cannot be written to {job.shared_dir}" in told[0]
