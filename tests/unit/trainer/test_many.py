"""Many contributors at one slot, and many slots: who is served, what is counted, and how laptops spread."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")

from published import draft_of, nets_for, publish, training_of
from train_contributed import HORIZON, made_up, send
from train_point_mass import section

from anchorleg.job import Job
from syncd import store
from trainer.actors.follower import Follower, Giver
from trainer.actors.needed import REST_S, Need, Rest, choose_policy, parse, why_not, why_not_needed
from trainer.sharing import notice
from trainer.sharing.ingest import JUDGED_A_ROUND, Ingester
from trainer.sharing.notice import USABLE
from trainer.sharing.segment import encode
from trainer.sharing.selection import STALE_S, Choice
from trainer.sharing.spotcheck import Redone

pytestmark = pytest.mark.trainer
NOW = 20_000 * 86_400.0 + 3600
WHO = [f"friend-{number:02d}" for number in range(50)]
TRAINING = training_of()
DRAFT = draft_of(TRAINING, nets_for(TRAINING))
RUN = "a-00000000"


@pytest.fixture
def clock():
    return [NOW]


@pytest.fixture
def job(tmp_path):
    made = Job.standalone(tmp_path / "toy", accepts_contributions=True)
    made.start_from(None)
    return made


def door_of(job, clock, *, trusted=tuple(WHO), **more):
    training = section(horizon=HORIZON, contribution_max_lag=500, trusted_contributors=trusted)
    door = Ingester(job, training, step=100, clock=lambda: clock[0], **more)
    door.know(0, 0, 60)
    return door


def sent(job, who, *numbers):
    return [send(job.shared_dir, who, job.run_id, encode(made_up(job.run_id, number))) for number in numbers]


def inbox_of(job, who):
    return store.Inbox.of(store.Shared(job.shared_dir), who)


def given(job, who):
    return store.given_to(inbox_of(job, who).path, job.run_id, 0)


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


class TestTheJudge:
    def test_the_turns_go_on_where_the_last_round_ended(self, job, clock):
        for number, who in enumerate(WHO):
            sent(job, who, *range(4 * number, 4 * number + 4))
        door = door_of(job, clock)
        for _ in range(5):
            assert door.one_round() == JUDGED_A_ROUND
        assert {given(job, who).accepted for who in WHO} == {2}

    def test_who_has_given_enough_today_waits_until_tomorrow_and_loses_nothing(self, job, clock):
        job.terms = {"rows_per_day": 3 * HORIZON}
        sent(job, WHO[0], *range(8))
        sent(job, WHO[1], 10, 11)
        door = door_of(job, clock)
        for _ in range(2):
            door.one_round()
        assert [given(job, who).accepted for who in WHO[:2]] == [3, 2]
        assert len(inbox_of(job, WHO[0]).waiting(job.run_id, 0, now=NOW)) == 5
        assert store.terms_of(store.Shared(job.shared_dir).runs, job.run_id) == store.Terms(rows_per_day=3 * HORIZON)
        clock[0] += 86_400
        door.one_round()
        assert given(job, WHO[0]).accepted == 6

    def test_rows_are_counted_by_the_day_and_a_liars_are_no_credit(self, job, clock):
        class Checker:
            def redo(self, segment):
                return Redone(0.0, segment.steps, "it paid less" if segment.episode == 3 else "")

            def close(self):
                pass

        sent(job, WHO[0], 1)
        door = door_of(job, clock, trusted=(), resimulate=Checker)
        door.one_round()
        assert (given(job, WHO[0]).credited, given(job, WHO[0]).rows_of(NOW)) == (HORIZON, HORIZON)
        sent(job, WHO[0], 2, 3)
        door.one_round()
        assert (given(job, WHO[0]).credited, given(job, WHO[0]).rows_of(NOW)) == (0, 0)
        assert given(job, WHO[0]).rows >= HORIZON


def newest(*slots):
    return [DRAFT.model_copy(update={"run_id": RUN, "slot": slot}) for slot in slots]


def need(rows=0, *, steps=7000, full=False, **more):
    return Need(**{"takes": True, "over": False, "rows": rows, "steps": steps, "heard_s": 1.0, "full": full} | more)


class TestFullSlots:
    def test_one_that_needs_something_comes_before_one_that_is_full(self):
        known = {(RUN, 0): need(3000, full=True), (RUN, 1): need(3000)}
        assert choose_policy(newest(0, 1), known, None, "ann").slot == 1
        assert choose_policy(newest(0, 1), known, (RUN, 0), "ann").slot == 0  # who is there stays, and rests
        assert choose_policy(newest(0), known, None, "ann").slot == 0

    def test_why_nothing_is_needed(self):
        assert why_not_needed(None) is None
        assert why_not_needed(need()) is None
        assert "all that it can use" in why_not_needed(need(full=True))
        assert why_not_needed(need(full=True, heard_s=STALE_S)) is None
        assert "complete" in why_not_needed(need(over=True, takes=False))
        assert "cannot learn" in why_not_needed(need(takes=False))
        assert "collaboration.enabled" in why_not({})

    def test_a_rest_has_a_length_of_its_own_and_goes_on_while_nothing_is_needed(self):
        draws = iter([0.0, 0.5])
        rest = Rest(lambda: next(draws))
        assert rest.look(None, 0.0) is None
        assert rest.look("full", 10.0) == "full"
        assert rest.look(None, 10.0 + REST_S / 2 - 1) == "full"  # not the moment something is needed again
        assert rest.is_over(10.0 + REST_S / 2)
        assert rest.look("full", 10.0 + REST_S / 2) == "full"
        assert rest.look(None, 10.0 + 1.5 * REST_S - 1) == "full"
        assert rest.look(None, 10.0 + 1.5 * REST_S) is None
        assert not rest.is_over(10.0 + 2 * REST_S)

    def test_so_many_leave_as_are_too_many(self):
        rng = random.Random(3)
        rest = Rest(rng.random)
        rows = round(2 * USABLE * 7000)
        assert sum(rest.leaves(need(rows, full=True)) for _ in range(1000)) == pytest.approx(500, abs=60)
        assert not rest.leaves(need(0, full=True))
        assert all(rest.leaves(need(0, full=True, usable=0.0)) for _ in range(100))
        assert sum(rest.leaves(need(2800, full=True, usable=0.2)) for _ in range(1000)) == pytest.approx(500, abs=60)

    def test_a_slot_is_as_needy_as_it_can_use_rows(self):
        assert [need(1400, usable=usable).level for usable in (USABLE, 0.4, 0.2, 0.0)] == [4, 5, 10, 10]
        row = {"takes": True, "over": False, "rows": 1, "steps": 1}
        for given, usable in ((0.4, 0.4), (0, 0.0), ("much", USABLE), (-1.0, USABLE), (7.0, USABLE), (None, USABLE)):
            assert parse(row | {"usable": given}, 1.0).usable == usable
        assert parse(row | {"usable": float("nan")}, 1.0).usable == USABLE


class Class:
    """Laptops and slots over simulated time: each laptop sees every slot's row, and plays as `Follower` decides."""

    TICK_S = 30.0
    ROWS_A_TICK = 90

    def __init__(self, laptops, steps_a_tick, seed):
        rng = random.Random(seed)
        self.steps = steps_a_tick
        self.places = newest(*range(len(steps_a_tick)))
        self.rests = [Rest(rng.random) for _ in range(laptops)]
        self.at = [None] * laptops
        self.gave = [0] * laptops
        self.took = [[] for _ in steps_a_tick]
        self.full = [False] * len(steps_a_tick)

    def needs(self):
        window = round(notice.LATELY_S / self.TICK_S)
        found = {}
        for slot, steps in enumerate(self.steps):
            lately = self.took[slot][-window:]
            rows, own = sum(lately), steps * len(lately)
            self.full[slot] = notice.is_full(rows, own, len(lately) * self.TICK_S, was_full=self.full[slot])
            found[RUN, slot] = need(rows, steps=own, full=self.full[slot])
        return found

    def tick(self, now):
        known, came = self.needs(), [0] * len(self.steps)
        for laptop, rest in enumerate(self.rests):
            wanted = choose_policy(self.places, known, self.at[laptop], f"laptop {laptop}")
            its = known[RUN, wanted.slot]
            if its.full and rest.is_over(now) and rest.leaves(its):
                other = choose_policy(self.places, known, None, f"laptop {laptop}")
                wanted = other if not known[RUN, other.slot].full else wanted
            if (RUN, wanted.slot) != self.at[laptop]:
                rest.end()
            self.at[laptop] = RUN, wanted.slot
            if rest.look(why_not_needed(known[RUN, wanted.slot]), now) is None:
                came[wanted.slot] += self.ROWS_A_TICK
                self.gave[laptop] += self.ROWS_A_TICK
        for slot, rows in enumerate(came):
            self.took[slot].append(rows)


@pytest.mark.parametrize(("laptops", "steps"), [(60, [3000] * 4), (100, [3000, 1500, 1500, 750])])
def test_a_class_that_is_too_many_is_spread_by_need_and_everybody_gives_alike(laptops, steps):
    seen = Class(laptops, steps, seed=1)
    for number in range(480):  # four hours
        seen.tick(number * seen.TICK_S)
    settled = [sum(rows[120:]) / len(rows[120:]) for rows in seen.took]
    levels = [rows / (USABLE * own) for rows, own in zip(settled, steps, strict=True)]
    assert jain(seen.gave) > 0.9
    assert min(levels) > 0.6, levels  # nobody starves while others have too much
    assert max(levels) < 2.0, levels


class TestTheFollower:
    @pytest.fixture
    def shared(self, tmp_path):
        for slot in (0, 1):
            publish(tmp_path, training=TRAINING, slot=slot)
        return store.Shared(tmp_path)

    def say(self, shared, slot, **word):
        learner = Job(
            shared.path / "run", slot, 0, run_id="toy-0123abcd", shared_dir=shared.path, accepts_contributions=True
        )
        notice.write_notice(learner, 100, self.now[0], {"takes": True, "steps": 7000, **word})

    def following(self, shared, chances, *, waits):
        self.now = [NOW]
        rest = Rest(lambda: chances.pop(0))
        return Follower(
            shared, Choice("needed"), giver=Giver("ann", waits=waits), wall=lambda: self.now[0],
            monotonic=lambda: self.now[0], rest=rest, survey_s=0.0,
        )  # fmt: skip

    @pytest.mark.parametrize("waits", [False, True])
    def test_who_is_not_needed_rests_then_goes_where_something_is(self, shared, waits):
        follower = self.following(shared, [0.5, 0.0], waits=waits)
        self.say(shared, 0, rows=3000)
        self.say(shared, 1, rows=30_000, full=True)
        follower.look()
        assert follower.newest(None, may_change_slot=True).key[1] == 0
        assert follower.unneeded is None
        self.now[0] += 60
        self.say(shared, 0, rows=30_000, full=True)
        self.say(shared, 1, rows=100)
        follower.look()
        assert "all that it can use" in follower.unneeded
        assert (follower.resting is not None) is waits  # a job idles; a laptop plays on, to be watched
        self.now[0] += REST_S + 1
        self.say(shared, 0, rows=30_000, full=True)
        self.say(shared, 1, rows=101)
        follower.look()
        assert (follower.unneeded, follower.resting) == (None, None)
        assert follower.newest(None, may_change_slot=True).key[1] == 1

    def test_without_news_for_long_a_laptop_records_again(self, shared):
        follower = self.following(shared, [0.0] * 5, waits=False)
        for slot in (0, 1):
            self.say(shared, slot, rows=30_000, full=True)
        follower.look()
        assert follower.unneeded is not None
        self.now[0] += STALE_S + 1
        follower.look()
        assert follower.unneeded is None
