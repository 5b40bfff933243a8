"""What a slot knows, and says, of those who give it experience; and who of them is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorleg.job import Job
from syncd import store
from trainer.config.settings import GroupSettings
from trainer.sharing.judge import HARMLESS, LEAST, WINDOW, ContributorStanding
from trainer.sharing.notice import (
    FULL_AFTER_S,
    INTAKE,
    LATELY_S,
    SAY_EVERY_S,
    USABLE,
    ContributionNotice,
    is_full,
    say_none,
    usable_of,
)
from trainer.sharing.segment import Reason

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


def notice_of(job, clock):
    return ContributionNotice(job, clock=lambda: NOW, monotonic=clock)


def gave(notice, who, rows):
    """A round accepted a segment."""
    notice.note(who, accepted=1, rows=rows)
    notice.write(lambda _who, act: act() is None)


def said(job):
    return store.read_metrics(store.Shared(job.shared_dir).slot(job.run_id, job.slot), INTAKE)


def test_what_older_attempts_noted_counts_on(job, clock):
    shared = store.Shared(job.shared_dir)
    store.Inbox.of(shared, "ann").note(job.run_id, job.slot, store.Counts(accepted=2, rows=20, last_at=NOW - 50))
    store.Inbox.of(shared, "ann").note(job.run_id, 1, store.Counts(accepted=9, rows=90, last_at=NOW))  # another slot's
    store.Inbox.of(shared, "eve").note(job.run_id, job.slot, store.Counts(refused={"lag": 3}, last_at=NOW))
    found = notice_of(job, clock)
    found.look()
    gave(found, "ann", 10)
    gave(found, "bob", 500)
    assert found.by_contributor == {
        "bob": {"segments": 1, "transitions": 500, "last_at": NOW},
        "ann": {"segments": 3, "transitions": 30, "last_at": NOW},
    }


def test_the_row_says_what_came_in_the_last_ten_minutes_and_is_written_now_and_then(job, clock):
    found = notice_of(job, clock)
    found.say(1000)
    assert said(job) == [
        {"at": NOW, "takes": True, "over": False, "step": 1000, "steps": 0, "rows": 0, "slots": 1, "full": False}
        | {"usable": 0.4286}
    ]
    gave(found, "ann", 40)
    clock.now = SAY_EVERY_S / 2
    found.say(1100)
    assert said(job)[-1]["step"] == 1000
    clock.now = SAY_EVERY_S
    found.say(1200)
    assert said(job) == [
        {"at": NOW, "takes": True, "over": False, "step": 1200, "steps": 200, "rows": 40, "slots": 1, "full": False}
        | {"usable": 0.4286}
    ]
    clock.now = SAY_EVERY_S + LATELY_S
    found.say(1700)
    assert (said(job)[-1]["steps"], said(job)[-1]["rows"]) == (500, 0)


@pytest.mark.parametrize(
    ("rows", "steps", "span_s", "was_full", "full"),
    [
        (4400, 10_000, FULL_AFTER_S, False, True),  # 3 of others for 7 of its own are 4,286
        (4400, 10_000, FULL_AFTER_S - 1, False, False),
        (4200, 10_000, LATELY_S, False, False),
        (4200, 10_000, LATELY_S, True, True),  # not until a fifth of it stays away
        (3400, 10_000, LATELY_S, True, False),
        (0, 0, LATELY_S, False, False),
        (1, 0, LATELY_S, False, True),  # who learns nothing uses nothing
    ],
)
def test_a_slot_is_full_when_more_comes_than_it_can_use_for_minutes(rows, steps, span_s, was_full, full):
    assert is_full(rows, steps, span_s, was_full=was_full) is full


@pytest.mark.parametrize(
    ("slots", "group", "usable"),
    [
        (4, {}, USABLE),
        (4, {"share": 0.5, "adopt": True}, USABLE),  # no rows are given
        (1, {"rows": True, "share": 0.5}, USABLE),  # and here there is nobody to give any
        (4, {"rows": True, "share": 0.1}, 0.9 * 0.3 / (0.9 * 0.7)),
        (4, {"rows": True}, 0.2 / 0.5),  # 0.3 of a batch are other slots', one half is its own
        (4, {"rows": True, "share": 0.5}, 0.0),
    ],
)
def test_what_slots_give_each_other_lowers_what_a_slot_can_use_of_contributors(slots, group, usable):
    assert usable_of(GroupSettings(**group), slots) == pytest.approx(usable)


def test_a_training_that_cannot_use_any_says_so(job):
    say_none(job, 5, print, over=False)
    assert [(row["takes"], row["over"]) for row in said(job)] == [(False, False)]


BAD = sorted(set(Reason) - HARMLESS)


@given(st.lists(st.sampled_from([None, *sorted(HARMLESS)]), max_size=3 * WINDOW))
def test_nobody_is_held_for_what_happens_to_honest_senders(told: list[Reason | None]) -> None:
    standing = ContributorStanding()
    assert not any(standing.note("alice", reason) for reason in told)


@given(st.lists(st.sampled_from([None, *sorted(Reason)]), max_size=3 * WINDOW))
def test_a_contributor_that_is_held_brought_more_bad_than_good_lately(told: list[Reason | None]) -> None:
    standing, since = ContributorStanding(), 0
    for number, reason in enumerate(told):
        if standing.note("alice", reason):
            window = told[since : number + 1][-WINDOW:]
            assert len(window) >= LEAST
            assert sum(one in BAD for one in window) > len(window) / 2
            since = number + 1
