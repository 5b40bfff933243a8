"""What owners ask of contributors, what slots need, and what whoever is not needed or has given enough is told."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncd import store
from syncd.laptop.backoff import MAX_DELAY_S, MOST_LATER_S, Backoff, jittered, later
from syncd.laptop.exchange import Exchange
from syncd.laptop.mirror import Mirror
from syncd.outbox import Outbox
from syncd.shared.counts import KEPT_DAYS, Counts, counts, day_of, rows_today, take_back
from syncd.shared.inbox import Inbox
from syncd.shared.reception import (
    BELIEVED_S,
    INTAKE,
    LENGTHENED_S,
    NOT_NEEDED_RETRY_S,
    OVER_RETRY_S,
    VERSION_RETRY_S,
    Reception,
    Refusal,
    Terms,
    is_too_old,
    not_needed,
    receive,
    set_terms,
)
from syncd.wire.arrivals import Receipt

RUN, OTHER = "demo-0123abcd", "demo-4567cdef"
DAY = 86_400
#: 18:00 UTC.
NOW = 20_000 * DAY + 18 * 3600.0
OWN = {"takes": True, "over": False, "at": NOW, "full": False}


@pytest.fixture
def shared(tmp_path):
    made = store.Shared(tmp_path)
    for run_id in (RUN, OTHER):
        made.slot(run_id, 0).path.mkdir(parents=True)
    return made


@pytest.fixture
def inbox(shared):
    return Inbox.of(shared, "alice")


def asked(inbox, *, run_id=RUN, now=NOW, **more):
    return receive(inbox, run_id, 0, hashlib.sha256(b"x").hexdigest(), 1, clock=lambda: now, **more)


def gave(inbox, rows, *, run_id=RUN, slot=0, now=NOW):
    inbox.note(run_id, slot, Counts(accepted=1, rows=rows, days={str(day_of(now)): rows}, last_at=now))


class TestVersions:
    @pytest.mark.parametrize(
        ("version", "oldest", "is_old"),
        [
            ("0.4.9", "0.5", True), ("0.5", "0.5.0", False), ("0.5.0.dev3", "0.5", False), ("0.10", "0.9", False),
            ("1", "0.9.9", False), ("unknown", "0.1", True), ("", "0.1", True), ("0.5", "", False),
        ],
    )  # fmt: skip
    def test_numbers_are_compared_as_numbers(self, version, oldest, is_old):
        assert is_too_old(version, oldest) is is_old

    def test_an_older_client_is_told_which_version_and_a_way_that_says_none_is_not_asked(self, shared, inbox):
        set_terms(shared, RUN, Terms(oldest_client="0.5"))
        words = "this run accepts experience of anchorleg 0.5 and later, and this is 0.4.1"
        assert asked(inbox, version="0.4.1") == Refusal("version", words, VERSION_RETRY_S)
        for version in (None, "0.5"):
            assert isinstance(asked(inbox, version=version), Reception)
        assert isinstance(asked(inbox, run_id=OTHER, version="0.4.1"), Reception)  # another owner's run


class TestADaysQuota:
    def test_whoever_gave_enough_is_told_when_it_goes_on(self, shared, inbox):
        set_terms(shared, RUN, Terms(rows_per_day=1000))
        gave(inbox, 600)
        assert isinstance(asked(inbox), Reception)
        gave(inbox, 400, slot=1)  # all slots of the run together
        words = f"alice gave 1,000 rows today, and {RUN} accepts 1,000 a day; "
        words += "it accepts more from 00:00 UTC, in 6 h"
        assert asked(inbox) == Refusal("day_quota", words, 6 * 3600.0)
        assert isinstance(asked(inbox, run_id=OTHER), Reception)
        assert isinstance(asked(Inbox.of(shared, "bob")), Reception)


class TestWhatIsNeeded:
    @pytest.mark.parametrize(
        ("changes", "words", "retry"),
        [
            ({}, None, None),
            ({"full": True}, "as much as it can use", NOT_NEEDED_RETRY_S),
            ({"full": True, "at": NOW - BELIEVED_S}, None, None),  # its learner waits in the queue, perhaps
            ({"full": "yes"}, None, None),
            ({"takes": False}, "cannot learn", None),
            ({"takes": False, "over": True}, "training is complete", OVER_RETRY_S),  # it may be lengthened
            ({"takes": False, "over": True, "at": NOW - LENGTHENED_S}, "training is complete", None),
            ({"takes": False, "over": True, "at": 0.0}, "training is complete", None),
        ],
    )
    def test_a_slot_that_can_use_nothing_is_known_by_its_word(self, changes, words, retry):
        found = not_needed(OWN | changes, NOW)
        assert (found is None) == (words is None)
        if found is not None:
            assert words in found[0]
            assert found[1] == retry

    def test_who_is_not_needed_is_answered_so_and_nothing_is_begun(self, shared, inbox):
        store.write_metrics(shared.slot(RUN, 0), INTAKE, [OWN | {"full": True}])
        words = f"slot 0 of {RUN} needs no contributions: it has as much as it can use for now"
        assert asked(inbox) == Refusal("full", words, NOT_NEEDED_RETRY_S)
        assert not inbox.path.exists()


class Steady:
    """A transport that answers to segments as it is told."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def send(self, segments):
        self.asked += [run_id for _, run_id, _ in segments]
        return [self.answers[run_id] for _, run_id, _ in segments]


class TestTheClient:
    @pytest.fixture
    def clock(self):
        return [1000.0]

    def exchanging(self, folder, answers, clock, said, chance=0.5):
        box = Outbox(folder)
        for run_id in answers:
            assert box.offer(run_id, 0, run_id.encode())
        return Exchange(
            Steady(answers), Mirror(folder), box, patient=True, say=said.append, monotonic=lambda: clock[0],
            chance=lambda: chance,
        )  # fmt: skip

    def test_a_slot_that_needs_nothing_keeps_nothing_from_the_others(self, tmp_path, clock):
        said = []
        full = Receipt(False, "full", 100.0, "slot 0 needs nothing")
        exchange = self.exchanging(tmp_path, {RUN: full, OTHER: Receipt(True)}, clock, said)
        exchange.send_some()
        assert [each.run_id for each in Outbox(tmp_path).waiting()] == [RUN]
        assert said == ['segments wait in the outbox; the other side says "slot 0 needs nothing" (full)']
        assert Outbox(tmp_path).offer(OTHER, 0, b"another")
        exchange.send_some()
        assert exchange.transport.asked.count(RUN) == 1
        clock[0] += 149.9
        exchange.send_some()
        assert exchange.transport.asked.count(RUN) == 1  # not before its own moment: 100 s, and half as much by chance
        clock[0] += 0.2
        exchange.send_some()
        assert exchange.transport.asked.count(RUN) == 2


class TestJitter:
    @given(st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
    def test_nobody_asks_before_the_time_or_much_later(self, after_s, chance):
        assert after_s <= later(after_s, chance) <= after_s + min(after_s, MOST_LATER_S)
        assert 0.75 * after_s <= jittered(after_s, chance) <= 1.25 * after_s

    @given(st.floats(0, 1e12), st.integers(0, 100), st.floats(0, 1, exclude_max=True))
    def test_no_server_makes_a_client_wait_longer_than_the_longest_delay(self, spread_s, failures, chance):
        assert Backoff(failures, spread_s).delay_s(chance) <= MAX_DELAY_S


class TestTheBoard:
    def test_days_are_forgotten_after_a_week_and_a_clock_far_ahead_leaves_nothing(self, inbox):
        for number in range(30):
            gave(inbox, 1, now=NOW + number * DAY)
        assert len(counts(inbox.path).days) == KEPT_DAYS
        inbox.note(RUN, 0, Counts(rows=5, days={"999999": 5, "no day": 1}, last_at=NOW + 29 * DAY))
        assert counts(inbox.path).rows_of(NOW + 29 * DAY, 7) == 7
        assert "999999" not in counts(inbox.path).days

    def test_what_a_liar_gave_a_slot_is_no_credit(self, inbox):
        gave(inbox, 100)
        gave(inbox, 7, slot=1)
        take_back(inbox.path, f"{RUN}.0", Counts(rows=5, days={str(day_of(NOW)): 5}, last_at=NOW))
        total = counts(inbox.path)
        assert (total.rows, total.credited, total.rows_of(NOW, 7)) == (112, 7, 7)
        gave(inbox, 3)
        assert counts(inbox.path).credited == 10
        assert rows_today(inbox.path, RUN, NOW) == 115  # a lie opens no new quota
        take_back(inbox.path, f"{RUN}.0", Counts(last_at=NOW + DAY))
        assert rows_today(inbox.path, RUN, NOW) == 115
        assert rows_today(inbox.path, RUN, NOW + DAY) == 0

    @pytest.mark.parametrize("wrong", [NOW + 400 * DAY, NOW - 400 * DAY, 60.0])
    def test_one_round_on_a_wrong_clock_ends_no_count(self, inbox, wrong):
        gave(inbox, 10)
        gave(inbox, 1, now=wrong)
        gave(inbox, 20)
        gave(inbox, 5, now=NOW + DAY)
        total = counts(inbox.path)
        assert rows_today(inbox.path, RUN, NOW) == 30
        assert (total.rows_of(NOW + DAY), total.rows_of(NOW + DAY, 7)) == (5, 35)
