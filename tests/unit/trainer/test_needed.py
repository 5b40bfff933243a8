"""Which slot a contributor plays for."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("metaworld")

from published import draft_of, nets_for, publish, training_of

from anchorleg.job import Job
from syncd import store
from trainer.actors.follower import Follower, Giver
from trainer.actors.needed import FIRST_WORD_S, Need, choose_policy, is_over, parse, why_not
from trainer.sharing import notice
from trainer.sharing.selection import STALE_S, Choice

pytestmark = pytest.mark.trainer
TRAINING = training_of()
DRAFT = draft_of(TRAINING, nets_for(TRAINING))
RUN = "a-00000000"


def newest(*slots):
    return [DRAFT.model_copy(update={"run_id": RUN, "slot": slot}) for slot in slots]


def need(rows=0, *, takes=True, over=False, heard_s=1.0, steps=7000):
    return Need(takes=takes, over=over, rows=rows, steps=steps, heard_s=heard_s)


def needs(*each):
    return {(RUN, slot): one for slot, one in enumerate(each)}


def test_the_slot_that_had_least_lately_is_chosen_by_everybody():
    known = needs(need(rows=3000), need(rows=600), need(rows=1500))
    assert {choose_policy(newest(0, 1, 2), known, None, f"friend {number}").slot for number in range(20)} == {1}


def test_a_class_spreads_over_slots_that_need_the_same_and_each_stays_with_its_own():
    known = needs(need(), need(rows=1), need(rows=2))
    chosen = [choose_policy(newest(0, 1, 2), known, None, f"friend {number}").slot for number in range(300)]
    assert chosen == [choose_policy(newest(2, 0, 1), known, None, f"friend {number}").slot for number in range(300)]
    assert min(Counter(chosen)[slot] for slot in (0, 1, 2)) > 60


def test_one_stays_until_the_slot_ends_or_takes_nothing():
    mine = (RUN, 0)
    assert choose_policy(newest(0, 1), needs(need(rows=3000), need()), mine, "ann").slot == 0
    for gone in (need(over=True, takes=False), need(takes=False), need(heard_s=STALE_S)):
        assert choose_policy(newest(0, 1), needs(gone, need(rows=3000)), mine, "ann").slot == 1


def test_where_no_slot_takes_anything_it_is_said_why():
    assert choose_policy(newest(0, 1), {}, None, "ann") is None
    assert "collaboration.enabled" in why_not({})
    dead = needs(need(heard_s=1800), need(over=True, takes=False))
    assert choose_policy(newest(0, 1), dead, None, "ann") is None
    assert "none of 1 unfinished slot was heard of for 30 min" in why_not(dead)
    assert not is_over(dead)
    assert is_over(needs(need(over=True, takes=False)))
    assert not is_over({})


def test_slots_that_wait_for_their_first_job_are_waited_for_but_not_for_ever():
    done = Need(takes=False, over=True, rows=0, steps=0, heard_s=60.0, slots=2)
    assert not is_over(needs(done))
    assert "no job yet" in why_not(needs(done))
    assert is_over(needs(done, done))
    assert is_over(needs(replace(done, heard_s=FIRST_WORD_S + 1)))
    assert not is_over({**needs(done, done), ("b-00000000", 0): done})


@pytest.mark.parametrize("row", [{}, {"takes": 1, "over": False, "rows": 1, "steps": 1}, {"takes": True}])
def test_a_row_that_says_something_else_says_nothing(row):
    assert parse(row, 0.0) is None


def test_no_step_and_no_row_is_the_greatest_need():
    assert (need(steps=0).level, need(rows=10**6).level) == (0, 10)


class Clock:
    """Unix seconds that a test sets."""

    now = 1_760_086_400.0

    def __call__(self):
        return self.now


def a_job(folder, slot=0):
    return Job(folder / "run", slot, 0, run_id="toy-0123abcd", shared_dir=folder, accepts_contributions=True)


def following(folder, clock, *, waits=True):
    return Follower(store.Shared(folder), Choice("needed"), giver=Giver("ann", waits=waits), wall=clock, survey_s=0.0)


def looked(follower):
    follower.look()
    return follower


@pytest.fixture
def clock():
    return Clock()


def test_a_giver_follows_the_slot_that_takes_and_rests_while_its_learner_is_silent(tmp_path, clock):
    for slot in (0, 1):
        publish(tmp_path, training=TRAINING, slot=slot)
    notice.write_notice(a_job(tmp_path, 1), 100, clock.now, {"takes": True})
    follower = following(tmp_path, clock)
    assert looked(follower).newest(None, may_change_slot=True).key == ("toy-0123abcd", 1)
    clock.now += 2 * STALE_S
    assert "waiting for a learner" in looked(follower).resting
    notice.write_notice(a_job(tmp_path, 1), 200, clock.now, {"takes": True})
    assert looked(follower).resting is None


def test_a_learner_whose_clock_is_an_hour_behind_lives_once_it_says_something_new(tmp_path, clock):
    publish(tmp_path, training=TRAINING)
    notice.write_notice(a_job(tmp_path), 100, clock.now - 3600, {"takes": True})
    follower = following(tmp_path, clock)
    assert looked(follower).resting is not None
    notice.write_notice(a_job(tmp_path), 200, clock.now - 3600 + 30, {"takes": True})
    assert looked(follower).resting is None


def test_a_laptop_without_a_network_plays_on_for_the_slot_that_took_something_last(tmp_path, clock):
    for slot in (1, 0):
        publish(tmp_path, training=TRAINING, slot=slot)
    notice.write_notice(a_job(tmp_path, 1), 100, clock.now - 10 * STALE_S, {"takes": True})
    follower = following(tmp_path, clock, waits=False)
    assert looked(follower).newest(None, may_change_slot=True).key == ("toy-0123abcd", 1)
    assert (follower.resting, follower.is_over) == (None, False)


def test_a_complete_training_is_known_to_be_over(tmp_path, clock):
    publish(tmp_path, training=TRAINING)
    notice.say_over(a_job(tmp_path), 100, print)
    follower = following(tmp_path, clock)
    assert looked(follower).is_over
    assert follower.resting == "the training is complete"


def test_who_plays_for_one_slot_of_a_run_waits_for_no_other(tmp_path, clock):
    publish(tmp_path, training=TRAINING)
    job = Job(tmp_path / "run", 0, 0, run_id="toy-0123abcd", shared_dir=tmp_path, accepts_contributions=True, slots=2)
    notice.say_over(job, 100, print)
    for choice, ends in (("toy-0123abcd/0", True), ("toy-0123abcd", False)):
        follower = Follower(store.Shared(tmp_path), Choice.parse(choice), giver=Giver("ann", waits=True), wall=clock)
        assert looked(follower).is_over is ends


@pytest.mark.parametrize("name", ["rows", "steps", "slots", "at", "usable"])
@pytest.mark.parametrize(
    "number",
    [10**400, 1e-310, -1, float("nan"), float("inf"), "1", None, [], True],
    ids=lambda number: repr(number)[:8],
)
def test_whatever_number_a_server_names_no_actor_dies_of_it(tmp_path, name, number):
    row = {"takes": True, "over": False, "rows": 1, "steps": 1, "slots": 1, "at": 1.0} | {name: number}
    manifest = publish(tmp_path, training=TRAINING)
    place = store.Shared(tmp_path).slot(manifest.run_id, manifest.slot)
    place.metrics.mkdir()
    (place.metrics / "intake-000000.jsonl").write_text(json.dumps(row) + "\n")
    for waits in (False, True):
        Follower(store.Shared(tmp_path), Choice("needed"), giver=Giver("ann", waits=waits)).look()
    said = parse(row, 0.0)
    assert said is None or 0 <= said.level <= 10


def test_of_what_slots_say_an_actor_reads_one_part(tmp_path):
    place = store.Shared(tmp_path).slot(RUN, 0)
    store.write_metrics(place, notice.INTAKE, [{"step": number} for number in range(3 * store.CHUNK_ROWS)])
    assert len(store.read_metrics(place, notice.INTAKE, parts=1)) == store.CHUNK_ROWS
