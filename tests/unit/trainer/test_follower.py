"""The follower, look by look: what it takes, what it waits for, what it gives up on, and for whom it plays."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from published import RUN, publish, training_of

from anchorleg.job import Job
from syncd import store
from trainer.actors.follower import Follower, Giver
from trainer.sharing import notice
from trainer.sharing.selection import STALE_S, Choice, parse

pytestmark = pytest.mark.trainer

TRAINING = training_of(horizon=10)


def followed(follower):
    follower.look()
    found = follower.newest()
    return None if found is None else found.manifest


def test_weights_that_show_late_are_taken_when_they_do(tmp_path):
    manifest = publish(tmp_path, training=TRAINING)
    blob = store.Shared(tmp_path).slot(RUN, 0).blob(manifest.blob.sha256)
    hidden = blob.rename(blob.with_name("elsewhere"))
    follower = Follower(store.Shared(tmp_path), Choice.parse("latest"))
    assert followed(follower) is None
    assert "waiting for the weights" in follower.waiting_for
    hidden.rename(blob)
    assert followed(follower) == manifest


def test_averaged_policies_are_followed_where_they_are_asked_for_and_missed_in_words(tmp_path):
    manifest = publish(tmp_path, training=TRAINING)
    shared = store.Shared(tmp_path)
    place = shared.slot(RUN, 0)
    plain, averaged = (Follower(shared, Choice.parse("latest"), averaged=each) for each in (False, True))
    assert followed(averaged) is None
    assert "leave out --averaged" in averaged.waiting_for
    weights = store.rounded(store.read(place, manifest))
    draft = store.Draft(**{name: getattr(manifest, name) for name in store.Draft.model_fields})
    store.publish(place.averaged, draft.model_copy(update={"step": 77}), weights)
    assert (followed(plain).step, followed(averaged).step) == (manifest.step, 77)


def test_a_machine_that_computes_otherwise_is_said_once_and_not_with_each_policy(tmp_path):
    """By how much, is another number each time."""
    said = []
    follower = Follower(store.Shared(tmp_path), Choice.parse("latest"))
    for seq in (1, 2):

        def spoil(draft, by=0.1 * seq):
            action = tuple(tuple(value + by for value in row) for row in draft.golden.action)
            return draft.model_copy(update={"golden": draft.golden.model_copy(update={"action": action})})

        publish(tmp_path, training=TRAINING, seq=seq, change=spoil)
        follower.look()
        assert f"up to {0.1 * seq:.3g}" in follower.waiting_for
    follower.tell(said.append)
    [sentence] = said
    assert "by up to 0.1 here" in sentence


class Class:
    """Slots 0 and 1 of a run, what they say, and followers of ann's on a clock that a test sets."""

    def __init__(self, folder):
        self.folder, self.now = folder, 1_760_086_400.0
        for slot in (1, 0):
            publish(folder, training=TRAINING, slot=slot)

    def say(self, slot, ago_s=0.0, **word):
        notice.write_notice(self.job(slot), 100, self.now - ago_s, {"takes": True, "steps": 7000, **word})

    def job(self, slot, **more):
        return Job(self.folder / "run", slot, 0, run_id=RUN, shared_dir=self.folder, accepts_contributions=True, **more)

    def follower(self, choice="needed", *, waits=True):
        return Follower(
            store.Shared(self.folder), Choice.parse(choice), giver=Giver("ann", waits=waits), wall=lambda: self.now,
            monotonic=lambda: self.now, survey_s=0.0,
        )  # fmt: skip


@pytest.fixture
def slots(tmp_path):
    return Class(tmp_path)


def test_a_giver_follows_the_slot_that_takes_and_rests_while_its_learner_is_silent(slots):
    slots.say(1)
    follower = slots.follower()
    assert followed(follower).slot == 1
    slots.now += 2 * STALE_S
    follower.look()
    assert "waiting for a learner" in follower.resting
    slots.say(1, rows=1)
    follower.look()
    assert follower.resting is None


def test_a_learner_whose_clock_is_an_hour_behind_lives_once_it_says_something_new(slots):
    slots.say(0, ago_s=3600)
    follower = slots.follower()
    follower.look()
    assert follower.resting is not None
    slots.say(0, ago_s=3570)
    follower.look()
    assert follower.resting is None


def test_a_laptop_without_a_network_plays_on_for_the_slot_that_took_something_last(slots):
    slots.say(1, ago_s=10 * STALE_S)
    follower = slots.follower(waits=False)
    assert followed(follower).slot == 1
    assert (follower.resting, follower.is_over) == (None, False)


def test_who_plays_for_one_slot_of_a_run_waits_for_no_other_that_is_not_complete(slots):
    notice.say_none(slots.job(0, slots=2), 100, print, over=True)
    for choice, ends in ((f"{RUN}/0", True), (RUN, False)):
        follower = slots.follower(choice)
        follower.look()
        assert follower.is_over is ends
        assert not ends or follower.resting == "the training is complete"


@pytest.mark.parametrize("waits", [False, True])
def test_who_is_not_needed_records_nothing_until_the_slot_says_otherwise_or_nothing(slots, waits):
    follower = slots.follower(waits=waits)
    for slot in (0, 1):
        slots.say(slot, rows=30_000, full=True)
    mine = followed(follower).slot
    assert "as much as it can use" in follower.unneeded
    assert (follower.resting is not None) is waits  # a job idles; a laptop plays on, to be watched
    slots.now += 60
    slots.say(mine, rows=100)
    follower.look()
    assert (follower.unneeded, follower.resting) == (None, None)
    slots.say(mine, rows=30_000, full=True)
    follower.look()
    slots.now += STALE_S + 1
    follower.look()
    assert follower.unneeded is None


@pytest.mark.parametrize("name", ["rows", "steps", "slots", "at", "usable"])
def test_whatever_number_a_server_names_no_actor_dies_of_it(slots, name):
    place = store.Shared(slots.folder).slot(RUN, 0)
    place.metrics.mkdir()
    for number in (10**400, 1e-310, -1, float("nan"), float("inf"), "1", None, [], True):
        row = {"takes": True, "over": False, "rows": 1, "steps": 1, "slots": 1, "at": 1.0} | {name: number}
        (place.metrics / "intake-000000.jsonl").write_text(json.dumps(row) + "\n")
        for waits in (False, True):
            slots.follower(waits=waits).look()
        said = parse(row, 0.0)
        assert said is None or 0 <= said.level <= 10
